"""What a conversation was told: it may ask for what is named there. What others left out is none of its business."""

from kimi_proxy.core.chat import Request


class Told:
    """The model's own calls are no part of it, nor is what we say of ids that it should not know."""

    def __init__(self, request: Request) -> None:
        self._knows_all = request.is_continued  # only the end of it passes here
        self._texts = [request.body]

    def add(self, text: str) -> None:
        self._texts.append(text.encode("utf-8", "surrogatepass"))

    def names(self, id: str) -> bool:
        return self._knows_all or any(id.encode() in text for text in self._texts)

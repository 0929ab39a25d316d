"""What is told of a text that was asked for and is too long to be read at once."""

from collections.abc import Sequence

from kimi_proxy.core.chat import Request, edit

SHORT_CHARS = 2_000  # hardly the reason why a request is too long
OWED_CHARS = 32_000  # what is told beside another result stays in the conversation for good


def fitting(text: str, max_chars: int) -> str:
    """The text, or how to ask for some of it."""
    if len(text) <= max_chars:
        return text
    lines = text.count("\n") + 1
    return (
        f"too_long: all of it does not fit in here. It has {lines} lines and {len(text)} characters: ask for some of "
        "them by start_line and end_line, or by start_char and end_char."
    )


def with_results(request: Request, texts: Sequence[str]) -> Request:
    """A request that ends with as many results, with other texts in them."""
    places = [
        (at, index)
        for at, message in enumerate(request.messages)
        for index, part in enumerate(message.parts)
        if part.kind == "tool_result"
    ]
    return edit.with_texts(request, dict(zip(places[-len(texts) :], texts, strict=True)))

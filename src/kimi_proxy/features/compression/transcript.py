"""What was said in messages, as a text that somebody can summarise."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from kimi_proxy.core.chat import Message, Part

# Of a result, an argument or a text: its beginning and its end, in characters, from generous to scarce.
_WIDTHS = ((4000, 2000), (1200, 600), (400, 200), (120, 60))
_BETWEEN = "\n[… {left} characters left out …]\n"


def transcript(messages: Sequence[Message], max_tokens: int, count: Callable[[str], int]) -> str:
    """All messages in their order; the longer the conversation, the less of each long part."""
    text = ""
    for head, tail in _WIDTHS:
        text = "\n\n".join(_told(messages, head, tail))
        if count(text) <= max_tokens:
            return text
    return _middle_out(text, max_tokens * len(text) // max(1, count(text)))


def _told(messages: Iterable[Message], head: int, tail: int) -> Iterator[str]:
    for message in messages:
        parts = [_part(part, head, tail) for part in message.parts]
        told = "\n".join(part for part in parts if part)
        if told:
            yield f"## {message.role}\n{told}"


def _part(part: Part, head: int, tail: int) -> str:
    match part.kind:
        case "text":
            return shortened(part.text, head, tail)
        case "tool_call":
            return f"calls {part.name}: {shortened(part.text, head // 2, tail // 2)}"
        case "tool_result":
            return f"{'failed' if part.failed else 'result'}: {shortened(part.text, head, tail)}"
        case "image":
            return "[an image]"
        case _:
            return ""


def shortened(text: str, head: int, tail: int) -> str:
    left = len(text) - head - tail
    if left <= len(_BETWEEN):
        return text
    return f"{text[:head]}{_BETWEEN.format(left=left)}{text[-tail:] if tail else ''}"


def _middle_out(text: str, max_chars: int) -> str:
    return shortened(text, max_chars // 2, max_chars // 2 - len(_BETWEEN))

"""About how many tokens a request costs, before its provider has counted."""

from collections.abc import Callable

from kimi_proxy.core.chat import Part, Request

MESSAGE_TOKENS = 4  # what separates a message from the next
IMAGE_TOKENS = 1_600  # of the usual size; its bytes say nothing about it
BLOB_TOKENS = 1_000  # at most, of anything else that is no text: a document, a sound


def tokens_of(request: Request, count: Callable[[str], int]) -> int:
    """Texts, tool calls, results, the descriptions of tools, and a flat rate for what is no text."""
    parts = [part for message in request.messages for part in message.parts]
    inside = {(part.start, part.end) for part in parts}
    parts += [part for part in request.system if (part.start, part.end) not in inside]
    flat = sum(map(_flat, parts))
    tools = request.page.members.get("tools")
    described = 0 if tools is None else count(bytes(tools).decode("utf-8", "replace"))
    return flat + described + MESSAGE_TOKENS * len(request.messages) + sum(count(part.text) for part in parts)


def is_same(one: Request, other: Request) -> bool:
    """Whether two requests weigh the same because they say the same."""
    if one is other:
        return True
    names = (one.dialect.CONVERSATION, "system", "instructions", "tools")
    return all(_raw(one, name) == _raw(other, name) for name in names)


def _raw(request: Request, name: str) -> bytes:
    raw = request.page.members.get(name)
    return b"" if raw is None else bytes(raw)


def _flat(part: Part) -> int:
    if part.kind == "image":
        return IMAGE_TOKENS
    return min(BLOB_TOKENS, (part.end - part.start) // 4) if part.kind == "other" else 0

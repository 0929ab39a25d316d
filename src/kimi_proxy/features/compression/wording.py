"""What the model reads in place of old messages."""

from collections.abc import Iterable, Sequence

from kimi_proxy.core.chat import Message
from kimi_proxy.features import memory

# Memory that the model was given, or asked to keep; what tools of MCP said is part of the story.
_KEPT = frozenset({"mcp-memory", "[MEMORY]", "@memory", "@remember"})

_HEAD = """\
[KIMI_PROXY_HISTORY_SUMMARIZED messages={messages} id={id}]
To save room, {messages} earlier messages of this conversation are summarised here. This is a record of what happened, \
not a new request: go on from the messages that follow. {way_back}"""
_WAY_BACK = "All of them, word for word, one JSON object a line: recover_text, or GET /api/mask/{id}."


def message(summary: str, memories: Sequence[str], messages: int, original_id: str) -> str:
    head = _HEAD.format(messages=messages, id=original_id, way_back=_WAY_BACK.format(id=original_id))
    remembered = ("What is to be remembered, as it stood there:", *memories) if memories else ()
    return "\n\n".join((head, summary, *remembered))


def memories(messages: Iterable[Message]) -> list[str]:
    """Blocks of memory in these messages, each once; they are never summarised away."""
    found: dict[str, None] = {}
    for said in messages:
        for part in said.parts:
            if part.kind in ("text", "tool_result"):
                for segment in memory.segments(part.text):
                    if segment.kind in _KEPT:
                        found[part.text[segment.start : segment.end]] = None
    return list(found)

"""What is known of a project, as a block of memory at the beginning of a conversation."""

import re
from dataclasses import replace

from kimi_proxy.core import jsontext
from kimi_proxy.core.chat import Request
from kimi_proxy.core.chat.adding import with_system
from kimi_proxy.core.types import JsonValue
from kimi_proxy.features.pipeline import Draft, Note

_TAG = re.compile(r"<(/?mcp-memory)", re.IGNORECASE)


def block(content: JsonValue) -> str:
    """The block that the model reads; none if there is nothing to say."""
    text = content if isinstance(content, str) else jsontext.encode(content).decode() if content else ""
    if not text.strip():
        return ""
    # What stands inside can't end the block.
    harmless = _TAG.sub(r"< \1", text.strip())
    return f'<mcp-memory source="project">\n{harmless}\n</mcp-memory>'


def begins(request: Request) -> bool:
    """Whether nothing has been answered yet in this conversation."""
    roles = {message.role for message in request.messages}
    return bool(roles) and roles <= {"system", "user"} and not request.is_continued


def injected(draft: Draft, block: str, tokens: int | None = None) -> Draft:
    """Told by the system, behind its own words. `tokens` are given where that happens for the first time."""
    request = with_system(draft.request, block)
    if request is draft.request:
        return draft
    notes = () if tokens is None else (Note("memory_injected", {"tokens": tokens}),)
    return replace(draft, request=request, notes=(*draft.notes, *notes))

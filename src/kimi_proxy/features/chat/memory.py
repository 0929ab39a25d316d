"""Long-term memory in a conversation: found in its texts, counted apart, and never summarized away."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypedDict

from kimi_proxy.core import json
from kimi_proxy.core.chat import Request
from kimi_proxy.core.chat.edit import with_system
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.chat.pipeline import Draft, Note

# Memory segments in a text: seven notations, found in one pass over any text.
#
# A block counts within the text that it stands in, from its opening to the closing that belongs to it, with everything
# between them; what is opened and not closed in the same text is no memory. Letters may be large or small, and tags may
# carry attributes.

KINDS = ("mcp-memory", "mcp-result", "mcp-tool", "[MEMORY]", "@memory", "@recall", "@remember")

_OPENINGS = ("<mcp-", "[memory]", "@memory[", "@recall(", "@remember(")
_FLAGS = re.IGNORECASE | re.ASCII
_TAG = re.compile(
    r"<(?P<opens>mcp-(?:memory|result|tool))(?:\s[^<>]*|/)?>"
    r"|</(?P<closes>mcp-(?:memory|result|tool))\s*>|\[(?P<slash>/?)memory\]",
    _FLAGS,
)
_CALL_TEXT = r"(?<![\w@])(?P<name>@memory(?=\[)|@re(?:call|member)(?=\())[(\[]"
_CALL = re.compile(_CALL_TEXT, _FLAGS)
_BRACKET = re.compile(rf"{_CALL_TEXT}|[()\[\]]", _FLAGS)
_PAIRS = {")": "(", "]": "["}
_PROJECT_TAG = re.compile(r"<(/?mcp-memory)", re.IGNORECASE)
PREVIEW_CHARS = 80


@dataclass(frozen=True, slots=True)
class Segment:
    start: int
    end: int
    kind: str  # one of KINDS


def segments(text: str) -> tuple[Segment, ...]:
    """Return them in order and apart: where some overlap, one that covers all of them."""
    lowered = text.lower()
    if not any(opening in lowered for opening in _OPENINGS):
        return ()
    return tuple(_apart(sorted((*_find_tagged(text), *_find_calls(text)), key=lambda found: (found.start, -found.end))))


def _find_tagged(text: str) -> Iterator[Segment]:
    """Each closing belongs to the nearest opening of its kind that has none yet."""
    waiting: dict[str, list[int]] = {}
    for found in _TAG.finditer(text):
        name = found["opens"] or found["closes"]
        kind = name.lower() if name else "[MEMORY]"
        if found["opens"] and found[0].endswith("/>"):
            yield Segment(found.start(), found.end(), kind)
        elif found["opens"] or found["slash"] == "":
            waiting.setdefault(kind, []).append(found.start())
        elif waiting.get(kind):
            yield Segment(waiting[kind].pop(), found.end(), kind)


def _find_calls(text: str) -> Iterator[Segment]:
    """`@recall(f(x))` ends where its own bracket closes; brackets outside of a call do not count."""
    waiting: dict[str, list[tuple[int, str]]] = {"(": [], "[": []}
    calls = at = 0
    while found := (_BRACKET if calls else _CALL).search(text, at):
        at = found.end()
        bracket = found[0][-1]
        if bracket in waiting:
            name = (found["name"] or "").lower()
            waiting[bracket].append((found.start(), name))
            calls += bool(name)
        elif opened := waiting[_PAIRS[bracket]]:
            start, name = opened.pop()
            if name:
                calls -= 1
                yield Segment(start, at, name)
        if not calls:
            waiting = {"(": [], "[": []}


def _apart(ordered: list[Segment]) -> Iterator[Segment]:
    last: Segment | None = None
    for found in ordered:
        if last is not None and found.start < last.end:
            last = Segment(last.start, max(last.end, found.end), last.kind)
            continue
        if last is not None:
            yield last
        last = found
    if last is not None:
        yield last


@dataclass(frozen=True, slots=True)
class MemoryFound:
    """The memory of one kind in a text or in a whole request."""

    kind: str
    count: int
    tokens: int
    preview: str  # how the first of it begins


@dataclass(frozen=True, slots=True)
class TextWeight:
    """A text's tokens, and those among them that are memory."""

    tokens: int
    memory: int = 0
    found: tuple[MemoryFound, ...] = ()
    lead: int = 0  # approximate words before the first segment


def weigh_text(text: str, count: Callable[[str], int]) -> TextWeight:
    """Return the tokens of a text, with each segment counted separately; their sum never exceeds the whole text."""
    counted = count(text)
    located = segments(text)
    if not located:
        return TextWeight(counted)
    pieces = [(one.kind, text[one.start : one.end]) for one in located]
    found = by_kind(MemoryFound(kind, 1, count(piece), _preview(piece)) for kind, piece in pieces)
    memory = min(counted, sum(one.tokens for one in found))
    lead = min(counted - memory, round(counted * located[0].start / len(text)))
    return TextWeight(counted, memory, found, lead)


# Of the memory server (@modelcontextprotocol/server-memory): what it returns is memory, under any client's prefix.
_MEMORY_TOOL = re.compile(r"(?:.*[_.])?(?:read_graph|search_nodes|open_nodes)|mcp__memory__\w+", re.ASCII)


def is_memory_tool(name: str) -> bool:
    """Return whether a tool reads from the memory server."""
    return _MEMORY_TOOL.fullmatch(name) is not None


def weigh_memory(text: str, weighed: TextWeight) -> TextWeight:
    """Return the weight of a text that is memory as a whole."""
    found = MemoryFound("mcp-result", 1, weighed.tokens, _preview(text))
    return TextWeight(weighed.tokens, weighed.tokens, (found,))


def by_kind(found: Iterable[MemoryFound]) -> tuple[MemoryFound, ...]:
    """Return one sum for each kind."""
    sums: dict[str, MemoryFound] = {}
    for one in found:
        first = sums.get(one.kind)
        if first is not None:
            one = MemoryFound(one.kind, first.count + one.count, first.tokens + one.tokens, first.preview)
        sums[one.kind] = one
    return tuple(sums[kind] for kind in KINDS if kind in sums)


def _preview(piece: str) -> str:
    # One line is enough to recognise it; characters that a database cannot store are removed.
    line = " ".join(piece[: PREVIEW_CHARS * 4].split())
    return line[:PREVIEW_CHARS].encode("utf-8", "replace").decode()


def memory_block(content: JsonValue) -> str:
    """Return the block that the model reads; empty if there is no content."""
    text = content if isinstance(content, str) else json.encode(content).decode() if content else ""
    if not text.strip():
        return ""
    # Its contents cannot end the block.
    harmless = _PROJECT_TAG.sub(r"< \1", text.strip())
    return f'<mcp-memory source="project">\n{harmless}\n</mcp-memory>'


def is_new_conversation(request: Request) -> bool:
    """Return whether this conversation has no answer yet."""
    roles = {message.role for message in request.messages}
    return bool(roles) and roles <= {"system", "user"} and not request.is_continued


class MemoryInjectedFields(TypedDict):
    tokens: int


def with_memory(draft: Draft, block: str, tokens: int | None = None) -> Draft:
    """Return `draft` with `block` behind the system prompt; `tokens` are given for the first request that has it."""
    request = with_system(draft.request, block) if block else draft.request
    if request is draft.request:
        return draft
    notes = () if tokens is None else (Note("memory_injected", MemoryInjectedFields(tokens=tokens)),)
    return replace(draft, request=request, notes=(*draft.notes, *notes))

"""Where memory stands in a text: seven ways to write it, found in one pass whatever the text.

A block counts within the text that it stands in, from its opening to the closing that belongs to it, with everything
between them; what is opened and not closed in the same text is no memory. Letters may be large or small, and tags may
carry attributes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Segment:
    start: int
    end: int
    kind: str  # one of KINDS


def segments(text: str) -> tuple[Segment, ...]:
    """In order, and apart: of those that lie in each other or overlap, one is left that covers all."""
    lowered = text.lower()
    if not any(opening in lowered for opening in _OPENINGS):
        return ()
    return tuple(_apart(sorted((*_tagged(text), *_called(text)), key=lambda found: (found.start, -found.end))))


def _tagged(text: str) -> Iterator[Segment]:
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


def _called(text: str) -> Iterator[Segment]:
    """`@recall(f(x))` ends where its own bracket closes; brackets outside of a call are nobody's business."""
    waiting: dict[str, list[tuple[int, str]]] = {"(": [], "[": []}
    calls = at = 0
    while found := (_BRACKET if calls else _CALL).search(text, at):
        at, bracket = found.end(), found[0][-1]
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

"""Blocks of lines, and the tree they make."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Block:
    """Lines `start` to `end`, 0-based, `end` exclusive; `body` is the first line after its header.

    A definition begins with the comments right above it, which are also a block of kind "comment" in it.
    """

    start: int
    end: int
    body: int
    kind: str
    name: str
    depth: int


@dataclass(frozen=True, slots=True)
class Outline:
    """The blocks in document order, parents first, and for each line "" or why it must stay.

    Why, in code: "import", "signature", "signature+" (its decorators and further lines), "header" (of the
    file), "likeness" (reads like one of these, and is none). In logs: "error", "context", "traceback",
    "failure", "diagnostic". In docs: "heading", "header". Anywhere: "no_prune".
    """

    blocks: tuple[Block, ...]
    protected: tuple[str, ...]
    language: str


class Span(NamedTuple):
    """A block whose place in the tree is not known yet."""

    start: int
    end: int
    body: int
    kind: str
    name: str = ""


def nest(spans: Iterable[Span], line_count: int) -> tuple[Block, ...]:
    """The spans as a tree: a span that sticks out of its parent is clipped, a twin is dropped."""
    blocks: list[Block] = []
    open_ends: list[int] = []
    last = (-1, -1)
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        while open_ends and open_ends[-1] <= span.start:
            open_ends.pop()
        end = min(span.end, open_ends[-1] if open_ends else line_count)
        if span.start < 0 or end <= span.start or (span.start, end) == last:
            continue
        last = (span.start, end)
        body = min(max(span.body, span.start), end)
        blocks.append(Block(span.start, end, body, span.kind, span.name, len(open_ends)))
        open_ends.append(end)
    return tuple(blocks)

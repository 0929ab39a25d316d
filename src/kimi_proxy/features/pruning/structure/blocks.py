"""Blocks of lines and the tree they make, and columns of numbers, one for each line."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.int64]


def scale_to_one(values: Floats) -> Floats:
    """Return `values` with their greatest at 1."""
    top = float(values.max(initial=0.0))
    return values / top if top > 0 else values


def spread(values: Floats, reach: int) -> Floats:
    """Return each value shared with its neighbours, less with distance."""
    out = values.copy()
    for distance in range(1, min(reach, len(values) - 1) + 1):
        share = 1 - distance / (reach + 1)
        out[:-distance] += share * values[distance:]
        out[distance:] += share * values[:-distance]
    return out


def fading(values: Floats, before: float, after: float) -> Floats:
    """Return each value carried on to the lines after and before it, weaker with every line."""
    source = values.tolist()
    out: list[float] = []
    level = 0.0
    for value in source:
        level = max(value, level * after)
        out.append(level)
    level = 0.0
    for i in range(len(source) - 1, -1, -1):
        level = max(source[i], level * before)
        out[i] = max(out[i], level)
    return np.array(out)


def nearness(marked: NDArray[np.bool_]) -> Floats:
    """Return 1 on a marked line, then 1/2, 1/3 … with the distance to the nearest; 0 where there is none."""
    n = len(marked)
    at = np.flatnonzero(marked)
    if not len(at):
        return np.zeros(n)
    here = np.arange(n)
    right = np.searchsorted(at, here).clip(0, len(at) - 1)
    left = (right - 1).clip(0)
    distance = np.minimum(np.abs(at[right] - here), np.abs(at[left] - here))
    near: Floats = 1 / (1.0 + distance)
    return near


def rank(values: Floats) -> Floats:
    """Return for each value which share of the others is smaller; what differs by a rounding error is the same."""
    rounded = np.round(values, 9)
    shares: Floats = np.searchsorted(np.sort(rounded), rounded) / max(1, len(values) - 1)
    return shares


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
    errors: tuple[int, ...] = ()  # in logs: the rows that report an error or a failure, however many there are


class Span(NamedTuple):
    """A block whose place in the tree is not known yet."""

    start: int
    end: int
    body: int
    kind: str
    name: str = ""


def nest(spans: Iterable[Span], line_count: int) -> tuple[Block, ...]:
    """Return the spans as a tree: a span that sticks out of its parent is clipped, a twin is dropped."""
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

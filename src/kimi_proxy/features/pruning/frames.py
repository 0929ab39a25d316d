"""Frames: lines that stay together, such as a header with its section, a fenced block or a table."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate

from kimi_proxy.features.pruning.structure.blocks import Block, Outline

WHOLE_KINDS = frozenset({"fence", "table"})
WHOLE_LINES = 60  # a longer one may be cut inside
HEADERS = frozenset({"signature", "heading"})
# Blocks whose first lines are their header though nothing protects them.
UNPROTECTED_KINDS = frozenset({"closure", "object"})
# Lines without meaning on their own: brackets, `end`, an empty line.
_FIRST_WORD = re.compile(r"[^\W_]")
_END = re.compile(r"end[\W_]*$")
BARE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Frame:
    """Lines `start` to `end`, 0-based, end exclusive.

    With `headers`, these rows stay if another line of the frame stays, and only then. Without, the frame is kept or cut
    as a whole.
    """

    start: int
    end: int
    headers: tuple[int, ...]


class Act(IntEnum):
    """The kind of a step: lines stay or go, or a frame begins or ends. A header stays if a line under it does."""

    ROWS = 0  # lines that stay or go one by one
    WHOLE = 1  # lines that stay or go together
    HEADER = 2
    ENTER = 3
    LEAVE = 4


@dataclass(frozen=True, slots=True)
class Framing:
    """A text as a sequence of steps (act, first row, end row), and the frames and bare lines they come from."""

    frames: tuple[Frame, ...]
    bare: tuple[bool, ...]
    steps: tuple[tuple[int, int, int], ...]

    def close(self, keep: Sequence[bool]) -> list[bool]:
        """Return `keep` with the lines that its frames need: whole blocks, headers, one line under each header."""
        out = list(keep)
        self._complete(out)
        for frame in self.frames:
            if frame.headers and any(out[frame.start : frame.end]):
                for row in frame.headers:
                    out[row] = True
                under = [row for row in self._under(frame) if not self.bare[row]]
                if not any(out[row] for row in under):
                    out[under[0]] = True
        self._complete(out)
        return out

    def _complete(self, keep: list[bool]) -> None:
        for frame in self.frames:
            if not frame.headers and any(keep[frame.start : frame.end]):
                keep[frame.start : frame.end] = [True] * (frame.end - frame.start)

    def _under(self, frame: Frame) -> list[int]:
        return [row for row in range(frame.start, frame.end) if row not in frame.headers]


def framing(lines: Sequence[str], outline: Outline) -> Framing:
    """Return the frames of a text and the steps through them."""
    bare = tuple(
        why == "signature+" or _is_bare(line[:BARE_CHARS]) for line, why in zip(lines, outline.protected, strict=True)
    )
    telling = list(accumulate((not is_bare for is_bare in bare), initial=0))
    found: list[Frame] = []
    opened: list[Frame] = []
    for block in outline.blocks:
        while opened and opened[-1].end <= block.start:
            opened.pop()
        # A block that begins in another one's header, or in a block that is kept as a whole, has no header.
        if opened and (not opened[-1].headers or block.start <= opened[-1].headers[-1]):
            continue
        frame = _frame(block, outline.protected)
        if frame is not None and (not frame.headers or telling[block.end] > telling[block.body]):
            found.append(frame)
            opened.append(frame)
    return Framing(tuple(found), bare, tuple(_steps(found, len(lines))))


def _is_bare(line: str) -> bool:
    begun = line.lstrip()
    if begun[:1].isalpha() and not begun.startswith("end"):  # as most lines do
        return False
    first = _FIRST_WORD.search(line)
    return first is None or _END.match(line, first.start()) is not None


def _frame(block: Block, protected: Sequence[str]) -> Frame | None:
    if block.kind in WHOLE_KINDS:
        return Frame(block.start, block.end, ()) if 1 < block.end - block.start <= WHOLE_LINES else None
    rows = range(block.start, block.body)
    headers = tuple(row for row in rows if protected[row] in HEADERS or block.kind in UNPROTECTED_KINDS)
    return Frame(block.start, block.end, headers) if headers else None


def _steps(frames: Sequence[Frame], line_count: int) -> list[tuple[int, int, int]]:
    headers = sorted({row for frame in frames for row in frame.headers})
    steps: list[tuple[int, int, int]] = []
    opened: list[Frame] = []
    row = 0

    def take(until: int) -> None:
        """Take the rows up to `until`, headers separately."""
        nonlocal row
        for header in headers[bisect_left(headers, row) : bisect_left(headers, until)]:
            if row < header:
                steps.append((Act.ROWS, row, header))
            steps.append((Act.HEADER, header, header + 1))
            row = header + 1
        if row < until:
            steps.append((Act.ROWS, row, until))
        row = until

    def advance(until: int) -> None:
        while opened and opened[-1].end <= until:
            ended = opened.pop()
            take(ended.end)
            steps.append((Act.LEAVE, ended.start, ended.end))
        take(until)

    for frame in frames:
        advance(frame.start)
        if frame.headers:
            steps.append((Act.ENTER, frame.start, frame.end))
            opened.append(frame)
        else:
            steps.append((Act.WHOLE, frame.start, frame.end))
            row = frame.end
    advance(line_count)
    return steps

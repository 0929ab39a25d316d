"""Lines that no definition claims, cut into runs at blank lines."""

from collections.abc import Callable, Sequence

from kimi_proxy.features.pruning.structure.blocks import Block, Span

# A body up to this long is kept or cut as one.
LONG_LINES = 60
DEEPEST = 6


def statements(lines: Sequence[str], blocks: Sequence[Block], check: Callable[[], None]) -> list[Span]:
    """Statement spans for the lines between `blocks`, and for long bodies inside them."""
    found: list[Span] = []
    for start, end, long_only in _gaps(blocks, len(lines)):
        check()
        if not long_only or end - start > LONG_LINES:
            _cut(lines, start, end, found, DEEPEST)
    return found


def _gaps(blocks: Sequence[Block], line_count: int) -> list[tuple[int, int, bool]]:
    """The stretches of lines that belong to no child block, and whether a function holds them."""
    gaps: list[tuple[int, int, bool]] = []
    opened: list[tuple[Block | None, int]] = [(None, 0)]

    def close(until: int) -> None:
        block, free = opened[-1]
        if free < until:
            gaps.append((free, until, block is not None and block.kind not in ("class", "namespace")))

    for block in blocks:
        while (holder := opened[-1][0]) is not None and holder.end <= block.start:
            close(holder.end)
            opened.pop()
        close(block.start)
        opened[-1] = (opened[-1][0], block.end)
        opened.append((block, block.body))
    while len(opened) > 1:
        holder = opened[-1][0]
        close(holder.end if holder is not None else line_count)
        opened.pop()
    close(line_count)
    return gaps


def _cut(lines: Sequence[str], start: int, end: int, found: list[Span], depth: int) -> None:
    """Runs that begin after a blank line at the shallowest indent; long ones are cut again, deeper."""
    indents = [_indent(lines[row]) for row in range(start, end)]
    shallowest = min((i for i in indents if i is not None), default=None)
    if shallowest is None:
        return
    first: int | None = None
    last = start
    blank = False
    for row, indent in enumerate(indents, start):
        if indent is None:
            blank = True
            continue
        if first is None:
            first = row
        elif blank and indent <= shallowest and lines[row].strip()[:1] not in (")", "}", "]"):
            _add(lines, first, last + 1, found, depth)
            first = row
        blank = False
        last = row
    if first is not None:
        _add(lines, first, last + 1, found, depth)


def _add(lines: Sequence[str], start: int, end: int, found: list[Span], depth: int) -> None:
    long = end - start > LONG_LINES and depth > 0
    found.append(Span(start, end, start + 1 if long else end, "statement"))
    if long:
        _cut(lines, start + 1, end - 1, found, depth - 1)


def _indent(line: str) -> int | None:
    bare = line.lstrip()
    return len(line) - len(bare) if bare else None

"""Lines that no definition claims: statements, and runs of them between blank lines."""

from collections.abc import Callable, Sequence

from kimi_proxy.features.pruning.structure.blocks import Block, Span, nest

# A body up to this long is kept or cut as one.
LONG_LINES = 60
# A statement this long stands alone; shorter ones make runs.
ALONE_LINES = 12
# A run with no blank line in it is cut when it gets this long.
RUN_LINES = 30
DEEPEST = 6

_OPEN_KINDS = frozenset({"class", "namespace"})
_CLOSERS = frozenset(")]};,")


def with_statements(
    lines: Sequence[str], spans: Sequence[Span], statements: Sequence[tuple[int, int]], check: Callable[[], None]
) -> tuple[Block, ...]:
    """The tree of `spans`, and of the statements in the file, in classes and in long bodies."""
    found = [*spans, *_outer(nest([*spans, *(Span(s, e, s + 1, "?") for s, e in statements)], len(lines)))]
    check()
    for gap_start, gap_end in _gaps(nest(found, len(lines)), len(lines)):
        _cut(lines, gap_start, gap_end, found, DEEPEST)
    check()
    return nest(found, len(lines))


def _is_open(block: Block) -> bool:
    """Whether what stands directly in `block` gets blocks of its own."""
    return block.kind in _OPEN_KINDS or (block.end - block.body > LONG_LINES and block.kind != "comment")


def _outer(blocks: Sequence[Block]) -> list[Span]:
    """Those of the candidate statements ("?") that stand in something open and are long or hold a definition."""
    found: list[Span] = []
    opened: list[tuple[int, bool]] = []
    for at, block in enumerate(blocks):
        while opened and opened[-1][0] <= block.start:
            opened.pop()
        if opened and not opened[-1][1]:
            opened.append((block.end, False))
            continue
        if block.kind != "?":
            opened.append((block.end, _is_open(block)))
        elif block.end - block.start >= ALONE_LINES or _holds_definition(blocks, at):
            found.append(Span(block.start, block.end, block.body, "statement"))
            opened.append((block.end, _is_open(block)))
    return found


def _holds_definition(blocks: Sequence[Block], at: int) -> bool:
    for inner in blocks[at + 1 : at + 2 + ALONE_LINES]:
        if inner.start >= blocks[at].end:
            return False
        if inner.kind != "?":
            return True
    return False


def _gaps(blocks: Sequence[Block], line_count: int) -> list[tuple[int, int]]:
    """The stretches of lines in the file and in open blocks that belong to no child block."""
    gaps: list[tuple[int, int]] = []
    opened: list[tuple[int, bool]] = [(line_count, True)]
    free = [0]

    def close(until: int) -> None:
        if opened[-1][1] and free[-1] < until:
            gaps.append((free[-1], until))

    for block in blocks:
        while opened[-1][0] <= block.start:
            close(opened[-1][0])
            opened.pop()
            free.pop()
        close(block.start)
        free[-1] = max(free[-1], block.end)
        opened.append((block.end, _is_open(block)))
        free.append(block.body)
    while opened:
        close(opened[-1][0])
        opened.pop()
        free.pop()
    return gaps


def _cut(lines: Sequence[str], start: int, end: int, found: list[Span], depth: int) -> None:
    """Runs that begin after a blank line at the shallowest indent; long ones are cut again, deeper."""
    indents = [_indent(lines[row]) for row in range(start, end)]
    shallowest = min((i for i in indents if i is not None), default=None)
    if shallowest is None:
        return
    first = last = -1
    blank = False
    for row, indent in enumerate(indents, start):
        if indent is None:
            blank = True
            continue
        fresh = indent <= shallowest and lines[row][indent] not in _CLOSERS
        if first < 0:
            first = row
        elif fresh and (blank or row - first >= RUN_LINES):
            _add(lines, first, last + 1, found, depth)
            first = row
        blank = False
        last = row
    _add(lines, first, last + 1, found, depth)


def _add(lines: Sequence[str], start: int, end: int, found: list[Span], depth: int) -> None:
    if all(set(line.strip()) <= _CLOSERS for line in lines[start:end]):
        return
    long = end - start > LONG_LINES and depth > 0
    found.append(Span(start, end, start + 1 if long else end, "statement"))
    if long:
        _cut(lines, start + 1, end - 1, found, depth - 1)


def _indent(line: str) -> int | None:
    bare = line.lstrip()
    return len(line) - len(bare) if bare else None

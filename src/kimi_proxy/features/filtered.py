"""swe-pruner's way of saying that lines were cut: one line `(filtered N lines)`, without numbers or ids."""

import re
from collections.abc import Sequence
from itertools import pairwise

from kimi_proxy.core.prune import Cut

REASON = "hors sujet selon swe-pruner"

_FILTERED = re.compile(r"\s*\(filtered (\d{1,9}) lines?\)\s*", re.ASCII)


def write(lines: Sequence[str], cuts: Sequence[Cut]) -> str:
    """`lines` without their cuts, each replaced by its marker."""
    out: list[str] = []
    after = 0
    for cut in cuts:
        out += lines[after : cut.start - 1]
        out.append(f"(filtered {cut.count} lines)")
        after = cut.end
    return "\n".join([*out, *lines[after:]])


def read(lines: Sequence[str], pruned: str) -> list[Cut] | None:
    """What was cut from `lines` to make `pruned`; None if it holds anything but their lines, in their order."""
    keep: list[int] = []
    after = 0
    expected: int | None = None  # where a marker says that the text goes on
    for line in pruned.split("\n"):
        marker = _FILTERED.fullmatch(line)
        if marker and not _is_line(lines, after, line):
            expected = after + int(marker[1])
            continue
        found = _find(lines, line, after, expected)
        if found is None:
            return None
        keep.append(found)
        after, expected = found + 1, None
    if expected is None and after == len(lines) - 1 and lines[after] == "":
        keep.append(after)  # only the newline at the end was dropped
    return _gaps(keep, len(lines))


def _is_line(lines: Sequence[str], at: int, line: str) -> bool:
    return at < len(lines) and lines[at].rstrip() == line.rstrip()


def _find(lines: Sequence[str], line: str, after: int, expected: int | None) -> int | None:
    if expected is not None and _is_line(lines, expected, line):
        return expected
    return next((at for at in range(after, len(lines)) if _is_line(lines, at, line)), None)


def _gaps(keep: Sequence[int], count: int) -> list[Cut]:
    edges = [-1, *keep, count]
    return [Cut(before + 2, after, REASON) for before, after in pairwise(edges) if after - before > 1]

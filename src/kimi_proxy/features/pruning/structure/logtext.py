"""Log lines without their dress: colours, timestamps and progress that overwrote itself."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

LINE_CHARS = 400

_ROOTS = ("error", "fail", "fatal", "panic", "exit", "summary")
_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]{0,200}\x07|\(B)")
# What may stand before the message. Only one space after it goes: indentation tells frames from what they belong to.
_STAMP = re.compile(
    r"""(?:
    \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[ ]?[+-]\d\d:?\d\d)?[ ]?
    | \[\d{4}-\d\d-\d\d[T ][^\]]{8,30}\][ ]?
    | \[?\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\]?[ ]
    )""",
    re.VERBOSE,
)


def bare(line: str) -> str:
    """`line` without colours and leading timestamp, cut at 400 characters."""
    line = line[:LINE_CHARS]
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    if "\r" in line:
        line = line.rstrip("\r").rsplit("\r", 1)[-1]
    if line[:1].isdigit() or line[:1] == "[":
        stamp = _STAMP.match(line)
        if stamp is not None:
            return line[stamp.end() :]
    return line


class Words:
    """Finds the rows that hold a word: a scan of the whole text per word, or per root that words share."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = [line.lower() for line in lines]
        self._text = "\n".join(self.lines)
        self._starts = list(accumulate((len(line) + 1 for line in self.lines), initial=0))
        self._by_root = {root: list(self._scan(root)) for root in _ROOTS}

    def rows(self, *words: str) -> set[int]:
        """Rows with any of `words`, which are lower case."""
        return {row for word in words for row in self._rows(word)}

    def _rows(self, word: str) -> Iterable[int]:
        root = next((root for root in _ROOTS if root in word), None)
        if root is None:
            return self._scan(word)
        rows = self._by_root[root]
        return rows if word == root else (row for row in rows if word in self.lines[row])

    def _scan(self, word: str) -> Iterator[int]:
        starts, text = self._starts, self._text
        row = 0
        at = text.find(word)
        while at >= 0:
            row = bisect_right(starts, at, row) - 1
            yield row
            at = text.find(word, starts[row + 1])


def spread(rows: Iterable[int], count: int) -> set[int]:
    """`rows` with the row before and the row after each."""
    return {near for row in rows for near in (row - 1, row, row + 1) if 0 <= near < count}

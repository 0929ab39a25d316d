"""Log lines without their dress: colours, timestamps and runners' prefixes."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

LINE_CHARS = 400

_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]{0,200}\x07|\(B)")
# What may stand before the message: a time, a runner's clock, a bracketed stage. Indentation after it counts.
_STAMP = re.compile(
    r"""(?:
    \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?[ ]?
    | \[\d{4}-\d\d-\d\d[T ][^\]]{8,30}\][ ]?
    | \[?\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\]?[ ]
    | \d{1,4}[.:]\d\d[ ](?=\S)
    )""",
    re.VERBOSE,
)


def bare(line: str) -> str:
    """`line` with colours and a leading timestamp removed, cut at 400 characters."""
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
    """Finds the rows that hold a word, in any case: one scan of the text per word."""

    def __init__(self, lines: Sequence[str]) -> None:
        lowered = [line[:LINE_CHARS].lower() for line in lines]
        self._text = "\n".join(lowered)
        self._starts = list(accumulate((len(line) + 1 for line in lowered), initial=0))

    def rows(self, words: Iterable[str]) -> set[int]:
        found: set[int] = set()
        for word in words:
            found.update(self._rows(word))
        return found

    def _rows(self, word: str) -> Iterable[int]:
        starts, text = self._starts, self._text
        at = text.find(word)
        row = 0
        while at >= 0:
            row = bisect_right(starts, at, row) - 1
            yield row
            at = text.find(word, starts[row + 1])

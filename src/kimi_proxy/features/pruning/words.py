"""Every word of a text in one flat column: where it stands, and which word it is."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kimi_proxy.features.pruning.columns import Floats, Rows
from kimi_proxy.features.pruning.terms import WORD

LINE_CHARS = 2000  # what stands beyond in a line is machine-made and cannot be judged by its words
CHECK_EVERY = 512

_WORD_OR_BREAK = re.compile(rf"{WORD.pattern}|\n")


@dataclass(frozen=True, slots=True)
class Words:
    """For each word its row, and its place in the vocabulary."""

    rows: Rows
    ids: Rows
    vocabulary: Sequence[str]
    line_count: int

    def per_line(self, weights: Floats) -> Floats:
        """What the words of each line weigh together; one weight for each word of the vocabulary."""
        sums: Floats = np.bincount(self.rows, weights[self.ids], self.line_count).astype(np.float64)
        return sums


def read(lines: Sequence[str], check: Callable[[], None]) -> Words:
    index = {"\n": 0}
    found: list[int] = []
    for start in range(0, len(lines), CHECK_EVERY):
        check()
        # One search through many lines takes a third of the time of many searches.
        text = "".join(_flat(line) + "\n" for line in lines[start : start + CHECK_EVERY])
        found += [index.setdefault(word, len(index)) for word in _WORD_OR_BREAK.findall(text)]
    ids = np.array(found, dtype=np.int64)
    is_word = ids > 0
    rows = np.cumsum(~is_word, dtype=np.int64)
    return Words(rows[is_word], ids[is_word] - 1, list(index)[1:], len(lines))


def _flat(line: str) -> str:
    """A record may be given as one line though it has several."""
    return line[:LINE_CHARS].replace("\n", " ")

"""Where the words of a goal stand in a text, counted once for every scale that scores them."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from kimi_proxy.features.pruning.columns import Floats, Rows
from kimi_proxy.features.pruning.terms import WORD, Goal, parts

LINE_CHARS = 2000  # what stands beyond in a line is machine-made and cannot be judged by its words
CHECK_EVERY = 512


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows are lines. `counts` has a column for each stem of the goal that the text knows."""

    counts: Floats
    lengths: Floats
    idf: Floats
    exact: Floats
    known: float  # the share of the goal's words that the text knows at all

    def over(self, starts: Rows, ends: Rows) -> "Spans":
        """The same counts summed over spans of lines, end exclusive."""
        return Spans(_sums(self.counts, starts, ends), _sums(self.lengths[:, None], starts, ends)[:, 0], self.idf)


@dataclass(frozen=True, slots=True)
class Spans:
    counts: Floats
    lengths: Floats
    idf: Floats

    def bm25(self, k1: float = 1.2, b: float = 0.75) -> Floats:
        if not self.counts.size:
            return np.zeros(len(self.lengths))
        mean = float(self.lengths.mean()) or 1.0
        norm = k1 * (1 - b + b * self.lengths / mean)[:, None]
        scores: Floats = (self.counts * (k1 + 1) / (self.counts + norm)) @ self._idf()
        return scores

    def coverage(self) -> Floats:
        """Which share of the goal's weight appears at all."""
        total = float(self.idf.sum())
        if not total:
            return np.zeros(len(self.lengths))
        shares: Floats = (self.counts > 0) @ self.idf / total
        return shares

    def _idf(self) -> Floats:
        """Rarity among these spans, not among single lines."""
        n, found = len(self.lengths), (self.counts > 0).sum(axis=0)
        weights: Floats = np.log(1 + (n - found + 0.5) / (found + 0.5))
        return weights


def find(lines: Sequence[str], goal: Goal, check: Callable[[], None]) -> Matches:
    """Count the goal's stems and exact strings in each line."""
    column = {stem: i for i, stem in enumerate(goal.stems)}
    hits: dict[str, tuple[int, ...]] = {}
    rows: list[int] = []
    columns: list[int] = []
    lengths = np.zeros(len(lines))
    for i, line in enumerate(lines):
        if i % CHECK_EVERY == 0:
            check()
        words = WORD.findall(line[:LINE_CHARS])
        lengths[i] = len(words)
        for word in words:
            found = hits.get(word)
            if found is None:
                found = hits[word] = tuple(column[p] for p in parts(word) if p in column)
            if found:
                rows += [i] * len(found)
                columns += found
    counts = np.zeros((len(lines), len(column)))
    np.add.at(counts, (rows, columns), 1.0)
    frequency = (counts > 0).sum(axis=0)
    known = np.flatnonzero(frequency)
    counts, frequency = counts[:, known], frequency[known]
    weights = np.array(list(goal.stems.values()))[known]
    idf = weights * np.log(1 + (len(lines) - frequency + 0.5) / (frequency + 0.5))
    return Matches(counts, lengths, idf, _exact(lines, goal.exact, check), len(known) / max(1, len(column)))


def _exact(lines: Sequence[str], wanted: Sequence[str], check: Callable[[], None]) -> Floats:
    """How much of what the goal names exactly stands in each line; the rarer, the more it says."""
    scores = np.zeros(len(lines))
    if not wanted or not lines:
        return scores
    text = "\n".join(lines)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    for string in wanted:
        check()
        found = {bisect_right(starts, at) - 1 for at in _positions(text, string)}
        for i in found:
            scores[i] += 1 / math.sqrt(len(found))
    return scores


def _positions(text: str, string: str) -> list[int]:
    found: list[int] = []
    at = text.find(string)
    while at >= 0:
        found.append(at)
        at = text.find(string, at + len(string))
    return found


def _sums(values: Floats, starts: Rows, ends: Rows) -> Floats:
    prefix = np.concatenate([np.zeros((1, values.shape[1])), values.cumsum(axis=0)])
    sums: Floats = prefix[ends] - prefix[starts]
    return sums

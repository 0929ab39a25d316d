"""Where the words of a goal stand in a text, counted once for every scale that scores them."""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from kimi_proxy.features.pruning.goal import STOP_WORDS, WORD, Goal, parts
from kimi_proxy.features.pruning.structure.blocks import Floats, Rows

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


def read_words(lines: Sequence[str], check: Callable[[], None]) -> Words:
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


ROOT_CHARS, LONG_ROOT_CHARS = 3, 6

Weights = dict[int, int]  # from a word of the vocabulary to how often it stands for a stem


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows are lines. `counts` has a column for each stem of the goal that the text knows."""

    counts: Floats
    lengths: Floats
    idf: Floats
    exact: Floats
    known: float  # the share of the goal's words that the text knows at all
    stems: Sequence[str]  # of the columns
    words: Words
    alike: Floats  # counts of words that share the goal's roots, the goal's own included; one column for each stem

    def kin(self) -> "Matches":
        """The same with words counted that only share a root with the goal's."""
        return replace(self, counts=self.alike)

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
    read = read_words(lines, check)
    stems = list(goal.stems)
    uses, alike = _uses(read.vocabulary, stems)
    known = sorted(uses)
    counts = _per_line(read, [uses[i] for i in known])
    frequency = (counts > 0).sum(axis=0)
    weights = np.array(list(goal.stems.values()))[known]
    idf = weights * np.log(1 + (len(lines) - frequency + 0.5) / (frequency + 0.5))
    return Matches(
        counts,
        np.bincount(read.rows, minlength=len(lines)).astype(np.float64),
        idf,
        _exact(lines, goal.exact, check),
        _known_share(goal, {stems[i] for i in known}),
        [stems[i] for i in known],
        read,
        _per_line(read, [alike[i] for i in sorted(alike)]),
    )


def _known_share(goal: Goal, known: Collection[str]) -> float:
    ideas = goal.ideas()
    return sum(any(stem in known for stem in idea) for idea in ideas) / max(1, len(ideas))


def _uses(vocabulary: Sequence[str], stems: Sequence[str]) -> tuple[dict[int, Weights], dict[int, Weights]]:
    """For each stem that the text knows, the words that stand for it: itself, and itself or a word with its root."""
    column = {stem: i for i, stem in enumerate(stems)}
    roots = _Roots(stems)
    uses: dict[int, Weights] = {}
    alike: dict[int, Weights] = {}
    for i, word in enumerate(vocabulary):
        own = Counter(column[part] for part in parts(word) if part in column)
        akin = Counter(k for part in parts(word) for k in roots[part])
        for k, times in own.items():
            uses.setdefault(k, {})[i] = times
        for k, times in (own | akin).items():
            alike.setdefault(k, {})[i] = times
    return uses, alike


class _Roots(dict[str, tuple[int, ...]]):
    """From a word to the stems that it shares a root with: one begins with the other, or both with six letters."""

    def __init__(self, stems: Sequence[str]) -> None:
        super().__init__()
        self._near: dict[str, list[tuple[int, str]]] = {}
        for i, stem in enumerate(stems):
            if len(stem) > ROOT_CHARS and not stem[0].isdigit():
                self._near.setdefault(stem[:ROOT_CHARS], []).append((i, stem))

    def __missing__(self, word: str) -> tuple[int, ...]:
        near = self._near.get(word[:ROOT_CHARS], ())
        found = tuple(i for i, stem in near if word not in STOP_WORDS and _is_alike(word, stem))
        self[word] = found
        return found


def _is_alike(word: str, stem: str) -> bool:
    return (
        stem.startswith(word)
        or (len(stem) > ROOT_CHARS and word.startswith(stem))
        or word[:LONG_ROOT_CHARS] == stem[:LONG_ROOT_CHARS]
    )


def _per_line(read: Words, uses: Sequence[Weights]) -> Floats:
    """From how often each word stands for each stem to how often each line does."""
    counts = np.zeros((read.line_count, len(uses)), order="F")
    for i, weights in enumerate(uses):
        of_word = np.zeros(len(read.vocabulary))
        of_word[list(weights)] = list(weights.values())
        counts[:, i] = read.per_line(of_word)
    return counts


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

"""The terms of a goal, and their positions in a text, counted once for every scale that scores them."""

import math
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import resources
from itertools import accumulate, chain, pairwise

import numpy as np
from numpy.typing import NDArray

from kimi_proxy.features.pruning.structure.blocks import Floats, Rows

WORD = re.compile(r"[^\W\d]\w*|\d+")
# Lines of minified code are cut here: words further to the right say little about a line anyway.
MAX_WORD_CHARS = 80
GOAL_MAX_CHARS = 4000
TRANSLATED = 0.9  # weight of a word that translates one of the goal's French words
OTHERWISE = 0.7  # weight of a synonym, and of a word made of two words of the goal
PHRASES = " phrases"  # no stem has a space

_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")
_QUOTED = re.compile(r"`([^`\n]{2,80})`|\"([^\"\n]{2,80})\"|'([^'\n]{2,80})'|«([^«»\n]{2,90})»")
# Each match begins at the start of a word: trying every letter of a long word would take quadratic time.
_PATHLIKE = re.compile(r"(?<![\w.~-])[\w.~-]*+(?:/[\w.-]++)+|(?<!\w)\w++(?:\.\w++)+")
# A file, by its folders or its suffix: it is a place, not a subject. `read/write` and `app.cache` are words.
_FILE = re.compile(
    r"(?<![\w/.~@+-])(?:(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]+)*/?|[\w.@+-]+(?:/[\w.@+-]+){2,}/?"
    r"|(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\."
    r"(?:pyi?|[cm]?[jt]sx?|go|rs|java|kts?|scala|swift|cc?|cpp|cxx|hh?|hpp|cs|rb|php|sh|bash|zsh|lua|pl|sql|s?css|less|vue"
    r"|svelte|html?|xml|json[lc5]?|toml|ya?ml|ini|cfg|conf|lock|txt|md|mdx|rst|adoc|log|csv|proto|tf|gradle|cmake))"
    r"(?![\w/-])"
)
_ENGLISH = """a an and are as at be been being but by can could did do does doing done for from had has have
how i if in into is it its itself may me might must my no not of off on once only or other our out over own
please same should show so some such tell than that the their them then there these they this those through to
too under until up us very was we were what when where which while who whom why will with would you your also
just now more most any all each about after again before between both during few further here need want find
explain look see give get make add let know use used using via per it's don't doesn't"""
_FRENCH = """le la les un une des du de d l au aux et ou où que qui quoi dont ce cet cette ces son sa ses leur leurs
mon ma mes ton ta tes notre nos votre vos je tu il elle on nous vous ils elles se y en ne pas plus moins est sont
était être avoir a ont fait faire par pour sur sous dans avec sans entre vers chez comme si quand comment pourquoi
quel quelle quels quelles tout tous toute toutes aussi donc mais car ni très bien peut doit faut afin lors trouver
montrer garder expliquer"""


def fold(text: str) -> str:
    """Return `text` in lower case, without accents: `Échec` and `echec` are one word."""
    return _strip_accents(text.lower())


def _strip_accents(text: str) -> str:
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


STOP_WORDS = frozenset(fold(w) for w in (_ENGLISH + " " + _FRENCH).split())
_FRENCH_SMALL = frozenset(fold(w) for w in _FRENCH.split()) - {"a", "on", "son", "ton", "sur", "fait", "car", "bien"}
_ENGLISH_SMALL = frozenset(_ENGLISH.split()) - {"a", "on", "an", "or", "me", "it", "don't"}


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return a light English stem of a folded word: plurals, -ed and -ing fall off."""
    if len(word) > 5 and word.endswith("ies"):
        return word[:-3] + "y"
    for suffix in ("ing", "ed", "es", "s"):
        if word.endswith(suffix) and len(word) - len(suffix) >= 4 and not word.endswith("ss"):
            return word[: -len(suffix)]
    return word


def parts(word: str) -> tuple[str, ...]:
    """Return the stems of a word; an identifier of several parts also has a stem of its own."""
    return _parts(word[:MAX_WORD_CHARS])  # size of its cache


@lru_cache(maxsize=65_536)
def _parts(word: str) -> tuple[str, ...]:
    word = _strip_accents(word)
    pieces = [fold(p) for p in _PART.findall(word)]
    stems = tuple(stem(p) for p in pieces if len(p) > 1)
    return (fold(word).strip("_"), *stems) if len(pieces) > 1 else stems


@dataclass(frozen=True, slots=True)
class Goal:
    """The terms of a goal: weighted stems, and the strings it quotes exactly."""

    stems: dict[str, float]
    exact: tuple[str, ...]
    # From a French stem to the English ones with the same meaning.
    translated: dict[str, tuple[str, ...]] = field(default_factory=dict)
    quoted: tuple[str, ...] = ()  # those of `exact` in quotes
    # From a stem or phrase to the stems that may replace it in a text.
    otherwise: dict[str, tuple[str, ...]] = field(default_factory=dict)
    compounds: dict[str, tuple[str, str]] = field(default_factory=dict)  # two of its words as one, with their stems

    def concepts(self) -> list[tuple[str, ...]]:
        """Return the stems, those that mean the same put together."""
        english = {stem for stems in self.translated.values() for stem in stems}
        return [
            (stem, *self.translated.get(stem, ()), *self.otherwise.get(stem, ()))
            for stem in self.stems
            if stem not in english
        ]


def read_goal(goal: str) -> Goal:
    return _read_goal(goal[:GOAL_MAX_CHARS])  # size of its cache


@lru_cache(maxsize=64)
def _read_goal(goal: str) -> Goal:
    stems: dict[str, float] = {}
    exact: list[str] = []
    translated: dict[str, tuple[str, ...]] = {}
    is_english = goal_is_english(goal)
    for word in WORD.findall(_FILE.sub(" ", goal)):
        pieces = parts(word)
        whole = fold(word).strip("_")
        if len(pieces) > 1 or (any(c.isupper() for c in word[1:]) and len(word) > 2):
            exact.append(word)
        for piece in pieces:
            if piece not in STOP_WORDS and whole not in STOP_WORDS:
                stems[piece] = 1.0
        if not is_english and len(pieces) == 1 and pieces[0] in stems:
            translated[pieces[0]] = tuple(stem(other) for other in english(whole))
    for others in translated.values():
        for other in others:
            stems.setdefault(other, TRANSLATED)
    words = [fold(word) for word in WORD.findall(_FILE.sub(" ", goal))]
    quoted = [next((g for g in groups if g), "").strip() for groups in _QUOTED.findall(goal)]
    quoted = [words for words in quoted if len(words) > 2 and any(c.isalnum() for c in words)]
    exact += quoted
    exact += [p for p in _PATHLIKE.findall(goal) if len(p) > 3]
    return Goal(
        stems,
        tuple(dict.fromkeys(exact))[:40],
        translated,
        tuple(dict.fromkeys(quoted))[:40],
        _otherwise(words, stems),
        _compounds(words, stems),
    )


@lru_cache(maxsize=64)
def goal_is_english(goal: str) -> bool:
    """Return whether a goal reads as English rather than French, by its small words."""
    small = [fold(w) for w in WORD.findall(goal)]
    french = sum(w in _FRENCH_SMALL for w in small)
    english = sum(w in _ENGLISH_SMALL for w in small)
    return english > french or french == 0


def forget_words() -> None:
    """Forget all goals and words that were read: the texts that they are from have been deleted."""
    for cached in (stem, _parts, _read_goal, goal_is_english, english):
        cached.cache_clear()


PHRASE_WORDS = 4
PIECE_CHARS = 3  # of a word that makes a compound with the next


def _otherwise(words: Sequence[str], stems: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the words of the trade that mean the same as a goal's words, and as its phrases."""
    synonyms = _synonyms()
    phrases = (
        " ".join(words[at : at + count]) for count in range(2, PHRASE_WORDS + 1) for at in range(len(words) - count + 1)
    )
    found = {stem: synonyms.get(stem, ()) for stem in stems}
    found[PHRASES] = tuple(dict.fromkeys(other for phrase in phrases for other in synonyms.get(phrase, ())))
    return {word: others for word, others in found.items() if others}


def _compounds(words: Sequence[str], stems: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return two neighbouring words of a goal written as one, with their own stems; one of them may be a small word."""
    known = frozenset(stems)
    pairs = ((a, b) for a, b in pairwise(words) if min(len(a), len(b)) >= PIECE_CHARS)
    return {stem(a + b): (stem(a), stem(b)) for a, b in pairs if stem(a) in known or stem(b) in known}


@cache
def _synonyms() -> dict[str, tuple[str, ...]]:
    """Return for words and phrases of the trade the others of their line in synonyms.txt, as stems.

    A phrase is written with hyphens there, and is looked for in goals alone.
    """
    text = (resources.files(__package__) / "synonyms.txt").read_text("utf-8")
    found: dict[str, tuple[str, ...]] = {}
    for line in text.split("\n"):
        group = line.split()
        single = [stem(word) for word in group if "-" not in word]
        for word in group:
            key = word.replace("-", " ") if "-" in word else stem(word)
            found[key] = (*found.get(key, ()), *(other for other in single if other != key))
    return found


_ACCENTS = str.maketrans("àâäçéèêëîïôöùûü", "aaaceeeeiioouuu")
_ENDINGS = (
    *("issements", "issement", "ements", "ement", "ations", "ation", "antes", "ante", "ants", "ant", "aient", "ait"),
    *("ees", "ent", "ee", "es", "er", "ez", "ir", "is", "it", "re", "e", "s", "x"),
)
FRENCH_ROOT_CHARS = 4


@lru_cache(maxsize=4096)
def english(word: str) -> tuple[str, ...]:
    """Return the English translations of a French word without accents, if there are any."""
    by_word, by_root = _dictionary()
    singular = word[:-1] if word.endswith(("s", "x")) else word
    return by_word.get(word) or by_word.get(singular) or by_root.get(_root(word)) or ()


@cache
def _dictionary() -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Return the English translations of French words, by word and by root.

    In french.txt, `|` and the end of a line separate entries: a French word, then its translations. Endings are removed
    before a lookup: `supprimé`, `supprimer` and `supprimées` are one.
    """
    text = (resources.files(__package__) / "french.txt").read_text("utf-8")
    entries = [entry.split() for entry in text.strip().replace("\n", "|").split("|")]
    by_word = {french.translate(_ACCENTS): tuple(english) for french, *english in entries}
    by_root: dict[str, tuple[str, ...]] = {}
    for french, words in by_word.items():
        by_root.setdefault(_root(french), words)
    return by_word, by_root


def _root(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= FRENCH_ROOT_CHARS:
            return word[: -len(ending)]
    return word


LINE_CHARS = 2000  # the rest of a longer line is machine-made, and its words say little
CHECK_EVERY = 512


@dataclass(frozen=True, slots=True)
class TextWords:
    """For each word of a text its row, and its place in the vocabulary."""

    rows: Rows
    ids: Rows
    vocabulary: Sequence[str]
    parts: Sequence[tuple[str, ...]]  # of each word of the vocabulary
    line_count: int

    def per_line(self, weights: Floats) -> Floats:
        """Return the sum of the weights of each line's words; one weight for each word of the vocabulary."""
        sums: Floats = np.bincount(self.rows, weights[self.ids], self.line_count).astype(np.float64)
        return sums


# Of ASCII: what is not part of a word is a space, and a number that a word follows at once ends where it begins.
_SPACED = str.maketrans({chr(code): " " for code in range(128) if not re.match(r"[\w\n]", chr(code))})
_NUMBER_BEFORE_WORD = re.compile(r"[0-9](?<!\w.)[0-9]*+(?=[A-Za-z_])")


def _words_of(lines: Sequence[str]) -> list[list[str]]:
    """Return the words of each line. Where lines are ASCII, in a quarter of the time that a pattern takes."""
    # A record may be given as one line though it has several.
    heads = [line[:LINE_CHARS].replace("\n", " ") for line in lines]
    others = [at for at, head in enumerate(heads) if not head.isascii()]
    words_of_others = [WORD.findall(heads[at]) for at in others]
    for at in others:
        heads[at] = ""
    spaced = _NUMBER_BEFORE_WORD.sub(lambda number: f"{number[0]} ", "\n".join(heads).translate(_SPACED))
    found = [line.split() for line in spaced.split("\n")]
    for at, words in zip(others, words_of_others, strict=True):
        found[at] = words
    return found


def read_words(lines: Sequence[str], check: Callable[[], None]) -> TextWords:
    index: dict[str, int] = {}
    found: list[NDArray[np.int64]] = []
    counts: list[int] = []
    for start in range(0, len(lines), CHECK_EVERY):
        check()
        by_line = _words_of(lines[start : start + CHECK_EVERY])
        words = list(chain.from_iterable(by_line))
        for word in dict.fromkeys(words):
            index.setdefault(word, len(index))
        found.append(np.fromiter(map(index.__getitem__, words), dtype=np.int64, count=len(words)))
        counts += map(len, by_line)
    ids = np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
    rows = np.repeat(np.arange(len(lines)), np.array(counts, dtype=np.int64))
    vocabulary = list(index)
    return TextWords(rows, ids, vocabulary, [parts(word) for word in vocabulary], len(lines))


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows are lines. `counts` has a column for each stem of the goal that the text knows."""

    counts: Floats
    lengths: Floats
    idf: Floats
    exact: Floats
    known: float  # the share of the goal's words that the text knows at all
    stems: Sequence[str]  # of the columns
    words: TextWords
    uses: "Uses"
    wanted: Sequence[str]  # stems, whether the text knows them or not

    def by_roots(self) -> "Matches":
        """Return the same with words counted that only share a root with the goal's."""
        akin = _akin(self.words, self.wanted, self.uses)
        return replace(self, counts=_per_line(self.words, [akin[i] for i in sorted(akin)]))

    def around(self, reach: int) -> "Spans":
        """Return the counts of each line with as many lines before and after it."""
        here = np.arange(len(self.lengths))
        return self.over(np.maximum(0, here - reach), np.minimum(len(here), here + reach + 1))

    def over(self, starts: Rows, ends: Rows) -> "Spans":
        """Return the same counts summed over spans of lines, end exclusive."""
        return Spans(_sums(self.counts, starts, ends), _sums(self.lengths[:, None], starts, ends)[:, 0], self.idf)


def _sums(values: Floats, starts: Rows, ends: Rows) -> Floats:
    prefix = np.concatenate([np.zeros((1, values.shape[1])), values.cumsum(axis=0)])
    sums: Floats = prefix[ends] - prefix[starts]
    return sums


@dataclass(frozen=True, slots=True)
class Spans:
    """The goal's words in spans of lines."""

    counts: Floats
    lengths: Floats
    idf: Floats

    def bm25(self, k1: float = 1.2, b: float = 0.75) -> Floats:
        if not self.counts.size:
            return np.zeros(len(self.lengths))
        mean = float(self.lengths.mean()) or 1.0
        norm = k1 * (1 - b + b * self.lengths / mean)[:, None]
        # Rarity among these spans, not among single lines.
        rarity = _rarity((self.counts > 0).sum(axis=0), len(self.lengths))
        scores: Floats = (self.counts * (k1 + 1) / (self.counts + norm)) @ rarity
        return scores

    def coverage(self) -> Floats:
        """Return which share of the goal's weight appears at all."""
        total = float(self.idf.sum())
        if not total:
            return np.zeros(len(self.lengths))
        shares: Floats = (self.counts > 0) @ self.idf / total
        return shares


def _rarity(found: Rows, count: int) -> Floats:
    """Return the inverse document frequency of a word found in that many of `count`."""
    idf: Floats = np.log(1 + (count - found + 0.5) / (found + 0.5))
    return idf


def find(
    lines: Sequence[str],
    goal: Goal,
    check: Callable[[], None],
    words: TextWords | None = None,
    *,
    is_terse: bool = False,
) -> Matches:
    """Count the goal's stems and exact strings in each line; `words` are those of the text, where they were read.

    Words that mean the same count in a text that has none of the goal's, and in a terse one, as a log is, for each that
    it lacks. In code and pages, which use many words, they would only draw lines that speak of something else.
    """
    read = words or read_words(lines, check)
    weighed = _with_others(read, goal, is_terse)
    stems = list(weighed)
    uses = _uses(read, stems)
    known = sorted(uses)
    counts = _per_line(read, [uses[i] for i in known])
    weights = np.array(list(weighed.values()))[known]
    columns = [stems[i] for i in known]
    concepts = [not set(columns).isdisjoint(concept) for concept in goal.concepts()]
    return Matches(
        counts,
        np.bincount(read.rows, minlength=len(lines)).astype(np.float64),
        weights * _rarity((counts > 0).sum(axis=0), len(lines)),
        _exact(lines, goal.exact, check),
        sum(concepts) / max(1, len(concepts)),
        columns,
        read,
        uses,
        stems,
    )


def _with_others(words: TextWords, goal: Goal, is_terse: bool) -> dict[str, float]:
    """Return the goal's stems with their weights, and replacements for those that this text lacks."""
    asked = {one for others in goal.otherwise.values() for one in others} | goal.stems.keys() | goal.compounds.keys()
    has = {part for pieces in words.parts for part in pieces if part in asked}
    added = {one for one, pair in goal.compounds.items() if one in has and not has.issuperset(pair)}
    if is_terse or has.isdisjoint(goal.stems):
        added |= {one for word, others in goal.otherwise.items() if word not in has for one in others if one in has}
    return goal.stems | dict.fromkeys(sorted(added - goal.stems.keys()), OTHERWISE)


Uses = dict[int, dict[int, int]]  # from a stem to the words of the vocabulary that have it, and how often


def _uses(words: TextWords, stems: Sequence[str]) -> Uses:
    """Return for each stem in the text the words that have it."""
    column = {stem: i for i, stem in enumerate(stems)}
    uses: Uses = {}
    for i, pieces in enumerate(words.parts):
        for part in pieces:
            if part in column:
                _add(uses, column[part], i)
    return uses


def _akin(words: TextWords, stems: Sequence[str], uses: Uses) -> Uses:
    """Return the same with the words that only share a root with a stem."""
    roots = _SharedRoots(stems)
    akin: Uses = {}
    for i, pieces in enumerate(words.parts):
        for part in pieces:
            for k in roots[part]:
                _add(akin, k, i)
    for k, own in uses.items():
        near = akin.setdefault(k, {})
        for i, times in own.items():
            near[i] = max(times, near.get(i, 0))
    return akin


def _add(uses: Uses, stem: int, word: int) -> None:
    of_stem = uses.setdefault(stem, {})
    of_stem[word] = of_stem.get(word, 0) + 1


ROOT_CHARS, LONG_ROOT_CHARS = 3, 6


class _SharedRoots(dict[str, tuple[int, ...]]):
    """From a word to the stems that share its root: one is the start of the other, or they share six letters."""

    def __init__(self, stems: Sequence[str]) -> None:
        super().__init__()
        self._near: dict[str, list[tuple[int, str]]] = {}
        for i, stem in enumerate(stems):
            if len(stem) > ROOT_CHARS and not stem[0].isdigit():
                self._near.setdefault(stem[:ROOT_CHARS], []).append((i, stem))

    def __missing__(self, word: str) -> tuple[int, ...]:
        near = self._near.get(word[:ROOT_CHARS], ())
        found = tuple(i for i, stem in near if word not in STOP_WORDS and _share_root(word, stem))
        self[word] = found
        return found


def _share_root(word: str, stem: str) -> bool:
    return (
        stem.startswith(word)
        or (len(stem) > ROOT_CHARS and word.startswith(stem))
        or word[:LONG_ROOT_CHARS] == stem[:LONG_ROOT_CHARS]
    )


def _per_line(read: TextWords, uses: Sequence[dict[int, int]]) -> Floats:
    """Count each stem in each line, from the counts of the words that have it."""
    counts = np.zeros((read.line_count, len(uses)), order="F")
    for i, weights in enumerate(uses):
        of_word = np.zeros(len(read.vocabulary))
        of_word[list(weights)] = list(weights.values())
        counts[:, i] = read.per_line(of_word)
    return counts


def _exact(lines: Sequence[str], wanted: Sequence[str], check: Callable[[], None]) -> Floats:
    """Return how much of the goal's exact strings each line contains; rare ones weigh more."""
    scores = np.zeros(len(lines))
    if not wanted or not lines:
        return scores
    for found in rows_with(lines, wanted, check):
        for i in found:
            scores[i] += 1 / math.sqrt(len(found))
    return scores


def rows_with(lines: Sequence[str], strings: Sequence[str], check: Callable[[], None]) -> Iterator[set[int]]:
    """Yield for each of `strings` the rows of the lines that hold it."""
    text = "\n".join(lines)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    for string in strings:
        check()
        found: set[int] = set()
        at = text.find(string)
        while at >= 0:
            found.add(bisect_right(starts, at) - 1)
            at = text.find(string, at + len(string))
        yield found

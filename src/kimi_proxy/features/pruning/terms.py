"""Words of a text as a reader of code sees them: identifiers, their parts, numbers, accents folded."""

import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache

from kimi_proxy.features.pruning import french

WORD = re.compile(r"[^\W\d]\w*|\d+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")
_QUOTED = re.compile(r"`([^`\n]{2,80})`|\"([^\"\n]{2,80})\"|'([^'\n]{2,80})'|«\s*([^»\n]{2,80}?)\s*»")
_PATHLIKE = re.compile(r"[\w.~-]*(?:/[\w.-]+)+|\w+(?:\.\w+)+")

# Lines of minified code are cut here: what stands beyond cannot be judged by its words anyway.
MAX_WORD_CHARS = 80
TRANSLATED = 0.9  # what a word counts that the goal has in French

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
    """Lower case, without accents: `Échec` and `echec` are one word."""
    return _unaccented(text.lower())


def _unaccented(text: str) -> str:
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


STOP_WORDS = frozenset(fold(w) for w in (_ENGLISH + " " + _FRENCH).split())


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """A light English stem of a folded word: plurals, -ed and -ing fall off."""
    if len(word) > 5 and word.endswith("ies"):
        return word[:-3] + "y"
    for suffix in ("ing", "ed", "es", "s"):
        if word.endswith(suffix) and len(word) - len(suffix) >= 4 and not word.endswith("ss"):
            return word[: -len(suffix)]
    return word


@lru_cache(maxsize=65_536)
def parts(word: str) -> tuple[str, ...]:
    """The stems that a word of the text stands for; an identifier of several parts stands for itself too."""
    word = _unaccented(word[:MAX_WORD_CHARS])
    pieces = [fold(p) for p in _PART.findall(word)]
    stems = tuple(stem(p) for p in pieces if len(p) > 1)
    if len(pieces) > 1:
        return (fold(word).strip("_"), *stems)
    return stems


@dataclass(frozen=True, slots=True)
class Goal:
    """What a goal asks for: weighted stems, and the strings it quotes exactly."""

    stems: dict[str, float]
    exact: tuple[str, ...]
    # From a French stem to the English ones that stand for the same.
    translated: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def ideas(self) -> list[tuple[str, ...]]:
        """The stems, those that say the same put together."""
        english = {stem for stems in self.translated.values() for stem in stems}
        return [(stem, *self.translated.get(stem, ())) for stem in self.stems if stem not in english]


@lru_cache(maxsize=64)
def read_goal(goal: str) -> Goal:
    goal = goal[:4000]
    stems: dict[str, float] = {}
    exact: list[str] = []
    translated: dict[str, tuple[str, ...]] = {}
    is_english = goal_is_english(goal)
    for word in WORD.findall(goal):
        pieces = parts(word)
        whole = fold(word).strip("_")
        if len(pieces) > 1 or (any(c.isupper() for c in word[1:]) and len(word) > 2):
            exact.append(word)
        for piece in pieces:
            if piece in STOP_WORDS or whole in STOP_WORDS:
                continue
            stems[piece] = 1.0
        if not is_english and len(pieces) == 1 and pieces[0] in stems:
            translated[pieces[0]] = tuple(stem(other) for other in french.english(whole))
    for others in translated.values():
        for other in others:
            stems.setdefault(other, TRANSLATED)
    for groups in _QUOTED.findall(goal):
        quoted = next((g for g in groups if g), "").strip()
        if 2 < len(quoted) <= 80 and any(c.isalnum() for c in quoted):
            exact.append(quoted)
    exact += [p for p in _PATHLIKE.findall(goal) if len(p) > 3]
    return Goal(stems, tuple(dict.fromkeys(exact))[:40], translated)


@lru_cache(maxsize=64)
def goal_is_english(goal: str) -> bool:
    """Whether a goal reads as English rather than French, by its small words."""
    small = [fold(w) for w in WORD.findall(goal)]
    french = sum(w in _FRENCH_SMALL for w in small)
    english = sum(w in _ENGLISH_SMALL for w in small)
    return english > french or french == 0


_FRENCH_SMALL = frozenset(fold(w) for w in _FRENCH.split()) - {"a", "on", "son", "ton", "sur", "fait", "car", "bien"}
_ENGLISH_SMALL = frozenset(_ENGLISH.split()) - {"a", "on", "an", "or", "me", "it", "don't"}

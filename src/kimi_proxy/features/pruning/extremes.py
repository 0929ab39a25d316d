"""What a question for an extreme is answered by: the highest and the lowest number of each column.

`the slowest request`, `la nuit la plus froide`: the words of such a question seldom stand in the line that answers it.
A column is a place in lines of the same form, such as the fifth word of `ls -l` or the number in `[62/10]`.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, TypeAlias

from kimi_proxy.features.pruning.goal import CHECK_EVERY, WORD, parts, read_goal

Way: TypeAlias = Literal["highest", "lowest", "both"]

MOST_COLUMNS = 8
MIN_VALUES = 6
LINE_CHARS = 400

_NO_SUPERLATIVES = (
    "test|latest|rest|request|manifest|interest|suggest|nest|west|forest|digest|harvest|contest|quest|guest|invest"
    "|ingest|honest|modest|arrest|protest|chest|attest|tempest|unittest|pytest|doctest|nextest|pretest|behest|crest"
    "|earnest|zest|lest|bequest|conquest|inquest|midwest|northwest|southwest|everest|vest|pest|jest|retest"
)
_SUPERLATIVE = re.compile(
    rf"\b(?:most|least|fewest|worst|best|maximum|minimum|max|min|top|peak|(?!(?:{_NO_SUPERLATIVES})s?\b)[a-z]{{2,12}}est"
    r"|(?:le|la|les|du|des|au|aux|l[ea]s?) plus|(?:le|la|les) moins|pires?|meilleure?s?|maximale?|minimale?)\b"
)
_LOWEST = re.compile(
    r"\b(?:least|fewest|smallest|lowest|shortest|minimum|min|coldest|cheapest|lightest|thinnest|youngest|tiniest"
    r"|minimale?|moins|plus (?:petite?s?|basse?s?|froide?s?|courte?s?|faibles?|l[eé]g[eè]re?s?|jeunes?|baisse))\b"
)
_HIGHEST = re.compile(
    r"\b(?:most|largest|biggest|highest|longest|greatest|maximum|max|hottest|warmest|slowest|heaviest|oldest|top|peak"
    r"|tallest|widest|deepest|plus (?:grande?s?|gros(?:se)?s?|haute?s?|chaude?s?|longue?s?|lente?s?|lourde?s?))\b"
)
# Of what is lost, falls or is negative the most is the lowest number.
_LOSS = re.compile(
    r"\b(?:los[et]\w*|loss\w*|f[ae]ll\w*|drop\w*|declin\w*|decreas\w*|perd\w*|perte\w*|baisse\w*|chute\w*)\b"
)


def asked_extreme(goal: str) -> Way | None:
    """Return which end of a column a question asks for; None if it asks for none."""
    low = goal.lower()
    if _SUPERLATIVE.search(low) is None:
        return None
    is_low = _LOWEST.search(low) is not None
    is_high = _HIGHEST.search(low) is not None
    if is_low == is_high or _LOSS.search(low) is not None:
        return "both"
    return "lowest" if is_low else "highest"


@dataclass(slots=True)
class NumberColumn:
    """The numbers at one place of lines or records of one form, each with where it stands."""

    named: int = 0  # how many of the question's words name it
    places: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, place: int, value: float) -> None:
        self.places.append(place)
        self.values.append(value)

    @property
    def is_counter(self) -> bool:
        """Return whether the numbers only count up, as ids, times and line numbers do."""
        return all(a <= b for a, b in zip(self.values, self.values[1:], strict=False))


def extreme_places(columns: Iterable[NumberColumn], way: Way) -> list[int]:
    """Return where the extremes are: of the columns that the question names, then of those with most numbers."""
    usable = [
        column
        for column in columns
        if len(column.values) >= MIN_VALUES and len(set(column.values)) > 2 and not column.is_counter
    ]
    usable.sort(key=lambda column: (-column.named, -len(column.values)))
    named = [column for column in usable if column.named]
    others = [column for column in usable if not column.named]
    found: list[int] = []
    for column in (*named[:MOST_COLUMNS], *others[:MOST_COLUMNS]):
        if way != "lowest":
            found.append(column.places[column.values.index(max(column.values))])
        if way != "highest":
            found.append(column.places[column.values.index(min(column.values))])
    return list(dict.fromkeys(found))


_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?)[ ]?([a-zA-Zµ%]{1,3}\b)?"
)
_UNITS: Mapping[str, float] = {
    "k": 1e3,
    "kb": 1e3,
    "kib": 1024,
    "m": 1e6,
    "mb": 1e6,
    "mib": 1024**2,
    "g": 1e9,
    "gb": 1e9,
    "gib": 1024**3,
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "t": 1e12,
    "tb": 1e12,
}
_BEFORE = re.compile(r"([A-Za-z_][\w-]*)[^A-Za-z]{0,12}\Z")
_AFTER = re.compile(r"\W{0,2}([A-Za-z]\w{0,15})")
MAX_NUMBERS = 16


def extreme_rows(lines: Sequence[str], goal: str, check: Callable[[], None]) -> list[int]:
    """Return the rows with the extreme of each column of numbers, if the goal asks for an extreme."""
    way = asked_extreme(goal)
    if way is None:
        return []
    asked = read_goal(goal).stems
    columns: dict[tuple[object, ...], NumberColumn] = defaultdict(NumberColumn)
    for row, line in enumerate(lines):
        if row % CHECK_EVERY == 0:
            check()
        line = line[:LINE_CHARS]
        numbers = list(islice(_NUMBER.finditer(line), MAX_NUMBERS))
        if not numbers:
            continue
        words = {part for word in WORD.findall(line) for part in parts(word)}
        about = tuple(sorted(words & asked.keys()))
        ends = [len(line[: found.start()].split()) for found in numbers]
        total = len(line.split())
        for found, index in zip(numbers, ends, strict=True):
            value = _value(found)
            before = _BEFORE.search(line, max(0, found.start() - 40), found.start())
            sides = line[found.start() - 1 : found.start()], line[found.end() : found.end() + 1]
            inside = bool(sides[0].strip())  # the word began before the number
            after = _AFTER.match(line, found.end(1))
            keys = (
                ("then", after[1].lower() if after else ""),
                ("said", before[1].lower() if before else "", *sides),
                ("left", index, inside),
                ("right", total - index, inside),
            )
            for key in keys:
                columns[key].add(row, value)
                if about:
                    columns[*key, about].add(row, value)
                    columns[*key, about].named = len(about)
    return extreme_places(columns.values(), way)


def _value(found: "re.Match[str]") -> float:
    number = float(found[1].replace(",", ""))
    if found[0].startswith("-"):
        number = -number
    return number * _UNITS.get((found[2] or "").lower(), 1.0)

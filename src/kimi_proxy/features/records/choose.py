"""Choosing the records that stay within a budget: those that match the goal, those that differ, then a few others.

First each record is weighed: how well it matches the goal, and how it differs from similar records.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from string import ascii_letters, digits

import numpy as np

from kimi_proxy.features.failures import FAILURE_MARKS, failure_level
from kimi_proxy.features.pruning.extremes import NumberColumn, asked_extreme, extreme_places
from kimi_proxy.features.pruning.goal import WORD, find, parts, read_goal
from kimi_proxy.features.pruning.structure import logs
from kimi_proxy.features.pruning.structure.blocks import Floats
from kimi_proxy.features.records import tree
from kimi_proxy.features.records.tree import IN_STRING, PIECE, Node, Unit

ENOUGH = 8  # values needed to determine the usual ones
RARE = 0.01  # of the values of a column: so few share one
KINDS = 50  # a column with more different values than that, or than a quarter of them, names things: none is odd
FAR = 3.0  # quartile ranges from the middle half
STORY_CHARS = 20
ALARMING = 0.05  # of a column: if there are more alarms than this, they are the usual values
VALUE_CHARS = 600
SHAPE_CHARS = 80
MAX_CELLS, ROWS_ALIKE = 60, 0.9
MINORITY = 0.25  # of the flags of one record
MAX_ODD = 4.0
FAILURE_WEIGHT = 2.0
SAMPLES, REPEATED = 2, 0.4  # failures of one shape with full weight, and the weight of further ones
REPORT_WEIGHT, CONTEXT_WEIGHT = 2.0, 0.7

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?%?")
_LETTERS = re.compile(r"[^\W\d_]+(?:[ _-][^\W\d_]+)*")
_DIGITS = re.compile(r"\d+")
_LETTER = re.compile(r"[^\W\d_]")
# The same for ASCII, in a third of the time.
_AS_A_OR_0 = str.maketrans(dict.fromkeys(ascii_letters, "a") | dict.fromkeys(digits, "0"))
_MANY_A = re.compile(r"a+(?:[ _-]a+)*")
_MANY_0 = re.compile(r"00+")
WORD_WITHIN_CHARS = 40
_NOTHING = frozenset({"", '""', "null", "0", "false", "none", "[]", "{}", "no", "-", "ok", "0.0"})
_FLAGS = frozenset({"true", "false"})
_PLAIN = frozenset({"true", "false", "null"})

Column = list[Node]


def weigh(root: Node, check: Callable[[], None], failures: list[int] | None = None, goal: str = "") -> list[int]:
    """Set for each node how much it differs from those at the same place of other records.

    `failures` receives the starts of nodes that report one. Return the starts of those with the extremes of their
    columns, if the goal asks for an extreme.
    """
    failed = [] if failures is None else failures
    columns, groups = _sorted_by_place(root, check, failed)
    for column in columns:
        check()
        if len(column) < ENOUGH:
            _weigh_alone(column, failed)
            continue
        for node, weight in _odd_in(column, failed):
            node.odd = min(MAX_ODD, node.odd + weight)
    for group in groups:
        _weigh_keys(group)
    way = asked_extreme(goal)
    extremes = [] if way is None else extreme_places(_number_columns(columns, goal), way)
    return [*extremes, *_rare_where_asked(columns, goal)]


def _number_columns(columns: Sequence[Column], goal: str) -> Iterator[NumberColumn]:
    asked = read_goal(goal).stems
    for column in columns:
        named = sum(1 for part in parts(column[0].key) if part in asked) if column else 0
        numbers = [(node.start, number) for node in column if (number := _number(node.value)) is not None]
        if numbers:
            yield NumberColumn(named, [start for start, _ in numbers], [number for _, number in numbers])
        if len(column) >= ENOUGH and len(numbers) < 0.5 * len(column):
            yield NumberColumn(named, [node.start for node in column], [_items(node.value) for node in column])


def _rare_where_asked(columns: Sequence[Column], goal: str) -> Iterator[int]:
    """Yield the starts of rare values in the columns that a goal names, by their names or by their usual value."""
    asked = read_goal(goal).stems
    for column in columns if asked else ():
        if len(column) < ENOUGH or column[0].key == PIECE:
            continue
        seen = Counter(node.value for node in column)
        usual, count = seen.most_common(1)[0]
        if count < USUAL * len(column) or len(seen) > KINDS:
            continue
        if any(part in asked for part in (*parts(column[0].key), *_stems(usual))):
            yield from (node.start for node in column if seen[node.value] <= RARE_WHERE_ASKED * len(column))


USUAL, RARE_WHERE_ASKED = 0.5, 0.1


def _stems(value: str) -> Iterator[str]:
    return (part for word in WORD.findall(value[:SHAPE_CHARS]) for part in parts(word))


def _items(value: str) -> float:
    """Return how many values a list in a cell has."""
    return float(value.count(",") + value.count(";"))


def weigh_log(lines: Column, check: Callable[[], None], failures: list[int]) -> None:
    """Set for each line of a log whether it is part of a report of a failure."""
    if len(lines) < ENOUGH or lines[0].key == PIECE:
        return
    protected = logs.outline([line.value.removesuffix("\\n") for line in lines], check).protected
    for line, why in zip(lines, protected, strict=True):
        if why in FAILURE_MARKS:
            line.odd = min(MAX_ODD, line.odd + REPORT_WEIGHT)
            failures.append(line.start)
        elif why:
            line.odd = min(MAX_ODD, line.odd + CONTEXT_WEIGHT)


def _sorted_by_place(
    root: Node, check: Callable[[], None], failures: list[int]
) -> tuple[list[Column], list[list[Node]]]:
    """Return the leaves, and the nodes with named children, grouped by the names above them.

    The names and numbers of records are ignored, so that nodes at the same place of each record are in one group.
    """
    columns: list[Column] = []
    groups: list[list[Node]] = []
    rest = [[root]]
    while rest:
        check()
        alike = rest.pop()
        inner: list[Node] = []
        leaves: Column = []
        columns.append(leaves)
        for node in alike:
            if node.children and node.style is not IN_STRING:
                inner.append(node)
                continue
            leaves.append(node)
            if node.style is IN_STRING:
                columns.append(node.children)
                weigh_log(node.children, check, failures)
        # Decided for all nodes at a place, because one of them may have a single child.
        several = [node for node in inner if len(node.children) > 1]
        are_lists = 2 * sum(node.is_list for node in several) > len(several)
        by_column = are_lists and _are_rows(several)
        below: dict[str, list[Node]] = defaultdict(list)
        for node in inner:
            if not are_lists:
                for child in node.children:
                    below[child.key].append(child)
                continue
            for at, child in enumerate(node.children):
                is_named = child.key.startswith("@")
                below[child.key if is_named else str(at) if by_column else ""].append(child)
        if not are_lists:
            groups.append(inner)
        elif len(inner) >= ENOUGH:
            for node, weight in _outliers([(node, float(len(node.children))) for node in inner]):
                node.odd = min(MAX_ODD, node.odd + weight)
        rest += below.values()
    return columns, groups


def _are_rows(lists: Sequence[Node]) -> bool:
    """Return whether lists are the rows of a table: as many cells in nearly all of them, and more than one of them."""
    if len(lists) < ENOUGH:
        return False
    (usual, count), *_ = Counter(len(node.children) for node in lists).most_common(1)
    return usual <= MAX_CELLS and count >= ROWS_ALIKE * len(lists)


def _weigh_alone(column: Column, failures: list[int]) -> None:
    """Judge values that have too few likes by their own words: `OOMKilled: true`, `ExitCode: 137`."""
    for node in column:
        value = node.value.strip('"')
        if value.lower() in _NOTHING or len(value) > VALUE_CHARS:
            continue
        name = " ".join(parts(node.key)[1:] or parts(node.key))
        level = failure_level(f"{name} {'' if value.lower() in _FLAGS else value}")
        node.odd = min(MAX_ODD, node.odd + level * FAILURE_WEIGHT)
        if level:
            failures.append(node.start)


def _weigh_keys(group: Sequence[Node]) -> None:
    """Weigh fields that few records have, and records that lack a common field."""
    for node in group if len(group) < ENOUGH else ():
        _weigh_flags(node)
    if len(group) < ENOUGH:
        return
    few = max(1, int(RARE * len(group)))
    keys_of = [tuple([child.key for child in node.children]) for node in group]  # nearly all of them are the same
    seen: Counter[str] = Counter()
    for keys, count in Counter(keys_of).items():
        seen.update(dict.fromkeys(keys, count))
    usual = {key for key, count in seen.items() if len(group) - few <= count < len(group)}
    rare = {key for key, count in seen.items() if count <= few}
    for node, keys in zip(group, keys_of, strict=True) if usual or rare else ():
        if usual and not usual <= set(keys):
            node.odd = min(MAX_ODD, node.odd + 1.0)
        for child in node.children if rare else ():
            if child.key in rare:
                child.odd = min(MAX_ODD, child.odd + 1.0)


def _weigh_flags(node: Node) -> None:
    flags = [child for child in node.children if child.value in _FLAGS]
    for value in _FLAGS:
        some = [flag for flag in flags if flag.value == value]
        if len(flags) >= 4 and len(some) <= MINORITY * len(flags):
            for flag in some:
                flag.odd = min(MAX_ODD, flag.odd + 1.0)


def _odd_in(column: Column, failures: list[int]) -> Iterator[tuple[Node, float]]:
    few = max(1, int(RARE * len(column)))
    if column[0].key == PIECE:
        yield from _alarming(column, max(few, int(ALARMING * len(column))), failures)
        return
    yield from _rare_kinds(column, few)
    numbers = [(node, number) for node in column if (number := _number(node.value)) is not None]
    if len(numbers) >= ENOUGH and len(numbers) >= 0.5 * len(column):
        yield from _outliers(numbers)
    else:
        yield from _odd_in_length(column)
    yield from _alarming(column, max(few, int(ALARMING * len(column))), failures)


def _number(value: str) -> float | None:
    begins = value[:1]
    if not (begins == "-" or begins.isdigit()) or not _NUMBER.fullmatch(value):
        return None
    number = float(value.rstrip("%").replace(",", ""))
    return number if abs(number) < 1e300 else None


def _rare_kinds(column: Column, few: int) -> Iterator[tuple[Node, float]]:
    """Yield values that few others equal, or, if all differ, those in another format."""
    most = min(KINDS, len(column) // 4)
    values = [node.value for node in column]
    if len(set(values[: 2 * most])) > most or len(set(values)) > most:
        values = _shapes(values)
    seen = Counter(values)
    if len(seen) <= max(most, 2):
        yield from ((node, 1.0) for node, value in zip(column, values, strict=True) if seen[value] <= few)


def _shapes(values: Sequence[str]) -> list[str]:
    """Return how each value is written. All at once, which takes half the time."""
    joined = "\n".join([value[:SHAPE_CHARS] for value in values])
    if joined.isascii():
        shaped = _MANY_0.sub("0", _MANY_A.sub("a", joined.translate(_AS_A_OR_0))).split("\n")
    else:
        shaped = _DIGITS.sub("0", _LETTERS.sub("a", joined)).split("\n")
    if len(shaped) != len(values):  # some have several lines
        return [_shape(value) for value in values]
    return [value if value in _PLAIN else shape for value, shape in zip(values, shaped, strict=True)]


def _shape(value: str) -> str:
    """Return how a value is written: `10.4.2.1` is `0.0.0.0`, and any words are `a`."""
    if value in _PLAIN:
        return value
    return _DIGITS.sub("0", _LETTERS.sub("a", value[:SHAPE_CHARS]))


def _outliers(numbers: Sequence[tuple[Node, float]]) -> Iterator[tuple[Node, float]]:
    column = np.array([number for _, number in numbers])
    low, high = np.quantile(column, (0.25, 0.75))
    reach = FAR * max(float(high - low), 0.05 * abs(float(high)), 1e-9)
    odd = (column < low - reach) | (column > high + reach)
    negative = column < 0
    if negative.sum() <= max(1, RARE * len(column)):
        odd |= negative
    if odd.sum() > ALARMING * len(column) + 1:
        return
    yield from ((numbers[int(row)][0], 1.0) for row in np.flatnonzero(odd))


def _odd_in_length(column: Column) -> Iterator[tuple[Node, float]]:
    """Yield empty values where others are not, and long ones where others are short."""
    lengths = np.array([len(node.value) for node in column])
    low, high = np.quantile(lengths, (0.25, 0.75))
    odd = lengths > high + max(FAR * float(high - low), float(high), STORY_CHARS)
    empty = np.array([node.value in ("", '""') for node in column])
    if empty.sum() <= max(1, RARE * len(column)):
        odd |= empty
    yield from ((column[int(row)], 1.0) for row in np.flatnonzero(odd))


def _alarming(column: Column, few: int, failures: list[int]) -> Iterator[tuple[Node, float]]:
    """Yield the values that report a failure; similar ones after the first two count less, or not at all."""
    distinct = {node.value for node in column}
    levels = {value: failure_level(value[:VALUE_CHARS]) for value in distinct if _has_word(value)}
    found = [node for node in column if levels.get(node.value)]
    if len(found) > 0.5 * len(column):  # it is how things are called there
        return
    failures += [node.start for node in found]
    seen: Counter[str] = Counter()
    for node in found:
        shape = _shape(node.value)
        seen[shape] += 1
        if seen[shape] <= SAMPLES:
            yield node, FAILURE_WEIGHT * levels[node.value]
        elif len(found) <= few:
            yield node, REPEATED * FAILURE_WEIGHT * levels[node.value]


def _has_word(value: str) -> bool:
    return value not in _FLAGS and _LETTER.search(value, 0, WORD_WITHIN_CHARS) is not None


# The goal.

RELEVANT = 0.6  # of the best match
BY_ROOTS = 0.7  # weight of a word that only shares a root with the goal's
INHERITED = 0.55  # of its record's match, for a part of the record that does not match on its own
WEAK = 0.3
SATURATED = 1.5  # so much oddness is worth two thirds of the most that it can be
SHORT_CHARS = 300


@dataclass(frozen=True, slots=True)
class UnitWeights:
    """For each unit its match of the goal and its oddity, both from 0 to 1."""

    goal: Floats
    odd: Floats


def weights(text: str, found: Sequence[Unit], goal: str, check: Callable[[], None]) -> UnitWeights:
    odd: Floats = 1 - np.exp(-np.array([_odd_inside(unit.node) for unit in found]) / SATURATED)
    matched = _matches(text, found, goal, check)
    records = [record_of(unit) for unit in found]
    is_short = np.array([unit.node.size <= SHORT_CHARS and not unit.node.children for unit in found], dtype=bool)
    # The short values of an odd record identify it.
    inherited = np.where(is_short, _inherit(records, odd), 0.0)
    return UnitWeights(np.maximum(matched, _inherit(records, matched)), np.maximum(odd, inherited))


def _odd_inside(node: Node) -> float:
    total = 0.0
    rest = [node]
    while rest:
        inside = rest.pop()
        total += inside.odd
        rest += inside.children
    return total


def _matches(text: str, found: Sequence[Unit], goal: str, check: Callable[[], None]) -> Floats:
    asked = read_goal(goal)
    if not asked.stems and not asked.exact:
        return np.zeros(len(found))
    names: dict[int, str] = {}
    texts = [
        " ".join((*(_named(node, names) for node in unit.around), text[unit.node.start : unit.node.end]))
        for unit in found
    ]
    words = find(texts, asked, check)
    scores = words.around(0).bm25()
    if words.known < 1:  # some of its words do not occur literally
        scores = np.maximum(scores, BY_ROOTS * words.by_roots().around(0).bm25())
    scores = scores + 2 * words.exact
    # If the goal's words are everywhere, they carry no information: compare a match with that of a rare word.
    rare = float(np.log(1 + len(found) / 1.5))
    own = scores / max(float(scores.max(initial=0.0)), rare)
    matched: Floats = np.where(own >= RELEVANT * own.max(initial=0.0), own, WEAK * own)
    return matched


def _named(node: Node, known: dict[int, str]) -> str:
    """Return the name of a node with the values of its attributes, such as the file that a report is about."""
    name = known.get(id(node))
    if name is None:
        values = (child.value for child in node.children if child.key.startswith("@"))
        name = known[id(node)] = " ".join((node.key, *values))[:NAME_CHARS]
    return name


NAME_CHARS = 300


def _inherit(records: Sequence[Node | None], own: Floats) -> Floats:
    """Return what each part of a record shares of the best of its parts."""
    best: dict[int, float] = defaultdict(float)
    for record, score in zip(records, own, strict=True):
        if record is not None:
            best[id(record)] = max(best[id(record)], float(score))
    shared = (0.0 if record is None else INHERITED * best[id(record)] for record in records)
    return np.fromiter(shared, dtype=np.float64, count=len(records))


def record_of(unit: Unit) -> Node | None:
    """Return the record that a unit is a part of; None if it is one itself, or part of none."""
    for around, node in zip(reversed(unit.around[:-1]), reversed(unit.around[1:]), strict=True):
        if around.is_list and len(around.children) >= 3:
            return node
    return None


MAX_UNIT_CHARS = 1500
UNITS_WITHIN = 20  # units that a budget should have room for
ODD_WEIGHT = 0.8  # relative to a match of the goal
EXTREME_WEIGHT = 0.9
FAILED_WEIGHT = 1.0  # if few records report one: so many, or such a share
FEW_FAILURES, FAILED_SHARE = 5, 0.1
WORTH_KEEPING = 0.2
EXAMPLES_SHARE = 0.12  # of the budget: ordinary records, as examples of the others
HEAD_SHARE, TAIL_SHARE = 0.6, 0.3  # of the budget, where there is nothing to choose by
HEAD_EXAMPLES, TAIL_EXAMPLES = 2, 1
TRIES = 6
NAMES = frozenset(
    (
        *("name", "id", "key", "title", "path", "uid", "address", "host", "file", "filename"),
        *("email", "subject", "sku", "slug", "@name", "@id"),
    )
)


@dataclass(frozen=True, slots=True)
class JudgedUnit:
    """`text[start:end]`, kept or cut as a whole, with its match of the goal and its oddity."""

    start: int
    end: int
    goal: float
    odd: float
    failed: bool


class Ranking:
    """The units of a text in the order in which they stay. Made once, it picks for any budget."""

    def __init__(
        self,
        text: str,
        root: tree.Node,
        goal: str,
        budget_chars: int,
        check: Callable[[], None],
    ) -> None:
        failures: list[int] = []
        extremes = weigh(root, check, failures, goal)
        self._failures = sorted(failures)
        self._text = text
        self._root = root
        self._check = check
        self._found = tree.units(root, min(max(budget_chars // UNITS_WITHIN, tree.UNIT_CHARS), MAX_UNIT_CHARS))
        self._weighed = weights(text, self._found, goal, check)
        scores = self._weighed.goal + ODD_WEIGHT * self._weighed.odd
        scores += EXTREME_WEIGHT * self._holding([*extremes, *_quoted_places(text, goal)])
        if len(failures) <= max(FEW_FAILURES, FAILED_SHARE * len(root.children)):
            scores += FAILED_WEIGHT * self._holding(failures)
        self._order = _Order(self._found, scores)

    def _holding(self, starts: Sequence[int]) -> Floats:
        """Return 1 for each unit with one of these nodes in it, else 0."""
        places = sorted(starts)
        found = (tree.holds_any(places, unit.node) for unit in self._found)
        return np.fromiter(found, dtype=np.float64, count=len(self._found))

    @property
    def has_choice(self) -> bool:
        """Return whether any of them is worth more than the others."""
        return next(self._order.worth_keeping(), None) is not None

    def judge(self) -> Iterator["JudgedUnit"]:
        """Yield the units in their order, each with its scores."""
        for unit, goal, odd in zip(self._found, self._weighed.goal, self._weighed.odd, strict=True):
            failed = tree.holds_any(self._failures, unit.node)
            yield JudgedUnit(unit.node.start, unit.node.end, float(goal), float(odd), failed)

    def pick(self, budget_chars: int, floor_chars: int = 0) -> list[tree.RecordGap] | None:
        """Return what is left out so that the rest, with its markers, has `budget_chars` at most; None if it cannot.

        With `floor_chars` ordinary records stay until about as much is left.
        """
        room = float(budget_chars)
        for _ in range(TRIES):
            self._check()
            choice = self._choose(room, min(room, floor_chars))
            left_out = tree.gaps(self._root, choice.is_whole, choice.is_open, failures=self._failures)
            size = len(self._text) - sum(gap.end - gap.start for gap in left_out) + tree.MARKER_CHARS * len(left_out)
            if size <= budget_chars:
                return left_out
            room *= 0.95 * budget_chars / size
        return None

    def _choose(self, room: float, floor: float) -> "_Choice":
        order = self._order
        choice = _Choice(self._found)
        choice.take(order.worth_keeping(), room)
        if choice.kept:
            choice.take(order.examples(), min(room, choice.used + EXAMPLES_SHARE * room))
        else:
            choice.take(order.ends(HEAD_SHARE * room), HEAD_SHARE * room)
            choice.take(order.ends(TAIL_SHARE * room, from_end=True), (HEAD_SHARE + TAIL_SHARE) * room)
        if choice.used < floor:
            choice.take(order.ordinary(), floor)
        return choice


def _quoted_places(text: str, goal: str) -> Iterator[int]:
    """Yield where the strings that a goal quotes stand, except those that stand in too many places."""
    for string in read_goal(goal).quoted:
        places: list[int] = []
        at = text.find(string)
        while at >= 0 and len(places) <= QUOTED_PLACES:
            places.append(at)
            at = text.find(string, at + len(string))
        if len(places) <= QUOTED_PLACES:
            yield from places


QUOTED_PLACES = 20


class _Order:
    """Units in the order in which they are taken."""

    def __init__(self, found: Sequence[tree.Unit], scores: "np.typing.NDArray[np.float64]") -> None:
        self._found = found
        self._scores = scores
        self._by_score = [int(at) for at in np.argsort(-scores, kind="stable")]

    def worth_keeping(self) -> Iterator[int]:
        return (at for at in self._by_score if self._scores[at] >= WORTH_KEEPING)

    def ordinary(self) -> Iterator[int]:
        """Yield the others: those that match a little, then those that fewest nodes are around."""
        others = [at for at in self._by_score if self._scores[at] < WORTH_KEEPING]
        return iter(sorted(others, key=lambda at: (-round(float(self._scores[at]), 1), len(self._found[at].around))))

    def examples(self) -> Iterator[int]:
        """Yield the first records and the last."""
        count = len(self._found)
        yield from range(min(HEAD_EXAMPLES, count))
        yield from range(max(0, count - TAIL_EXAMPLES), count)

    def ends(self, chars: float, from_end: bool = False) -> Iterator[int]:
        places = range(len(self._found))
        for at in reversed(places) if from_end else places:
            chars -= self._found[at].node.size + 2
            if chars < 0:
                return
            yield at


class _Choice:
    """The chosen units, and their approximate cost including their surroundings."""

    def __init__(self, found: Sequence[tree.Unit]) -> None:
        self._found = found
        self._open: set[int] = set()
        self.kept: set[int] = set()  # positions of units
        self._nodes: set[int] = set()
        self._labels = _labels(found)
        self.used = 0.0
        root = found[0].around[0] if found and found[0].around else None
        if root is not None:
            self._add_open(root)

    def is_whole(self, node: tree.Node) -> bool:
        return id(node) in self._nodes

    def is_open(self, node: tree.Node) -> bool:
        return id(node) in self._open

    def take(self, places: Iterator[int], room: float) -> None:
        """Keep each of these units that still fits; with a part of a record also its label."""
        for at in places:
            if at in self.kept:
                continue
            record = record_of(self._found[at])
            label = self._labels.get(id(record)) if record is not None else None
            wanted = [at] if label is None or label in self.kept else [label, at]
            cost = sum(self._cost(place) for place in wanted)
            if self.used + cost <= room:
                for place in wanted:
                    self._add(place)

    def _cost(self, at: int) -> float:
        unit = self._found[at]
        opened = sum(_own_chars(node) + tree.MARKER_CHARS for node in unit.around if id(node) not in self._open)
        neighbours = self._is_sibling(at, at - 1) + self._is_sibling(at, at + 1)
        return unit.node.size + 2 + opened + tree.MARKER_CHARS * (1 - neighbours)

    def _is_sibling(self, at: int, other: int) -> bool:
        if other not in self.kept:
            return False
        return self._found[other].around[-1] is self._found[at].around[-1]

    def _add(self, at: int) -> None:
        if at in self.kept:
            return
        self.used += self._cost(at)
        self.kept.add(at)
        self._nodes.add(id(self._found[at].node))
        for node in self._found[at].around:
            self._add_open(node)

    def _add_open(self, node: tree.Node) -> None:
        if id(node) not in self._open:
            self._open.add(id(node))
            if not self.used:
                self.used = _own_chars(node) + tree.MARKER_CHARS


def _own_chars(node: tree.Node) -> int:
    """Return the characters of a node that stay when it is looked into: those around its children, and pinned ones."""
    stays = (child for child in node.children if child.is_pinned and not child.style and not child.key.startswith("@"))
    pinned = sum(child.size + 1 for child in stays)
    return node.children[0].start - node.start + node.end - node.children[-1].end + pinned


def _labels(found: Sequence[tree.Unit]) -> dict[int, int]:
    """Return for each record of several units the unit that identifies it."""
    labels: dict[int, int] = {}
    for at, unit in enumerate(found):
        record = record_of(unit)
        if record is not None and id(record) not in labels and _is_name(unit.node):
            labels[id(record)] = at
    return labels


def _is_name(node: tree.Node) -> bool:
    if not node.children:
        return node.key.lower() in NAMES and len(node.value) <= tree.UNIT_CHARS
    return any(inside.key.lower() in NAMES for inside in tree.descend(node) if not inside.children)

"""Choosing the records that stay within a budget: those that match the goal, those that differ, then a few others."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kimi_proxy.features.records import tree
from kimi_proxy.features.records.weigh import record_of, weigh, weigh_log, weights

MAX_UNIT_CHARS = 1500
UNITS_WITHIN = 20  # units that a budget should have room for
ODD_WEIGHT = 0.8  # relative to a match of the goal
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
        by_oddness: bool = True,
        is_by_lines: bool = False,
    ) -> None:
        self.is_by_lines = is_by_lines  # the text is not made of records
        failures: list[int] = []
        if by_oddness:
            weigh(root, check, failures)
            if is_by_lines:
                weigh_log(root.children, check, failures)
        self._failures = sorted(failures)
        self._text, self._root, self._check = text, root, check
        self._found = tree.units(root, min(max(budget_chars // UNITS_WITHIN, tree.UNIT_CHARS), MAX_UNIT_CHARS))
        self._weighed = weights(text, self._found, goal, check)
        self._order = _Order(self._found, self._weighed.goal + ODD_WEIGHT * self._weighed.odd)

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
        order, choice = self._order, _Choice(self._found)
        choice.take(order.worth_keeping(), room)
        if choice.kept:
            choice.take(order.examples(), min(room, choice.used + EXAMPLES_SHARE * room))
        else:
            choice.take(order.ends(HEAD_SHARE * room), HEAD_SHARE * room)
            choice.take(order.ends(TAIL_SHARE * room, from_end=True), (HEAD_SHARE + TAIL_SHARE) * room)
        if choice.used < floor:
            choice.take(order.ordinary(from_ends=self.is_by_lines), floor)
        return choice


class _Order:
    """Units in the order in which they are taken."""

    def __init__(self, found: Sequence[tree.Unit], scores: "np.typing.NDArray[np.float64]") -> None:
        self._found = found
        self._scores = scores
        self._by_score = [int(at) for at in np.argsort(-scores, kind="stable")]

    def worth_keeping(self) -> Iterator[int]:
        return (at for at in self._by_score if self._scores[at] >= WORTH_KEEPING)

    def ordinary(self, from_ends: bool) -> Iterator[int]:
        """Yield the others: those that match a little, then those that fewest nodes are around.

        Of lines the first and the last come before those between them, two of the first for one of the last.
        """
        others = [at for at in self._by_score if self._scores[at] < WORTH_KEEPING]
        last = len(self._found) - 1

        def place(at: int) -> int:
            return min(at, 2 * (last - at)) if from_ends else len(self._found[at].around)

        return iter(sorted(others, key=lambda at: (-round(float(self._scores[at]), 1), place(at))))

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
        neighbours = self._is_beside(at, at - 1) + self._is_beside(at, at + 1)
        return unit.node.size + 2 + opened + tree.MARKER_CHARS * (1 - neighbours)

    def _is_beside(self, at: int, other: int) -> bool:
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

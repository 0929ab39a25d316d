"""The value of each record of a text: how well it matches the goal, and how it differs from similar records."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from string import ascii_letters, digits

import numpy as np

from kimi_proxy.features.failures import FAILURE_MARKS, failure_level
from kimi_proxy.features.pruning.goal import find, parts, read_goal
from kimi_proxy.features.pruning.structure import logs
from kimi_proxy.features.pruning.structure.blocks import Floats
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
_LETTERS, _DIGITS = re.compile(r"[^\W\d_]+(?:[ _-][^\W\d_]+)*"), re.compile(r"\d+")
_LETTER = re.compile(r"[^\W\d_]")
# The same for ASCII, in a third of the time.
_AS_A_OR_0 = str.maketrans(dict.fromkeys(ascii_letters, "a") | dict.fromkeys(digits, "0"))
_MANY_A, _MANY_0 = re.compile(r"a+(?:[ _-]a+)*"), re.compile(r"00+")
WORD_WITHIN_CHARS = 40
_NOTHING = frozenset({"", '""', "null", "0", "false", "none", "[]", "{}", "no", "-", "ok", "0.0"})
_FLAGS = frozenset({"true", "false"})
_PLAIN = frozenset({"true", "false", "null"})

Column = list[Node]


def weigh(root: Node, check: Callable[[], None], failures: list[int] | None = None) -> None:
    """Set for each node how odd it is among those at the same place of other records.

    `failures` gets where nodes begin that report one.
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
    """Return the leaves, and the nodes with named children, put together by the names above them.

    The names of records and their numbers do not count, so that what stands at the same place of each comes together.
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
            for node, weight in _far_away([(node, float(len(node.children))) for node in inner]):
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
        yield from _far_away(numbers)
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


def _far_away(numbers: Sequence[tuple[Node, float]]) -> Iterator[tuple[Node, float]]:
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
    total, rest = 0.0, [node]
    while rest:
        inside = rest.pop()
        total += inside.odd
        rest += inside.children
    return total


def _matches(text: str, found: Sequence[Unit], goal: str, check: Callable[[], None]) -> Floats:
    asked = read_goal(goal)
    if not asked.stems and not asked.exact:
        return np.zeros(len(found))
    texts = [" ".join((*(node.key for node in unit.around), text[unit.node.start : unit.node.end])) for unit in found]
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

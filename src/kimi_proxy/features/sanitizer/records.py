"""Which of many records are worth reading: those that differ from the rest, and those that the goal speaks of."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeGuard

import numpy as np

from kimi_proxy.core.types import JsonValue
from kimi_proxy.features.pruning import matches
from kimi_proxy.features.pruning.columns import Floats
from kimi_proxy.features.pruning.terms import read_goal
from kimi_proxy.features.pruning.trouble import alarm_of

MAX_FIELDS = 200  # of one record
MAX_DEPTH = 4
CHECK_EVERY = 512
TEXT_CHARS = 600

RARE = 0.01  # of the records: so few share a value, or lack a field
KINDS = 50  # a field with more different values than that, or than a quarter of them, names things: none is odd
ENOUGH = 8  # values to tell what is usual
STORY_CHARS = 20
FAR = 3.0  # quartile ranges from the middle half
RELEVANT = 0.6  # of the best match

Fields = Mapping[str, JsonValue]


def oddness(records: Sequence[JsonValue], check: Callable[[], None]) -> Floats:
    """For each record how much in it is unlike the others: values, fields, sizes, words of failure."""
    odd = np.zeros(len(records))
    columns: dict[str, list[tuple[int, JsonValue]]] = defaultdict(list)
    for row, record in enumerate(records):
        if row % CHECK_EVERY == 0:
            check()
        for path, value in _fields(record):
            columns[path].append((row, value))
    for values in columns.values():
        check()
        for row, weight in _odd_in_column(values, len(records)):
            odd[row] += weight
    return odd


def relevance(texts: Sequence[str], goal: str, check: Callable[[], None]) -> Floats:
    """For each record how much it speaks of the goal, 0 where less than the best of them by far."""
    found = matches.find(texts, read_goal(goal), check)
    here = np.arange(len(texts))
    scores = found.over(here, here + 1).bm25()
    best = float(scores.max(initial=0.0))
    return np.where(scores >= RELEVANT * best, scores, 0.0) if best > 0 else np.zeros(len(texts))


def _fields(value: JsonValue, path: str = "", depth: int = 0) -> Iterator[tuple[str, JsonValue]]:
    """The scalars of a record, each with the way to it; a list tells how long it is."""
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        for count, (key, inside) in enumerate(value.items()):
            if count < MAX_FIELDS:
                yield from _fields(inside, f"{path}.{key}", depth + 1)
    elif isinstance(value, str):
        yield path, value
    elif isinstance(value, Sequence | Mapping):
        yield f"{path}[]", len(value)
    else:
        yield path, value


def _odd_in_column(values: Sequence[tuple[int, JsonValue]], count: int) -> Iterator[tuple[int, float]]:
    few = max(1, int(RARE * count))
    if len(values) <= few:  # hardly anybody has this field
        yield from ((row, 1.0) for row, _ in values)
        return
    if len(values) >= count - few and len(values) < count:  # nearly everybody has it
        without = set(range(count)) - {row for row, _ in values}
        yield from ((row, 1.0) for row in without)
    yield from _rare_kinds(values, few, count)
    yield from _far_away([(row, float(v)) for row, v in values if _is_number(v)])
    yield from _odd_in_length([(row, len(v)) for row, v in values if isinstance(v, str)])
    yield from _alarming(values, max(few, count // 20))


def _rare_kinds(values: Sequence[tuple[int, JsonValue]], few: int, count: int) -> Iterator[tuple[int, float]]:
    kinds = [repr(value) for _, value in values]  # `1`, `1.0`, `'1'` and `True` are four
    if len(set(kinds)) > min(KINDS, count // 4):
        kinds = [type(value).__name__ for _, value in values]
    seen = Counter(kinds)
    yield from ((row, 1.0) for (row, _), kind in zip(values, kinds, strict=True) if seen[kind] <= few)


def _is_number(value: JsonValue) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _far_away(numbers: Sequence[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    if len(numbers) < ENOUGH:
        return
    column = np.array([number for _, number in numbers])
    low, high = np.quantile(column, (0.25, 0.75))
    reach = FAR * max(float(high - low), 0.05 * abs(float(high)), 1e-9)
    odd = (column < low - reach) | (column > high + reach)
    below = column < 0
    if below.sum() <= RARE * len(column):
        odd |= below
    yield from ((numbers[int(row)][0], 1.0) for row in np.flatnonzero(odd))


def _odd_in_length(lengths: Sequence[tuple[int, int]]) -> Iterator[tuple[int, float]]:
    """Nothing where others say something, or a story where others say a word."""
    if len(lengths) < ENOUGH:
        return
    column = np.array([length for _, length in lengths])
    low, high = np.quantile(column, (0.25, 0.75))
    odd = column > high + max(FAR * float(high - low), float(high), STORY_CHARS)
    empty = column == 0
    if empty.sum() <= RARE * len(column):
        odd |= empty
    yield from ((lengths[int(row)][0], 1.0) for row in np.flatnonzero(odd))


def _alarming(values: Sequence[tuple[int, JsonValue]], few: int) -> Iterator[tuple[int, float]]:
    alarmed = [row for row, value in values if isinstance(value, str) and alarm_of(value[:TEXT_CHARS]) == 1.0]
    if len(alarmed) <= few:
        yield from ((row, 1.0) for row in alarmed)

"""Which of many JSON records are worth reading: those that differ from the rest, and those that match the goal."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from kimi_proxy.core import json
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.failures import has_failure
from kimi_proxy.features.pruning.goal import find, read_goal
from kimi_proxy.features.pruning.select import gaps
from kimi_proxy.features.pruning.structure.blocks import Floats

MAX_FIELDS = 200  # of one record
MAX_DEPTH = 4
CHECK_EVERY = 512
TEXT_CHARS = 600

RARE = 0.01  # of the records: so few share a value, or lack a field
KINDS = 50  # a field with more different values than that, or than a quarter of them, names things: none is odd
ENOUGH = 8  # values to know what is usual
STORY_CHARS = 20
FAR = 3.0  # quartile ranges from the middle half
RELEVANT = 0.6  # of the best match

_NUMBERS = (int, float)
_SCALARS = (str, *_NUMBERS)


def oddness(records: Sequence[JsonValue], check: Callable[[], None]) -> Floats:
    """Return for each record how much in it is unlike the others: values, fields, sizes, words of failure."""
    odd = np.zeros(len(records))
    columns: dict[str, list[tuple[int, JsonValue]]] = defaultdict(list)
    for row, record in enumerate(records):
        if row % CHECK_EVERY == 0:
            check()
        _add_fields(columns, row, record)
    for values in columns.values():
        check()
        for row, weight in _odd_in_column(values, len(records)):
            odd[row] += weight
    return odd


def relevance(texts: Sequence[str], goal: str, check: Callable[[], None]) -> Floats:
    """Return for each record how well it matches the goal, 0 where far less than the best of them."""
    scores = find(texts, read_goal(goal), check).around(0).bm25()
    best = float(scores.max(initial=0.0))
    return np.where(scores >= RELEVANT * best, scores, 0.0) if best > 0 else np.zeros(len(texts))


def _add_fields(
    columns: dict[str, list[tuple[int, JsonValue]]], row: int, value: JsonValue, path: str = "", depth: int = 0
) -> None:
    """Add the scalars of a record, each to the column of its path; of a list, its length."""
    if value is None or isinstance(value, _SCALARS):
        columns[path].append((row, value))
    elif isinstance(value, dict) and depth < MAX_DEPTH:
        for key, inside in islice(value.items(), MAX_FIELDS):
            _add_fields(columns, row, inside, f"{path}.{key}", depth + 1)
    else:
        columns[f"{path}[]"].append((row, len(value)))


def _odd_in_column(values: Sequence[tuple[int, JsonValue]], count: int) -> Iterator[tuple[int, float]]:
    few = max(1, int(RARE * count))
    if len(values) <= few:  # hardly any record has this field
        yield from ((row, 1.0) for row, _ in values)
        return
    if len(values) >= count - few and len(values) < count:  # nearly all have it
        without = set(range(count)) - {row for row, _ in values}
        yield from ((row, 1.0) for row in without)
    yield from _rare_kinds(values, few, count)
    yield from _far_away([(row, float(v)) for row, v in values if isinstance(v, _NUMBERS) and _is_measure(v)])
    yield from _odd_in_length([(row, len(v)) for row, v in values if isinstance(v, str)])
    yield from _alarming(values, max(few, count // 20))


def _rare_kinds(values: Sequence[tuple[int, JsonValue]], few: int, count: int) -> Iterator[tuple[int, float]]:
    most = min(KINDS, count // 4)
    # `1`, `1.0`, `'1'` and `True` are four. Where the first values are too many kinds, the rest is not looked at.
    kinds = [repr(value) for _, value in values[: 2 * most]]
    if len(set(kinds)) <= most:
        kinds += [repr(value) for _, value in values[2 * most :]]
    if len(set(kinds)) > most:
        kinds = [type(value).__name__ for _, value in values]
    seen = Counter(kinds)
    yield from ((row, 1.0) for (row, _), kind in zip(values, kinds, strict=True) if seen[kind] <= few)


def _is_measure(number: float) -> bool:
    return not isinstance(number, bool) and abs(number) < 1e300


def _far_away(numbers: Sequence[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    if len(numbers) < ENOUGH:
        return
    column = np.array([number for _, number in numbers])
    low, high = np.quantile(column, (0.25, 0.75))
    reach = FAR * max(float(high - low), 0.05 * abs(float(high)), 1e-9)
    odd = (column < low - reach) | (column > high + reach)
    yield from ((numbers[int(row)][0], 1.0) for row in np.flatnonzero(odd | _if_rare(column < 0)))


def _odd_in_length(lengths: Sequence[tuple[int, int]]) -> Iterator[tuple[int, float]]:
    """Yield the rows of empty strings where others are not, and of long ones where others are short."""
    if len(lengths) < ENOUGH:
        return
    column = np.array([length for _, length in lengths])
    low, high = np.quantile(column, (0.25, 0.75))
    odd = column > high + max(FAR * float(high - low), float(high), STORY_CHARS)
    yield from ((lengths[int(row)][0], 1.0) for row in np.flatnonzero(odd | _if_rare(column == 0)))


def _if_rare(marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return `marked` if it is rare, else nothing marked."""
    return marked if marked.sum() <= RARE * len(marked) else np.zeros_like(marked)


def _alarming(values: Sequence[tuple[int, JsonValue]], few: int) -> Iterator[tuple[int, float]]:
    texts = {value for _, value in values if isinstance(value, str)}
    alarming = {text for text in texts if has_failure(text[:TEXT_CHARS])}
    alarmed = [row for row, value in values if isinstance(value, str) and value in alarming]
    if len(alarmed) <= few:
        yield from ((row, 1.0) for row in alarmed)


MIN_ELEMENTS = 8
MIN_MEMBERS = 20  # of an object, whose keys usually differ in meaning
ALIKE = 0.8  # of the values of an object: then its keys are names, and its values records
HEAD, TAIL = 2, 1  # members that show what the others look like
ODD_SHARE, RELEVANT_SHARE = 0.10, 0.05
MARKER_BYTES = 180

_COMMA = re.compile(rb"\s*,\s*")


@dataclass(frozen=True, slots=True)
class Run:
    """`count` members from the 1-based `first` on; they stand from `start` to `end` in the bytes of the text."""

    first: int
    count: int
    start: int
    end: int
    of_object: bool


def is_long(members: json.Children) -> bool:
    """Return whether a container holds records, and enough of them to leave some out."""
    if isinstance(members, list):
        return len(members) >= MIN_ELEMENTS
    openings = [bytes(memoryview(value)[:1]) for value in members.values()]
    containers = max(openings.count(b"{"), openings.count(b"["))
    return len(openings) >= MIN_MEMBERS and containers >= ALIKE * len(openings)


def runs(members: json.Children, raw: bytes, goal: str, max_ratio: float, check: Callable[[], None]) -> Iterator[Run]:
    """Yield the runs that may go from a long container that stands in `raw`."""
    views = list(members.values() if isinstance(members, dict) else members)
    starts = json.starts(views, raw)
    if starts != sorted(starts):  # of a key that comes twice the last value counts, and it stands elsewhere
        return
    keep = _kept(views, goal, max_ratio, check)
    for first, after in gaps(keep):
        start = starts[first]
        if isinstance(members, dict):
            comma = _COMMA.match(raw, _end(views[first - 1], raw))
            start = comma.end() if comma else start
        end = _end(views[after - 1], raw)
        if end - start > MARKER_BYTES:
            yield Run(first + 1, after - first, start, end, isinstance(members, dict))


def _kept(views: Sequence[Raw], goal: str, max_ratio: float, check: Callable[[], None]) -> list[bool]:
    count = len(views)
    values = [_value(view) for view in views]
    check()
    odd = _best(oddness(values, check), max(5, int(ODD_SHARE * count)))
    texts = [bytes(view).decode("utf-8", "replace") for view in views]
    wanted = _best(relevance(texts, goal, check), max(5, int(RELEVANT_SHARE * count)))
    keep = [row < HEAD or row >= count - TAIL for row in range(count)]
    for row in (*odd, *wanted):
        keep[row] = True
    missing = count - math.floor(count * max_ratio) - sum(keep)
    for row in [row for row in range(count) if not keep[row]][: max(0, missing)]:
        keep[row] = True
    return keep


def _value(view: Raw) -> JsonValue:
    try:
        value: JsonValue = msgspec.json.decode(view)
        return value
    except msgspec.DecodeError:  # a number that no machine holds is read as a word
        return bytes(view).decode("utf-8", "replace")


def _best(scores: Floats, most: int) -> list[int]:
    """Return the rows with the highest scores above 0, the earlier first among equals."""
    order = np.argsort(-scores, kind="stable")[:most]
    return [int(row) for row in order if scores[row] > 0]


def _end(view: Raw, raw: bytes) -> int:
    return json.start(view, raw) + json.size(view)

"""Which members of a long JSON container go: runs of records that are like the others."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from msgspec import Raw

from kimi_proxy.core import rawjson
from kimi_proxy.core.types import JsonValue
from kimi_proxy.features.sanitizer import records

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


def is_long(members: rawjson.Container) -> bool:
    """Whether a container holds records, and enough of them to leave some out."""
    if isinstance(members, list):
        return len(members) >= MIN_ELEMENTS
    openings = [bytes(memoryview(value)[:1]) for value in members.values()]
    containers = max(openings.count(b"{"), openings.count(b"["))
    return len(openings) >= MIN_MEMBERS and containers >= ALIKE * len(openings)


def runs(
    members: rawjson.Container, raw: bytes, goal: str, max_ratio: float, check: Callable[[], None]
) -> Iterator[Run]:
    """The runs that may go from a long container that stands in `raw`."""
    views = list(members.values() if isinstance(members, dict) else members)
    starts = [rawjson.start(view, raw) for view in views]
    if starts != sorted(starts):  # of a key that comes twice the last value counts, and it stands elsewhere
        return
    keep = _kept(views, goal, max_ratio, check)
    for first, after in _gaps(keep):
        start = rawjson.start(views[first], raw)
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
    odd = _best(records.oddness(values, check), max(5, int(ODD_SHARE * count)))
    texts = [bytes(view).decode("utf-8", "replace") for view in views]
    wanted = _best(records.relevance(texts, goal, check), max(5, int(RELEVANT_SHARE * count)))
    keep = [row < HEAD or row >= count - TAIL for row in range(count)]
    for row in (*odd, *wanted):
        keep[row] = True
    missing = count - math.floor(count * max_ratio) - sum(keep)
    for row in range(count):
        if missing > 0 and not keep[row]:
            keep[row] = True
            missing -= 1
    return keep


def _value(view: Raw) -> JsonValue:
    try:
        value: JsonValue = msgspec.json.decode(view)
        return value
    except msgspec.DecodeError:  # a number that no machine holds: it is as good as any other word
        return bytes(view).decode("utf-8", "replace")


def _best(scores: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", most: int) -> list[int]:
    """The rows with the highest scores above 0, the earlier first among equals."""
    order = np.argsort(-scores, kind="stable")[:most]
    return [int(row) for row in order if scores[row] > 0]


def _gaps(keep: Sequence[bool]) -> Iterator[tuple[int, int]]:
    start = -1
    for row, stays in enumerate([*keep, True]):
        if stays and start >= 0:
            yield start, row
            start = -1
        elif not stays and start < 0:
            start = row


def _end(view: Raw, raw: bytes) -> int:
    return rawjson.start(view, raw) + rawjson.size(view)

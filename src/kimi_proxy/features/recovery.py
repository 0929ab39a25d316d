"""Originals read back: lines and characters by their numbers, and what another pruner cut from a text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from kimi_proxy.core.errors import InvalidRange
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.lines import with_number
from kimi_proxy.core.prune import Cut
from kimi_proxy.features.tool import Integer

LineRange: TypeAlias = tuple[int, int]  # 1-based, both ends included

MAX_RANGES = 10_000
MAX_CHARS = 64 * 1024**2  # of an answer: twice the largest request body
FROM_FIRST, TO_END = 0, 2**62  # the start and the end of a range that has none


@dataclass(frozen=True, slots=True)
class Selection:
    """What to read of an original: these lines, or these characters, else all of it."""

    lines: tuple[LineRange, ...] = ()
    chars: tuple[int, int] | None = None  # from 0, the end not included
    with_numbers: bool = False
    first_chars: int | None = None  # of these lines, no more than so many characters


EVERYTHING = Selection()


def check(ranges: Sequence[LineRange]) -> None:
    """Raise InvalidRange for ranges that mean nothing whatever the text is."""
    if not ranges:
        raise InvalidRange("ranges is empty: give at least one range of lines")
    if len(ranges) > MAX_RANGES:
        raise InvalidRange(f"too many ranges ({len(ranges)}): request at most {MAX_RANGES} at a time")
    for start, end in ranges:
        if start < 1:
            raise InvalidRange(f"start_line {start} is below 1: lines are counted from 1")
        if start > end:
            raise InvalidRange(f"start_line {start} is after end_line {end}")


def check_inside(ranges: Sequence[LineRange], first: int, last: int) -> None:
    """Raise InvalidRange for a range that begins where there is no line."""
    for start, end in ranges:
        if start > last and first == 1:
            raise InvalidRange(f"start_line {start} is beyond the last line, {last}", last)
        if not first <= start <= min(end, last):
            raise InvalidRange(f"line {min(start, end)} is not stored here: lines {first} to {last} are", last)


class PickedLines:
    """Ranges of lines, picked from the pieces of a text as they come: each piece is read once for all ranges.

    The last line of a piece goes on in the first line of the next one.
    """

    def __init__(self, ranges: Sequence[LineRange], with_numbers: bool, seam: str = "\n") -> None:
        self._ranges = ranges
        self._with_numbers = with_numbers
        self._seam = seam
        self._chunks: list[list[str]] = [[] for _ in ranges]
        self._open: list[int | None] = [None] * len(ranges)  # the line that goes on, of each range
        self.chars = 0

    def add(self, first: int, rows: Sequence[str]) -> None:
        """Take the wanted ones of `rows`, which are numbered from `first`. Raise InvalidRange if they are too much."""
        last = first + len(rows) - 1
        found = [
            (at, max(start, first), min(end, last))
            for at, (start, end) in enumerate(self._ranges)
            if start <= last and end >= first
        ]
        # Sums from the start: ten thousand ranges that overlap must not be walked line by line.
        extra = len(self._seam) + (len(with_number(last, "")) if self._with_numbers else 0)
        until = [0, *accumulate(len(row) + extra for row in rows)]
        self.chars += sum(until[end - first + 1] - until[start - first] for _, start, end in found)
        if self.chars > MAX_CHARS:
            too_many = f"these ranges contain more than {MAX_CHARS} characters"
            raise InvalidRange(f"{too_many}: request fewer lines at a time, or characters of a long one")
        for at, start, end in found:
            chosen = rows[start - first : end - first + 1]
            shown = _number_rows(chosen, start, goes_on=self._open[at] == start) if self._with_numbers else chosen
            self._chunks[at].append(self._seam.join(shown))
            self._open[at] = end

    def text(self) -> str:
        """Return the ranges in the order in which they were given."""
        return self._seam.join("".join(chunks) for chunks in self._chunks)


def _number_rows(rows: Sequence[str], first: int, goes_on: bool) -> list[str]:
    """Return the rows with their numbers; the first one has none if it goes on from the piece before."""
    numbered = [with_number(first + at, row) for at, row in enumerate(rows)]
    return [rows[0], *numbered[1:]] if goes_on else numbered


NAME = "recover_text"
SPARE_NAME = "kimi_proxy_recover_text"  # for servers that have a tool of the first name themselves

DESCRIPTION = """\
Read the original text behind a [KIMI_PROXY_OBSERVATION_MASKED … id=msk_…] or ⟦PRUNÉ: prune_id=prn_… …⟧ marker in an \
answer of this server, exactly as it was. Without a range the whole text comes back, which may be long: prefer \
ranges of start_line and end_line (counted from 1, both included), or start_char and end_char (counted from 0, \
end_char not included; a marker's hidden part begins at its head= and ends at original_chars minus tail=). \
Never write a marker into a file: recover the text first. Originals are kept for days after their last use."""

RANGES: JsonObject = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "start_line": {"type": "integer", "minimum": 1},
            "end_line": {"type": "integer", "minimum": 1},
        },
        "required": ["start_line", "end_line"],
        "additionalProperties": False,
    },
}

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "prune_id": {"type": "string", "description": "The id in the marker, such as msk_0123456789abcdef"},
        "ranges": RANGES,
        "include_line_numbers": {"type": "boolean"},
        "start_char": {"type": "integer", "minimum": 0},
        "end_char": {"type": "integer", "minimum": 0},
    },
    "required": ["prune_id"],
    "additionalProperties": False,
}


class LinesArgument(BaseModel):
    """Line numbers below 1 are rejected when the text is read, with an error of their own: invalid_range."""

    model_config = ConfigDict(extra="forbid", strict=True)

    start_line: Integer
    end_line: Integer


class Recover(BaseModel):
    """One shape, and what models write in its place: `id` for `prune_id`, one range without the list."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field(validation_alias=AliasChoices("prune_id", "id", "mask_id"))
    ranges: list[LinesArgument] | None = None
    include_line_numbers: bool = False
    start_line: Integer | None = None
    end_line: Integer | None = None
    start_char: Integer | None = None
    end_char: Integer | None = None
    # In the marker's unit: lines of a `prn_`, characters of a `msk_`.
    start: Integer | None = None
    end: Integer | None = None


def describe_tool(name: str) -> JsonObject:
    """Return the recovery tool as `tools/list` shows it, under `name`."""
    return {
        "name": name,
        "title": "Recover masked text",
        "description": DESCRIPTION,
        "inputSchema": SCHEMA,
        "annotations": {"readOnlyHint": True},
    }


def selection_of(asked: Recover) -> Selection:
    """Return what is asked for; raise InvalidRange if that means nothing whatever the text is."""
    asked = _named_by_marker(asked)
    by_line = bool(asked.ranges) or asked.start_line is not None or asked.end_line is not None
    by_char = asked.start_char is not None or asked.end_char is not None
    if by_line and by_char:
        raise InvalidRange("request either lines or characters, not both")
    if by_char and not asked.include_line_numbers:
        return Selection(chars=_char_range(asked.start_char or 0, asked.end_char))
    if not by_line:
        return Selection(with_numbers=asked.include_line_numbers)
    if asked.ranges:
        ranges = tuple((lines.start_line, lines.end_line) for lines in asked.ranges)
        check(ranges)
    else:
        ranges = (_one_range(asked),)
    return Selection(ranges, with_numbers=asked.include_line_numbers)


def _one_range(asked: Recover) -> LineRange:
    """Return the single range given without a list, from the first line or to the last one if it does not say."""
    start = 1 if asked.start_line is None else asked.start_line
    end = TO_END if asked.end_line is None else asked.end_line
    check([(start, end)])
    return FROM_FIRST if asked.start_line is None else start, end


def _named_by_marker(asked: Recover) -> Recover:
    """Return the request with `start` and `end` renamed to the unit that they count."""
    if asked.start is None and asked.end is None:
        return asked
    unit = "char" if asked.id.startswith("msk_") else "line"
    named = {f"start_{unit}": asked.start, f"end_{unit}": asked.end}
    others = asked.model_dump(exclude={"start", "end"}, exclude_none=True)
    return Recover.model_validate(others | {name: place for name, place in named.items() if place is not None})


def _char_range(start: int, end: int | None) -> tuple[int, int]:
    if start < 0 or (end is not None and end < start):
        raise InvalidRange(f"characters {start} to {end} are not a range: characters are counted from 0")
    return start, max(start, TO_END) if end is None else end


REASON = "hors sujet selon swe-pruner"

_FILTERED = re.compile(r"\s*\(filtered (\d{1,9}) lines?\)\s*", re.ASCII)


def write(lines: Sequence[str], cuts: Sequence[Cut]) -> str:
    """Return `lines` with each cut replaced by swe-pruner's marker."""
    out: list[str] = []
    after = 0
    for cut in cuts:
        out += lines[after : cut.start - 1]
        out.append(f"(filtered {cut.count} lines)")
        after = cut.end
    return "\n".join([*out, *lines[after:]])


def read(lines: Sequence[str], pruned: str) -> list[Cut] | None:
    """Return what was cut from `lines` to make `pruned`; None if it holds anything but their lines, in order."""
    keep: list[int] = []
    after = 0
    expected: int | None = None  # where the text continues after a marker
    for line in pruned.split("\n"):
        marker = _FILTERED.fullmatch(line)
        if marker and not _is_line(lines, after, line):
            expected = after + int(marker[1])
            continue
        found = _find(lines, line, after, expected)
        if found is None:
            return None
        keep.append(found)
        after, expected = found + 1, None
    if expected is None and after == len(lines) - 1 and lines[after] == "":
        keep.append(after)  # only the newline at the end was dropped
    return _gaps(keep, len(lines))


def _is_line(lines: Sequence[str], at: int, line: str) -> bool:
    return at < len(lines) and lines[at].rstrip() == line.rstrip()


def _find(lines: Sequence[str], line: str, after: int, expected: int | None) -> int | None:
    if expected is not None and _is_line(lines, expected, line):
        return expected
    return next((at for at in range(after, len(lines)) if _is_line(lines, at, line)), None)


def _gaps(keep: Sequence[int], count: int) -> list[Cut]:
    edges = [-1, *keep, count]
    return [Cut(before + 2, after, REASON) for before, after in pairwise(edges) if after - before > 1]

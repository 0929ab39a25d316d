"""Originals read back: lines and characters by their numbers, and what another pruner cut from a text."""

import re
from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import TypeAlias

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core.errors import InvalidRange
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.prune import Cut
from kimi_proxy.features.records.read import parts
from kimi_proxy.features.records.tree import is_one_line
from kimi_proxy.features.tool import Integer

LineRange: TypeAlias = tuple[int, int]  # 1-based, both ends included

MAX_RANGES = 10_000
MAX_CHARS = 64 * 1024**2  # twice the largest request body: only overlapping ranges get there


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


def recover(text: str, ranges: Sequence[LineRange], with_numbers: bool) -> str:
    """Return the lines of each range, in the order given; an end beyond the last line means the last line.

    A text of one long line is counted in parts, which are given back without anything between them.
    """
    check(ranges)
    # In a text of one long line, 1 is that line; higher numbers count its parts.
    by_parts = is_one_line(text) and any(end > 1 for _, end in ranges)
    lines, seam = (parts(text), "") if by_parts else (text_lines.split(text), "\n")
    for start, _ in ranges:
        if start > len(lines):
            raise InvalidRange(f"start_line {start} is beyond the last line, {len(lines)}", len(lines))
    # Sums from the start: ten thousand ranges that overlap must not be walked line by line.
    until = [0, *accumulate(len(line) + len(seam) for line in lines)]
    chars = sum(until[min(end, len(lines))] - until[start - 1] for start, end in ranges)
    if chars > MAX_CHARS:
        raise InvalidRange(f"these ranges contain {chars} characters: request fewer lines at a time")
    picked = (text_lines.pick(lines, start, end, with_numbers and not by_parts) for start, end in ranges)
    return seam.join(chain.from_iterable(picked))


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


def part(text: str, asked: Recover) -> str:
    """Return some lines of `text`, some of its characters, or all of it."""
    asked = _named_by_marker(asked)
    by_line = bool(asked.ranges) or asked.start_line is not None or asked.end_line is not None
    by_char = asked.start_char is not None or asked.end_char is not None
    if by_line and by_char:
        raise InvalidRange("request either lines or characters, not both")
    if by_line or asked.include_line_numbers:
        listed = [(lines.start_line, lines.end_line) for lines in asked.ranges or ()]
        return recover(text, listed or [_one_range(asked, len(text))], asked.include_line_numbers)
    return _characters(text, asked.start_char or 0, asked.end_char) if by_char else text


def _one_range(asked: Recover, chars: int) -> LineRange:
    """Return the single range given without a list; a missing end is beyond the last line."""
    start = 1 if asked.start_line is None else asked.start_line
    return start, max(start, chars + 1) if asked.end_line is None else asked.end_line


def _named_by_marker(asked: Recover) -> Recover:
    """Return the request with `start` and `end` renamed to the unit that they count."""
    if asked.start is None and asked.end is None:
        return asked
    unit = "char" if asked.id.startswith("msk_") else "line"
    named = {f"start_{unit}": asked.start, f"end_{unit}": asked.end}
    others = asked.model_dump(exclude={"start", "end"}, exclude_none=True)
    return Recover.model_validate(others | {name: place for name, place in named.items() if place is not None})


def _characters(text: str, start: int, end: int | None) -> str:
    if start < 0 or (end is not None and end < start):
        raise InvalidRange(f"characters {start} to {end} are not a range: characters are counted from 0")
    if start > len(text):
        raise InvalidRange(f"start_char {start} is beyond the end: the text has {len(text)} characters")
    return text[start:end]


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

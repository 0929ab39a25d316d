"""Outputs that are too long for one original: kept in parts, and read back by the line numbers of the whole."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from kimi_proxy.core import markers
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import InvalidRange, PruneIdNotFound
from kimi_proxy.core.lines import decode_text, join, split, with_number
from kimi_proxy.core.markers import PruneMarker
from kimi_proxy.features import recovery
from kimi_proxy.features.recovery import LineRange, Recover
from kimi_proxy.services.originals import Keeper, PrintedText, read_source
from kimi_proxy.services.store.protocols import Original, Originals

KIND = "parts"  # of an original that lists the parts, one marker a line
REASON = "suite de la sortie"


@dataclass(frozen=True, slots=True)
class _Part:
    id: str
    first: int  # lines of the whole output, both included; where a line is cut, both parts have it
    last: int


async def keep_parts(who: Caller, keeper: Keeper, parts: AsyncIterator[bytes], first_line: int) -> str | None:
    """Keep parts of an output that follow each other, and return a marker for all of them; None if there are none.

    Raise StoreUnavailable if they cannot be kept.
    """
    kept: list[_Part] = []
    first, newlines = first_line, 0
    async for part in parts:
        id = await keeper.keep_text(who, part, "output")
        newlines = part.count(b"\n")
        kept.append(_Part(id, first, first + newlines - part.endswith(b"\n")))
        first += newlines
    if not kept:
        return None
    if len(kept) == 1:
        return str(PruneMarker(kept[0].id, 1, newlines + 1, REASON))
    table = join([str(PruneMarker(part.id, part.first, part.last, REASON)) for part in kept])
    id = await keeper.keep_text(who, table.encode(), KIND)
    return str(PruneMarker(id, kept[0].first, kept[-1].last, f"{REASON}, {len(kept)} parties"))


def is_list_of_parts(original: Original) -> bool:
    source = read_source(original.about)
    return isinstance(source, PrintedText) and source.what == KIND


async def read_parts(who: Caller, originals: Originals, listed: Original, asked: Recover) -> str:
    """Return the lines that are asked for, by their numbers in the whole output; without any, all that is kept.

    Raise InvalidRange for lines that are not there, and PruneIdNotFound if a part has expired.
    """
    parts = _parts(listed)
    if set(asked.model_dump(exclude_none=True, exclude_defaults=True)) == {"id"}:
        raw = [(await originals.get(who, part.id)).text for part in parts]
        return await asyncio.to_thread(lambda: decode_text(b"".join(raw)))
    ranges = _ranges(asked, parts)
    found = [await _lines(who, originals, parts, start, end, asked.include_line_numbers) for start, end in ranges]
    return "\n".join(found)


def last_line(listed: Original) -> int:
    """Return the number of the last line that the parts hold, in the whole output."""
    return _parts(listed)[-1].last


def _parts(listed: Original) -> list[_Part]:
    found = filter(None, map(markers.read, split(decode_text(listed.text))))
    parts = [_Part(marker.prune_id, marker.start, marker.end) for marker in found]
    if not parts:
        raise PruneIdNotFound(listed.id, "unknown")
    return parts


def _ranges(asked: Recover, parts: Sequence[_Part]) -> list[LineRange]:
    first, last = parts[0].first, parts[-1].last
    if asked.start_char is not None or asked.end_char is not None:
        raise InvalidRange("this output is stored in parts: request lines, not characters")
    start, end = asked.start_line or asked.start, asked.end_line or asked.end
    ranges = [(one.start_line, one.end_line) for one in asked.ranges or ()] or [(start or first, end or last)]
    recovery.check(ranges)
    for start_line, _ in ranges:
        if not first <= start_line <= last:
            raise InvalidRange(f"line {start_line} is not stored here: lines {first} to {last} are", last)
    return [(start_line, min(end_line, last)) for start_line, end_line in ranges]


async def _lines(
    who: Caller, originals: Originals, parts: Sequence[_Part], start: int, end: int, with_numbers: bool
) -> str:
    wanted = [part for part in parts if part.first <= end and start <= part.last]
    raw = [(await originals.get(who, part.id)).text for part in wanted]
    return await asyncio.to_thread(_cut_out, b"".join(raw), wanted[0].first, start, end, with_numbers)


def _cut_out(raw: bytes, first: int, start: int, end: int, with_numbers: bool) -> str:
    """Return the lines from `start` to `end` of a text whose first line has the number `first`."""
    lines = split(decode_text(raw))[start - first : end - first + 1]
    return join([with_number(start + at, line) for at, line in enumerate(lines)] if with_numbers else lines)

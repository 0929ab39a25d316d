"""Original lines, picked out of a text by their numbers."""

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import TypeAlias

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core.errors import InvalidRange

LineRange: TypeAlias = tuple[int, int]  # 1-based, both ends included

MAX_RANGES = 10_000
MAX_CHARS = 64 * 1024**2  # twice the largest request body: only overlapping ranges get there


def check(ranges: Sequence[LineRange]) -> None:
    """Refuse ranges that mean nothing whatever the text is."""
    if not ranges:
        raise InvalidRange("ranges is empty: name at least one range of lines")
    if len(ranges) > MAX_RANGES:
        raise InvalidRange(f"{len(ranges)} ranges are too many: ask for at most {MAX_RANGES} at a time")
    for start, end in ranges:
        if start < 1:
            raise InvalidRange(f"start_line {start} is below 1: lines are counted from 1")
        if start > end:
            raise InvalidRange(f"start_line {start} is after end_line {end}")


def recover(text: str, ranges: Sequence[LineRange], with_numbers: bool) -> str:
    """The lines of each range, in the order asked; an end beyond the last line means the last line."""
    check(ranges)
    lines = text_lines.split(text)
    for start, _ in ranges:
        if start > len(lines):
            raise InvalidRange(f"start_line {start} is beyond the last line, {len(lines)}", len(lines))
    # Sums from the start: ten thousand ranges that overlap must not be walked line by line.
    until = [0, *accumulate(len(line) + 1 for line in lines)]
    chars = sum(until[min(end, len(lines))] - until[start - 1] for start, end in ranges)
    if chars > MAX_CHARS:
        raise InvalidRange(f"these ranges make {chars} characters: ask for fewer lines at a time")
    picked = (text_lines.pick(lines, start, end, with_numbers) for start, end in ranges)
    return text_lines.join(chain.from_iterable(picked))

"""Line ranges as people write them: `10-20,40,60-`."""

import re

from kimi_proxy.core.errors import InvalidRange

Range = tuple[int, int]

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})?)?", re.ASCII)


def whole(last: int) -> tuple[Range, ...]:
    """All lines of a text whose last one is `last`; an empty text has none."""
    return ((1, last),) if last else ()


def parse(text: str, last: int) -> tuple[Range, ...]:
    """The ranges that `text` lists, in its order; an end that is left out or too large is `last`."""
    return tuple(_range(part.strip(), last) for part in text.split(","))


def _range(part: str, last: int) -> Range:
    found = _RANGE.fullmatch(part)
    if found is None:
        raise InvalidRange(f"{part[:40]!r} is not a line range: write 10-20, 40 or 60-, with commas between")
    start = int(found[1])
    end = int(found[2]) if found[2] else start if "-" not in part else max(start, last)
    if not 1 <= start <= end:
        raise InvalidRange(f"{part!r} is not a line range: lines count from 1, and the end comes last")
    return start, max(start, min(end, last))

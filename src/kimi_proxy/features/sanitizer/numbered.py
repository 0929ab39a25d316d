"""Lines behind their numbers, as many tools show files: `   12→import os`."""

import re
from collections.abc import Sequence

SAMPLE_LINES = 200
SHARE = 0.9  # of the lines that are not empty

_NUMBER = re.compile(r"\s{0,8}(?:L?(\d{1,7}))(?:→|\t|│ ?|\| ?|: ?)")


def bare_lines(lines: Sequence[str]) -> Sequence[str]:
    """The lines without their numbers, one for each; the same object if they have none."""
    sample = [line for line in lines[:SAMPLE_LINES] if line.strip()]
    numbers = [int(found[1]) for line in sample if (found := _NUMBER.match(line))]
    if len(numbers) < max(2, SHARE * len(sample)) or numbers != sorted(set(numbers)):
        return lines
    return [line[found.end() :] if (found := _NUMBER.match(line)) else line for line in lines]

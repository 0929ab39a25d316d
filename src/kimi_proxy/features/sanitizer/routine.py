"""Routine lines of a log: those that look like many others, report nothing, and have no rare word of the goal.

Found in linear time, so that only the few other lines of a long log have to be scored.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from string import ascii_lowercase, digits

MIN_LINES = 200  # a shorter log is scored as a whole
ROUTINE_LINES = 12  # of one shape
SAMPLES = 2  # of each shape that are not routine: a reader sees what was repeated
LINE_CHARS = 400
RARE_SHARE = 0.05  # of the lines: a word that stands in more of them says nothing about one
MAX_WORDS = 24

# Words with a small letter or a digit differ from line to line; INFO, PASSED and punctuation make the shape.
_NAME = re.compile(r"\b(?=[A-Z]*+[a-z0-9_])\w++")
_SMALL = str.maketrans(dict.fromkeys(ascii_lowercase + digits + "_", "a"))
_WORD = re.compile(r"\w{3,40}")


def notable_rows(lines: Sequence[str], protected: Sequence[str], goal: str) -> list[int]:
    """Return the rows that are not routine, in their order; every protected one is among them."""
    if len(lines) < MIN_LINES:
        return list(range(len(lines)))
    shapes = _shapes("\n".join(line[:LINE_CHARS] for line in lines))
    counts = Counter(shapes)
    seen: Counter[str] = Counter()
    about = set(_rows_about(goal, lines))
    notable: list[int] = []
    for row, shape in enumerate(shapes):
        seen[shape] += 1
        is_sample = seen[shape] <= SAMPLES or seen[shape] == counts[shape]
        if is_sample or counts[shape] < ROUTINE_LINES or protected[row] or row in about:
            notable.append(row)
    return notable


def _shapes(text: str) -> list[str]:
    """Return the shape of each line."""
    if not text.isascii():
        return _NAME.sub("a", text).split("\n")
    # Lines that differ in letters and digits alone are looked at once, which takes a tenth of the time.
    plain = text.translate(_SMALL).split("\n")
    different = list(dict.fromkeys(plain))
    shape_of = dict(zip(different, _NAME.sub("a", "\n".join(different)).split("\n"), strict=True))
    return [shape_of[line] for line in plain]


def _rows_about(goal: str, lines: Sequence[str]) -> Iterator[int]:
    """Yield the rows with a word of the goal that few lines have."""
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(goal)))[:MAX_WORDS]
    lowered = [line[:LINE_CHARS].lower() for line in lines] if words else []
    text = "\n".join(lowered)
    ends = list(accumulate(len(line) + 1 for line in lowered))
    most = RARE_SHARE * len(lines)
    for word in words:
        rows: list[int] = []
        at = text.find(word)
        while at >= 0 and len(rows) <= most:
            rows.append(bisect_right(ends, at))
            at = text.find(word, ends[rows[-1]])
        if len(rows) <= most:
            yield from rows

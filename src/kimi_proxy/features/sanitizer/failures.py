"""Lines that tell what failed: they stay, whatever else goes."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from kimi_proxy.core.prune import Cut

FAILING = frozenset({"failure", "traceback", "error", "diagnostic"})
ENDS = 3  # lines at the beginning, and as many at the end
MARKER_CHARS = 120  # a gap with less in it is not worth its marker

# Of many failures that read alike, each is another one if it names its place or its test.
_NAMED = re.compile(
    r"\s*(?:FAILED|FAIL|--- FAIL:|not ok)\s+\S"
    r"|[^\s:(]{1,300}(?::\d{1,7}){1,2}:? *(?:- )?(?:fatal )?(?:error|Error)\b"
    r"|[^\s(]{1,300}\(\d+,\d+\): error "
)


def rows(lines: Sequence[str], protected: Sequence[str]) -> frozenset[int]:
    """The lines of a log that tell of failures; none of any other text, for which nothing is protected."""
    if not protected:
        return frozenset()
    told = {row for row, why in enumerate(protected) if why in FAILING}
    named = {row for row, line in enumerate(lines) if _NAMED.match(line)}
    # Where tools say how a command ended.
    ends = {*range(ENDS), *range(len(lines) - ENDS, len(lines))}
    return frozenset(told | named | ends)


def spared(cuts: Iterable[Cut], lines: Sequence[str], stay: Collection[int]) -> Iterator[Cut]:
    """The cuts without the rows that stay, as far as what is left of each is worth a marker."""
    for cut in cuts:
        start = cut.start - 1
        for row in [*sorted(row for row in stay if cut.start - 1 <= row < cut.end), cut.end]:
            if sum(len(line) + 1 for line in lines[start:row]) > MARKER_CHARS:
                yield Cut(start + 1, row, cut.reason)
            start = row + 1

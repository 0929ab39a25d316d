"""What linters and type checkers print: a file, a line, and what is wrong there."""

import re
from collections.abc import Callable, Sequence

from kimi_proxy.features.pruning.structure.blocks import Span

_DIAGNOSTIC = re.compile(r"\s*+(?:\.{0,2}/)?[\w./@+-]{1,200}\.[A-Za-z]\w{0,7}:\d{1,6}(?::\d{0,5})?:? ?\S")


def diagnostics(bare: Sequence[str], check: Callable[[], None]) -> list[Span]:
    """Runs of `path/file.ext:line:column: message`."""
    found: list[Span] = []
    for row, line in enumerate(bare):
        if row % 1000 == 0:
            check()
        if ":" in line and _DIAGNOSTIC.match(line):
            if found and row - found[-1].end <= 1:
                found[-1] = found[-1]._replace(end=row + 1)
            else:
                found.append(Span(row, row + 1, row, "diagnostic", line.strip()[:80]))
    return found

"""Telling Markdown, reStructuredText and AsciiDoc apart."""

import re
from collections.abc import Sequence
from enum import Enum, auto

SAMPLE_LINES = 2000
LINE_CHARS = 300

_RESTRUCTURED = re.compile(
    r"\.\.\s+(?:[\w:-]+::|_[^:]+:)|\s{2,}:\w+:|.*:(?:ref|doc|class|func|meth|mod|attr):`|:\w[\w -]*:\s"
)
_UNDERLINES = frozenset("~^\"`'*+")


class Markup(Enum):
    MARKDOWN = auto()
    RESTRUCTURED = auto()
    ASCIIDOC = auto()


def markup_of(lines: Sequence[str]) -> Markup:
    """The markup whose own signs a text has; Markdown if none."""
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("= ") or any(line.startswith("[source") for line in lines[:SAMPLE_LINES]):
        return Markup.ASCIIDOC
    signs = sum(_restructured(line[:LINE_CHARS].rstrip()) for line in lines[:SAMPLE_LINES])
    return Markup.RESTRUCTURED if signs > 0 else Markup.MARKDOWN


def _restructured(line: str) -> int:
    """1 for a sign of reStructuredText, -1 for one of Markdown."""
    if line.startswith(("# ", "## ", "```")):
        return -1
    underline = len(line) > 2 and line[0] in _UNDERLINES and line.count(line[0]) == len(line)
    return 1 if underline or line.endswith("::") or _RESTRUCTURED.match(line) else 0

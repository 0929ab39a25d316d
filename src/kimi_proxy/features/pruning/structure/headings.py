"""Headings of Markdown, reStructuredText, AsciiDoc and HTML."""

import re
from collections.abc import Sequence
from typing import NamedTuple

LINE_CHARS = 300
TAG_LINES = 4

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?[ \t]*#*[ \t]*\r?$")
# MkDocs opens a tab with === and a quoted title: no heading.
_ASCIIDOC = re.compile(r"(={1,6})[ \t]+([^\s\"'+!].*?)[ \t]*\r?$")
_HTML = re.compile(r" {0,8}<h([1-6])\b", re.IGNORECASE)
_HTML_END = re.compile(r"</h[1-6]>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{0,200}>")
_ADORNMENT = frozenset("=-`:'\"~^_*+#<>.")
_MARKDOWN_LEVELS = {"=": 1, "-": 2}


class Heading(NamedTuple):
    """Lines `start` to `end` (exclusive): the title with its underline and overline."""

    start: int
    end: int
    level: int
    title: str


def adornment(line: str) -> str:
    """The character that underlines a title with `line`, or ""."""
    bare = line.rstrip()
    if len(bare) < 2 or bare[0] not in _ADORNMENT or bare.count(bare[0]) != len(bare):
        return ""
    return bare[0]


class Headings:
    """Finds headings line by line; the levels of underlines are those of their first appearance."""

    def __init__(self, lines: Sequence[str], restructured: bool) -> None:
        self._lines = lines
        self._restructured = restructured
        self._styles: list[str] = []

    def at(self, row: int) -> Heading | None:
        """The heading whose first line is `row`."""
        line = self._lines[row][:LINE_CHARS]
        return self._marked(row, line) or self._overlined(row, line) or self._underlined(row, line)

    def _marked(self, row: int, line: str) -> Heading | None:
        first = line.lstrip()[:1]
        if first == "#" and not self._restructured:
            found = _ATX.match(line)
            return Heading(row, row + 1, len(found[1]), (found[2] or "").strip()) if found else None
        if first == "=" and not self._restructured:
            found = _ASCIIDOC.match(line)
            return Heading(row, row + 1, len(found[1]), found[2]) if found else None
        if first == "<":
            found = _HTML.match(line)
            return self._tagged(row, int(found[1])) if found else None
        return None

    def _tagged(self, row: int, level: int) -> Heading:
        """A heading of HTML, to the line that closes it if that is near."""
        for end in range(row + 1, min(row + 1 + TAG_LINES, len(self._lines) + 1)):
            text = " ".join(line[:LINE_CHARS] for line in self._lines[row:end])
            if _HTML_END.search(text):
                return Heading(row, end, level, _TAG.sub("", text).strip())
        return Heading(row, row + 1, level, _TAG.sub("", self._lines[row][:LINE_CHARS]).strip())

    def _underlined(self, row: int, line: str) -> Heading | None:
        title = line.strip()
        if row + 1 >= len(self._lines) or not title or line[:1] in (" ", "\t"):
            return None
        char = adornment(self._lines[row + 1][:LINE_CHARS])
        if not char or adornment(line) or not self._underlines(char, row, title):
            return None
        return Heading(row, row + 2, self._level(char), title)

    def _underlines(self, char: str, row: int, title: str) -> bool:
        if not self._restructured:
            before = self._lines[row - 1].strip() if row else ""
            return char in _MARKDOWN_LEVELS and not before and title[0] not in "|>" and not _is_item(title)
        length = len(self._lines[row + 1].rstrip())
        # Dots also continue a line in Python's interactive examples.
        return length >= (len(title) if char == "." else min(len(title), 4)) and not title.startswith(("...", ">>>"))

    def _overlined(self, row: int, line: str) -> Heading | None:
        if not self._restructured or row + 2 >= len(self._lines):
            return None
        char = adornment(line)
        title = self._lines[row + 1][:LINE_CHARS].strip()
        if not char or not title or adornment(title) or adornment(self._lines[row + 2][:LINE_CHARS]) != char:
            return None
        return Heading(row, row + 3, self._level(char * 2), title)

    def _level(self, style: str) -> int:
        if not self._restructured:
            return _MARKDOWN_LEVELS[style]
        if style not in self._styles:
            self._styles.append(style)
        return self._styles.index(style) + 1


def _is_item(title: str) -> bool:
    return title[:2] in ("- ", "* ", "+ ")

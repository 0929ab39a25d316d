"""The structure of a document: sections, and in them fences, tables, lists and paragraphs."""

import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from itertools import pairwise
from typing import NamedTuple

from kimi_proxy.features.pruning.structure.blocks import Outline, Span, nest

LINE_CHARS = 300
TAG_LINES = 4

# What follows a title is taken off by hand: a pattern that finds its end takes cubic time for a line of spaces.
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]++(.*)|#*+[ \t]*+\r?)$")
# MkDocs opens a tab with === and a quoted title: no heading.
_ASCIIDOC = re.compile(r"(={1,6})[ \t]++([^\s\"'+!].*)$")
_HTML = re.compile(r" {0,8}<h([1-6])\b", re.IGNORECASE)
_HTML_END = re.compile(r"</h[1-6]>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{0,200}>")
_ADORNMENT = frozenset("=-`:'\"~^_*+#<>.")
_MARKDOWN_LEVELS = {"=": 1, "-": 2}
_BULLETS = ("- ", "* ", "+ ")


class Heading(NamedTuple):
    """Lines `start` to `end` (exclusive): the title with its underline and overline."""

    start: int
    end: int
    level: int
    title: str


def _closed_title(text: str) -> str:
    """Return a title of Markdown without the signs that may close it."""
    return text.removesuffix("\r").rstrip(" \t").rstrip("#").strip()


def adornment(line: str) -> str:
    """Return the character that underlines a title with `line`, or ""."""
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
        """Return the heading whose first line is `row`."""
        line = self._lines[row][:LINE_CHARS]
        return self._atx_heading(row, line) or self._overlined_heading(row, line) or self._setext_heading(row, line)

    def _atx_heading(self, row: int, line: str) -> Heading | None:
        first = line.lstrip()[:1]
        if first == "#" and not self._restructured:
            found = _ATX.match(line)
            return Heading(row, row + 1, len(found[1]), _closed_title(found[2] or "")) if found else None
        if first == "=" and not self._restructured:
            found = _ASCIIDOC.match(line)
            return Heading(row, row + 1, len(found[1]), found[2].removesuffix("\r").rstrip(" \t")) if found else None
        if first == "<":
            found = _HTML.match(line)
            return self._html_heading(row, int(found[1])) if found else None
        return None

    def _html_heading(self, row: int, level: int) -> Heading:
        """Return a heading of HTML, to the line that closes it if that is near."""
        for end in range(row + 1, min(row + 1 + TAG_LINES, len(self._lines) + 1)):
            text = " ".join(line[:LINE_CHARS] for line in self._lines[row:end])
            if _HTML_END.search(text):
                return Heading(row, end, level, _TAG.sub("", text).strip())
        return Heading(row, row + 1, level, _TAG.sub("", self._lines[row][:LINE_CHARS]).strip())

    def _setext_heading(self, row: int, line: str) -> Heading | None:
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
            return char in _MARKDOWN_LEVELS and not before and title[0] not in "|>" and title[:2] not in _BULLETS
        length = len(self._lines[row + 1].rstrip())
        # Dots also continue a line in Python's interactive examples.
        return length >= (len(title) if char == "." else min(len(title), 4)) and not title.startswith(("...", ">>>"))

    def _overlined_heading(self, row: int, line: str) -> Heading | None:
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


SAMPLE_LINES = 2000

_RESTRUCTURED = re.compile(
    r"\.\.\s+(?:[\w:-]+::|_[^:]+:)|\s{2,}:\w+:|.*:(?:ref|doc|class|func|meth|mod|attr):`|:\w[\w -]*:\s"
)
_UNDERLINES = frozenset("~^\"`'*+")


class Markup(Enum):
    MARKDOWN = auto()
    RESTRUCTURED = auto()
    ASCIIDOC = auto()


def markup_of(lines: Sequence[str]) -> Markup:
    """Return the markup whose own signs a text has; Markdown if none."""
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("= ") or any(line.startswith("[source") for line in lines[:SAMPLE_LINES]):
        return Markup.ASCIIDOC
    signs = sum(_rst_sign(line[:LINE_CHARS].rstrip()) for line in lines[:SAMPLE_LINES])
    return Markup.RESTRUCTURED if signs > 0 else Markup.MARKDOWN


def _rst_sign(line: str) -> int:
    """Return 1 for a sign of reStructuredText, -1 for one of Markdown."""
    if line.startswith(("# ", "## ", "```")):
        return -1
    underline = len(line) > 2 and line[0] in _UNDERLINES and line.count(line[0]) == len(line)
    return 1 if underline or line.endswith("::") or _RESTRUCTURED.match(line) else 0


FRONT_MATTER_MAX_LINES = 60
TABLE_MAX_LINES = 2000
CHECK_EVERY = 1000

_FENCE = re.compile(r"[\s>]{0,24}(?:[-*+]\s+|\d{1,9}[.)]\s+)?(`{3,}|~{3,})([^`]*)$")
_DELIMITED = re.compile(r"(?:-{4,}|={4,}|\.{4,}|\+{4,}|_{4,}|\*{4,})\s*$")
_LISTING = re.compile(r"\[(?:source|listing|code)\b")
_DIRECTIVE = re.compile(r"\s*(?:\.\.\s+[\w:-]+::|!!!\s|\?\?\?\+?\s)")
_CODE = re.compile(r"\s*\.\.\s+(?:code(?:-block)?|sourcecode|literalinclude|parsed-literal|highlight)::")
# What Sphinx documents: a class, a method, a setting. It heads the indented lines below it.
_OBJECT = re.compile(
    r"\s*\.\.\s+(?:\w+:)?(?:class|method|classmethod|staticmethod|function|attribute|property|data|exception|module"
    r"|decorator|decoratormethod|type|struct|macro|member|var|enum|enumerator|option|program|envvar|confval|describe"
    r"|object)::[ \t]++(?P<name>\S.*)$"
)
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,9}[.)]|[a-z][.)])\s+\S")
_GRID = re.compile(r"\s*\+[-=+]{3,}\+?\s*$")
_SIMPLE = re.compile(r"\s*={2,}(?:\s+={2,})+\s*$")
_RULE = re.compile(r"[\s|:-]+$")


def outline(lines: Sequence[str], check: Callable[[], None]) -> Outline:
    check()
    return _DocumentReader(lines, check).read()


class _DocumentReader:
    """Reads blocks one after the other; a block ends where its own rules say."""

    def __init__(self, lines: Sequence[str], check: Callable[[], None]) -> None:
        self._lines = lines
        self._check = check
        self._markup = markup_of(lines)
        self._headings = Headings(lines, self._markup is Markup.RESTRUCTURED)

    def read(self) -> Outline:
        count = len(self._lines)
        protected = [""] * count
        headings: list[Heading] = []
        spans = self._front_matter(protected)
        row = spans[0].end if spans else 0
        while row < count:
            heading = self._heading(row)
            if heading is not None:
                headings.append(heading)
                protected[heading.start : heading.end] = ["heading"] * (heading.end - heading.start)
                row = heading.end
            elif self._lines[row].strip():
                span = self._block(row)
                spans += [span, *self._inside(span)]
                row = span.end
            else:
                row += 1
        self._check()
        # Of two blocks of the same lines the first stays: a fence, for only of it is known that it must not be cut.
        fences = [span for span in spans if span.kind == "fence"]
        return Outline(nest([*fences, *_sections(headings, count), *spans], count), tuple(protected), "")

    def _rows(self, start: int) -> Iterator[int]:
        for row in range(start, len(self._lines)):
            if row % CHECK_EVERY == 0:
                self._check()
            yield row

    def _front_matter(self, protected: list[str]) -> list[Span]:
        lines = self._lines
        if not lines or lines[0].rstrip() not in ("---", "+++"):
            return []
        for row in range(1, min(len(lines), FRONT_MATTER_MAX_LINES)):
            if lines[row].rstrip() == lines[0].rstrip():
                for at in range(row + 1):
                    if at in (0, row) or lines[at].startswith(("title", "description")):
                        protected[at] = "header"
                return [Span(0, row + 1, row + 1, "front-matter")]
        return []

    def _heading(self, row: int) -> Heading | None:
        line = self._lines[row][:LINE_CHARS]
        if not line or line.isspace() or _FENCE.match(line) or self._opens_listing(row):
            return None
        return self._headings.at(row)

    def _opens_listing(self, row: int) -> bool:
        """Return whether an AsciiDoc delimiter of a block other than prose is here, or is announced here."""
        if self._markup is not Markup.ASCIIDOC:
            return False
        line = self._lines[row][:LINE_CHARS]
        below = self._lines[row + 1][:LINE_CHARS] if row + 1 < len(self._lines) else ""
        return bool(_DELIMITED.match(line) or (_LISTING.match(line) and _DELIMITED.match(below)))

    def _block(self, row: int) -> Span:
        line = self._lines[row][:LINE_CHARS]
        fence = _FENCE.match(line)
        if fence is not None:
            return _span(row, self._fence_end(row, fence[1]), "fence", fence[2].strip())
        if self._opens_listing(row):
            return _span(row, self._listing_end(row), "fence")
        if _OBJECT.match(line):
            return self._object(row)
        if _DIRECTIVE.match(line):
            return _span(row, self._indented_end(row, _indent(line)), "fence" if _CODE.match(line) else "directive")
        if self._is_literal(row):
            return _span(row, self._indented_end(row, _indent(line) - 1), "fence")
        if self._starts_table(row):
            return _span(row, self._table_end(row), "table")
        if _ITEM.match(line):
            return _span(row, self._list_end(row), "list")
        return _span(row, self._paragraph_end(row), "paragraph")

    def _fence_end(self, row: int, opening: str) -> int:
        for at in self._rows(row + 1):
            bare = self._lines[at].strip(" \t\r>")
            if bare.startswith(opening) and not bare.strip(opening[0]):
                return at + 1
        return len(self._lines)

    def _listing_end(self, row: int) -> int:
        start = row if _DELIMITED.match(self._lines[row][:LINE_CHARS]) else row + 1
        for at in self._rows(start + 1):
            if self._lines[at].rstrip() == self._lines[start].rstrip():
                return at + 1
        return len(self._lines)

    def _indented_end(self, row: int, indent: int) -> int:
        """Return the row after the lines below `row` that are deeper than `indent`; trailing blank lines stay out."""
        end = row + 1
        for at in self._rows(row + 1):
            if not self._lines[at].strip():
                continue
            if _indent(self._lines[at]) <= indent:
                break
            end = at + 1
        return end

    def _is_literal(self, row: int) -> bool:
        """Return whether an indented block of reStructuredText follows a line that ends with two colons."""
        if self._markup is not Markup.RESTRUCTURED or not self._lines[row][:1].isspace():
            return False
        before = row - 1
        while before > 0 and not self._lines[before].strip():
            before -= 1
        return self._lines[before].rstrip().endswith("::")

    def _starts_table(self, row: int) -> bool:
        line = self._lines[row][:LINE_CHARS]
        if line.lstrip().startswith("|") or _GRID.match(line) or _SIMPLE.match(line):
            return True
        below = self._lines[row + 1][:LINE_CHARS] if row + 1 < len(self._lines) else ""
        return "|" in line and "|" in below and "-" in below and _RULE.match(below) is not None

    def _table_end(self, row: int) -> int:
        if _SIMPLE.match(self._lines[row][:LINE_CHARS]):
            return self._simple_table_end(row)
        for at in self._rows(row + 1):
            line = self._lines[at]
            if not line.strip() or ("|" not in line and not _GRID.match(line[:LINE_CHARS])):
                return at
        return len(self._lines)

    def _simple_table_end(self, row: int) -> int:
        """Return the end of a simple table: a rule that a blank line follows."""
        lines = self._lines
        for at in range(row + 1, min(row + TABLE_MAX_LINES, len(lines))):
            after = lines[at + 1].strip() if at + 1 < len(lines) else ""
            if not after and _SIMPLE.match(lines[at][:LINE_CHARS]):
                return at + 1
        return self._paragraph_end(row)

    def _list_end(self, row: int) -> int:
        """A list continues over blank lines as long as items or indented lines follow."""
        indent = _indent(self._lines[row])
        end = row + 1
        for at in self._rows(row + 1):
            line = self._lines[at][:LINE_CHARS]
            if at < end or not line.strip():
                continue
            deeper = _indent(line) > indent or (_indent(line) == indent and _ITEM.match(line) is not None)
            if not deeper and (at > end or self._interrupts(at)):
                break
            fence = _FENCE.match(line)
            end = self._fence_end(at, fence[1]) if fence else at + 1
        return end

    def _inside(self, span: Span) -> list[Span]:
        """Return the items of a list, the documented objects in a directive, and the fenced blocks in either."""
        if span.kind == "list":
            fences = list(self._fences(span))
            return [*self._items(span, fences), *fences]
        if span.kind not in ("directive", "object"):
            return []
        rows = range(span.start + 1, span.end)
        objects = [self._object(row) for row in rows if _OBJECT.match(self._lines[row][:LINE_CHARS])]
        return [*objects, *self._fences(span)]

    def _fences(self, span: Span) -> Iterator[Span]:
        row = span.start
        while row < span.end:
            fence = _FENCE.match(self._lines[row][:LINE_CHARS])
            if fence is None:
                row += 1
                continue
            start, row = row, self._fence_end(row, fence[1])
            yield _span(start, row, "fence", fence[2].strip())

    def _object(self, row: int) -> Span:
        named = _OBJECT.match(self._lines[row][:LINE_CHARS])
        end = self._indented_end(row, _indent(self._lines[row]))
        return Span(row, end, row + 1, "object", named["name"].rstrip()[:80] if named else "")

    def _items(self, span: Span, fences: Sequence[Span]) -> list[Span]:
        lines = self._lines
        indent = _indent(lines[span.start])
        fenced = {row for fence in fences for row in range(fence.start + 1, fence.end)}
        starts = [
            row
            for row in range(span.start, span.end)
            if _indent(lines[row]) == indent and row not in fenced and _ITEM.match(lines[row][:LINE_CHARS])
        ]
        return [_span(start, self._trim_end(start, end), "item") for start, end in pairwise([*starts, span.end])]

    def _trim_end(self, start: int, end: int) -> int:
        while end - 1 > start and not self._lines[end - 1].strip():
            end -= 1
        return end

    def _paragraph_end(self, row: int) -> int:
        for at in self._rows(row + 1):
            if not self._lines[at].strip() or self._interrupts(at):
                return at
        return len(self._lines)

    def _interrupts(self, row: int) -> bool:
        line = self._lines[row][:LINE_CHARS]
        return bool(_FENCE.match(line) or _DIRECTIVE.match(line)) or self._heading(row) is not None


def _sections(headings: Sequence[Heading], line_count: int) -> list[Span]:
    """Return sections: each heading holds the lines to the next one of its level or above."""
    spans: list[Span] = []
    opened: list[Heading] = []
    for heading in headings:
        while opened and opened[-1].level >= heading.level:
            spans.append(_section(opened.pop(), heading.start))
        opened.append(heading)
    return spans + [_section(heading, line_count) for heading in opened]


def _section(heading: Heading, end: int) -> Span:
    return Span(heading.start, end, heading.end, "section", heading.title[:120])


def _span(start: int, end: int, kind: str, name: str = "") -> Span:
    return Span(start, end, start, kind, name[:80])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

"""What a document is made of: sections, and in them fences, tables, lists and paragraphs."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from kimi_proxy.features.pruning.structure.blocks import Outline, Span, nest
from kimi_proxy.features.pruning.structure.headings import LINE_CHARS, Heading, Headings
from kimi_proxy.features.pruning.structure.markup import Markup, markup_of

FRONT_MATTER_MAX_LINES = 60
TABLE_MAX_LINES = 2000
CHECK_EVERY = 1000

_FENCE = re.compile(r"[\s>]{0,24}(?:[-*+]\s+|\d{1,9}[.)]\s+)?(`{3,}|~{3,})([^`]*)$")
_DELIMITED = re.compile(r"(?:-{4,}|={4,}|\.{4,}|\+{4,}|_{4,}|\*{4,})\s*$")
_LISTING = re.compile(r"\[(?:source|listing|code)\b")
_DIRECTIVE = re.compile(r"\s*(?:\.\.\s+[\w:-]+::|!!!\s|\?\?\?\+?\s)")
_CODE = re.compile(r"\s*\.\.\s+(?:code(?:-block)?|sourcecode|literalinclude|parsed-literal|highlight)::")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,9}[.)]|[a-z][.)])\s+\S")
_GRID = re.compile(r"\s*\+[-=+]{3,}\+?\s*$")
_SIMPLE = re.compile(r"\s*={2,}(?:\s+={2,})+\s*$")
_RULE = re.compile(r"[\s|:-]+$")


def outline(lines: Sequence[str], check: Callable[[], None]) -> Outline:
    check()
    return _Reader(lines, check).read()


class _Reader:
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
                spans += [span, *(self._items(span) if span.kind == "list" else [])]
                row = span.end
            else:
                row += 1
        self._check()
        return Outline(nest([*_sections(headings, count), *spans], count), tuple(protected), "")

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
        """Whether AsciiDoc's delimiter of a block that is not prose stands here, or is announced here."""
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
        """After the lines below `row` that are deeper than `indent`; trailing blank lines stay out."""
        end = row + 1
        for at in self._rows(row + 1):
            if not self._lines[at].strip():
                continue
            if _indent(self._lines[at]) <= indent:
                break
            end = at + 1
        return end

    def _is_literal(self, row: int) -> bool:
        """Whether an indented block of reStructuredText follows a line that ends with two colons."""
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
        """A simple table ends with a rule that a blank line follows."""
        lines = self._lines
        for at in range(row + 1, min(row + TABLE_MAX_LINES, len(lines))):
            after = lines[at + 1].strip() if at + 1 < len(lines) else ""
            if not after and _SIMPLE.match(lines[at][:LINE_CHARS]):
                return at + 1
        return self._paragraph_end(row)

    def _list_end(self, row: int) -> int:
        """A list goes on over blank lines as long as items or indented lines follow."""
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

    def _items(self, span: Span) -> list[Span]:
        lines = self._lines
        indent = _indent(lines[span.start])
        starts = [
            row
            for row in range(span.start, span.end)
            if _indent(lines[row]) == indent and _ITEM.match(lines[row][:LINE_CHARS])
        ]
        return [_span(start, self._trimmed(start, end), "item") for start, end in pairwise([*starts, span.end])]

    def _trimmed(self, start: int, end: int) -> int:
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
    """Each heading holds the lines to the next one of its level or above."""
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

"""What a document is made of: sections, and in them fences, tables, lists and paragraphs."""

import re
from collections.abc import Callable, Sequence

from kimi_proxy.features.pruning.structure.blocks import Outline, Span, nest
from kimi_proxy.features.pruning.structure.headings import LINE_CHARS, Heading, Headings

FRONT_MATTER_MAX_LINES = 60

_FENCE = re.compile(r"[\s>]{0,24}(?:[-*+]\s+|\d{1,9}[.)]\s+)?(`{3,}|~{3,})([^`]*)$")
_DELIMITED = re.compile(r"(-{4,}|={4,}|\.{4,}|\+{4,}|_{4,}|\*{4,})\s*$")
_LISTING = re.compile(r"\[(?:source|listing|code)\b")
_DIRECTIVE = re.compile(r"(\s*)(?:\.\.\s+[\w:-]+::|!!!\s|\?\?\?\+?\s)")
_CODE = re.compile(r"\s*\.\.\s+(?:code(?:-block)?|sourcecode|literalinclude|parsed-literal|highlight)::")
_RESTRUCTURED = re.compile(
    r"\.\.\s+(?:[\w:-]+::|_[^:]+:)|\s{2,}:\w+:|.*:(?:ref|doc|class|func|meth|mod|attr):`|:\w[\w -]*:\s"
)
_ITEM = re.compile(r"(\s*)(?:[-*+•]|\d{1,9}[.)]|[a-z][.)])\s+\S")
_GRID = re.compile(r"\s*\+[-=+]{3,}\+?\s*$")
_SIMPLE = re.compile(r"\s*={2,}(?:\s+={2,})+\s*$")
_RULE = re.compile(r"\s*\|?\s*:?-{1,}:?\s*(?:\|\s*:?-{1,}:?\s*){0,60}\|?\s*$")


def outline(lines: Sequence[str], check: Callable[[], None]) -> Outline:
    protected = [""] * len(lines)
    headings: list[Heading] = []
    spans = _front_matter(lines, protected)
    row = spans[0].end if spans else 0
    restructured = _is_restructured(lines)
    finder = Headings(lines, restructured)
    checked = 0
    while row < len(lines):
        if row - checked >= 1000:
            check()
            checked = row
        if not lines[row].strip():
            row += 1
            continue
        heading = finder.at(row) if not _FENCE.match(lines[row][:LINE_CHARS]) else None
        if heading is not None:
            headings.append(heading)
            protected[heading.start : heading.end] = ["heading"] * (heading.end - heading.start)
            row = heading.end
            continue
        span = _block(lines, row, finder, restructured)
        spans.append(span)
        if span.kind == "list":
            spans += _items(lines, span)
        row = span.end
    return Outline(nest([*_sections(headings, len(lines)), *spans], len(lines)), tuple(protected), "")


def _is_restructured(lines: Sequence[str]) -> bool:
    """Whether the text speaks reStructuredText: its directives and roles are like nothing else."""
    seen = 0
    for line in lines[:2000]:
        if line.startswith(("# ", "## ", "```")):
            seen -= 1
        elif _RESTRUCTURED.match(line[:LINE_CHARS]) or line.rstrip().endswith("::"):
            seen += 1
        elif len(line) > 2 and line[0] in "~^\"`'*+" and line.rstrip().count(line[0]) == len(line.rstrip()):
            seen += 1
    return seen > 0


def _front_matter(lines: Sequence[str], protected: list[str]) -> list[Span]:
    if not lines or lines[0].rstrip() not in ("---", "+++"):
        return []
    for row in range(1, min(len(lines), FRONT_MATTER_MAX_LINES)):
        if lines[row].rstrip() == lines[0].rstrip():
            for at in range(row + 1):
                if at in (0, row) or lines[at].startswith(("title", "description")):
                    protected[at] = "header"
            return [Span(0, row + 1, row + 1, "front-matter")]
    return []


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


def _block(lines: Sequence[str], row: int, finder: Headings, restructured: bool) -> Span:
    line = lines[row][:LINE_CHARS]
    fence = _FENCE.match(line)
    if fence is not None:
        return _span(row, _fence_end(lines, row, fence[1]), "fence", fence[2].strip())
    if _LISTING.match(line) and row + 1 < len(lines) and _DELIMITED.match(lines[row + 1][:LINE_CHARS]):
        return _span(row, _delimited_end(lines, row + 1), "fence")
    directive = _DIRECTIVE.match(line)
    if directive is not None:
        return _span(row, _indented_end(lines, row, len(directive[1])), "fence" if _CODE.match(line) else "directive")
    if restructured and row and lines[row][:1].isspace() and _literal_before(lines, row):
        return _span(row, _indented_end(lines, row, _indent(lines[row]) - 1), "fence")
    if _starts_table(lines, row):
        return _span(row, _table_end(lines, row), "table")
    if _ITEM.match(line):
        return _span(row, _list_end(lines, row, finder), "list")
    return _span(row, _paragraph_end(lines, row, finder), "paragraph")


def _span(start: int, end: int, kind: str, name: str = "") -> Span:
    return Span(start, end, start, kind, name[:80])


def _fence_end(lines: Sequence[str], row: int, opening: str) -> int:
    for at in range(row + 1, len(lines)):
        bare = lines[at].strip(" \t\r>")
        if bare.startswith(opening) and not bare.strip(opening[0]):
            return at + 1
    return len(lines)


def _delimited_end(lines: Sequence[str], row: int) -> int:
    delimiter = lines[row].rstrip()
    for at in range(row + 1, len(lines)):
        if lines[at].rstrip() == delimiter:
            return at + 1
    return len(lines)


def _indented_end(lines: Sequence[str], row: int, indent: int) -> int:
    """After the lines below `row` that are deeper than `indent`; trailing blank lines stay out."""
    end = row + 1
    for at in range(row + 1, len(lines)):
        if not lines[at].strip():
            continue
        if _indent(lines[at]) <= indent:
            break
        end = at + 1
    return end


def _literal_before(lines: Sequence[str], row: int) -> bool:
    before = row - 1
    while before > 0 and not lines[before].strip():
        before -= 1
    return lines[before].rstrip().endswith("::")


def _starts_table(lines: Sequence[str], row: int) -> bool:
    line = lines[row][:LINE_CHARS]
    if line.lstrip().startswith("|") or _GRID.match(line) or _SIMPLE.match(line):
        return True
    below = lines[row + 1][:LINE_CHARS] if row + 1 < len(lines) else ""
    return "|" in line and "|" in below and _RULE.match(below) is not None


def _table_end(lines: Sequence[str], row: int) -> int:
    if _SIMPLE.match(lines[row][:LINE_CHARS]):
        return _simple_table_end(lines, row)
    end = row + 1
    while end < len(lines) and lines[end].strip() and ("|" in lines[end] or _GRID.match(lines[end][:LINE_CHARS])):
        end += 1
    return end


def _simple_table_end(lines: Sequence[str], row: int) -> int:
    """A simple table ends with a rule that a blank line follows."""
    for at in range(row + 1, len(lines)):
        after = lines[at + 1].strip() if at + 1 < len(lines) else ""
        if not after and _SIMPLE.match(lines[at][:LINE_CHARS]):
            return at + 1
    return row + 1


def _list_end(lines: Sequence[str], row: int, finder: Headings) -> int:
    """A list goes on over blank lines as long as items or indented lines follow."""
    indent = _indent(lines[row])
    end = at = row + 1
    while at < len(lines):
        line = lines[at][:LINE_CHARS]
        if line.strip():
            blank_before = at > end
            goes_on = _ITEM.match(line) is not None and _indent(line) >= indent or _indent(line) > indent
            if not goes_on and (blank_before or _interrupts(lines, at, finder)):
                break
            fence = _FENCE.match(line)
            end = _fence_end(lines, at, fence[1]) if fence else at + 1
            at = end
        else:
            at += 1
    return end


def _items(lines: Sequence[str], span: Span) -> list[Span]:
    indent = _indent(lines[span.start])
    starts = [
        row
        for row in range(span.start, span.end)
        if _indent(lines[row]) == indent and _ITEM.match(lines[row][:LINE_CHARS])
    ]
    ends = [*starts[1:], span.end]
    return [_span(start, _trimmed(lines, start, end), "item") for start, end in zip(starts, ends, strict=True)]


def _trimmed(lines: Sequence[str], start: int, end: int) -> int:
    while end - 1 > start and not lines[end - 1].strip():
        end -= 1
    return end


def _paragraph_end(lines: Sequence[str], row: int, finder: Headings) -> int:
    end = row + 1
    while end < len(lines) and lines[end].strip() and not _interrupts(lines, end, finder):
        end += 1
    return end


def _interrupts(lines: Sequence[str], row: int, finder: Headings) -> bool:
    line = lines[row][:LINE_CHARS]
    return bool(_FENCE.match(line) or _DIRECTIVE.match(line)) or finder.at(row) is not None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

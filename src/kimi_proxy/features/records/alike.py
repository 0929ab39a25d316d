"""Records that no format declares: paragraphs with the same fields, and lines of the same shape.

Lock files and settings are of the first kind; what `ping`, `netstat`, `hexdump` or a metrics endpoint print is of the
second. A record that differs is then found by the field or the column in which it does."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from kimi_proxy.features.failures import reports_failure
from kimi_proxy.features.pruning.source_type import is_logged
from kimi_proxy.features.records.tree import PLAIN, Node

if TYPE_CHECKING:
    from kimi_proxy.features.records.read import Rows

MIN_PARAGRAPHS, MAX_PARAGRAPH_LINES = 6, 40
FIELDS_ALIKE = 0.8  # of the paragraphs have a field that counts, and of the lines are one
MIN_LINES = 20
LINES_ALIKE = 0.9  # of the lines have as many words
MIN_WORDS, MAX_WORDS = 3, 60
MIN_FIGURES = 0.25  # of the words hold a digit
OTHER_SHAPE = 1.0  # how odd a line is that has more words than the others, or fewer
MAX_WRITTEN, MAX_CALLS = 0.1, 0.5
MAX_LOGGED = 0.5  # of the lines: logs are judged as logs

# `name = value`, `name: value`, `[section]`, `@article{key,` and what closes one of them.
_FIELD = re.compile(r"[ \t]{0,40}(?:([\w.-]{1,80})[ \t]{0,8}[=:](.*)|(\[|@\w{1,40}\{)(.*)|[}\])]{1,3},?)$")
_CALL = re.compile(r"[A-Za-z_]\(")
_WRITTEN = re.compile(r"#{1,6} \S|[ \t]{0,20}[-*+] \S")  # headings and lists: a page, whose lines are alike by chance
_WORD = re.compile(r"[^\s\"'=:,;|(){}\[\]<>/]+")


def read_paragraphs(rows: "Rows") -> Node | None:
    """Read paragraphs of fields, as lock files, settings and bibliographies have them."""
    paragraphs = list(_paragraphs(rows))
    if len(paragraphs) < MIN_PARAGRAPHS:
        return None
    fields = {row: _FIELD.match(rows.lines[row]) for row in rows.filled}
    if sum(1 for found in fields.values() if found) < FIELDS_ALIKE * len(fields):
        return None
    root = rows.root(PLAIN)
    for first, last in paragraphs:
        node = rows.node(first, last)
        found = [(row, each) for row in range(first, last + 1) if (each := fields.get(row)) is not None]
        node.children = [
            Node(
                rows.starts[row],
                rows.starts[row] + len(rows.lines[row]),
                each[1] or "#head",
                (each[2] or each[4]).strip(),
            )
            for row, each in found
            if each[1] or each[3]
        ]
        root.children.append(node)
    return root if _share_fields(root.children) else None


def _paragraphs(rows: "Rows") -> Iterator[tuple[int, int]]:
    """Yield the first and last lines of what empty lines separate; nothing if one is too long to be a record."""
    found: list[tuple[int, int]] = []
    for row in rows.filled:
        if found and found[-1][1] == row - 1:
            found[-1] = found[-1][0], row
        else:
            found.append((row, row))
    if all(last - first < MAX_PARAGRAPH_LINES for first, last in found):
        yield from found


def _share_fields(records: Sequence[Node]) -> bool:
    seen = Counter(key for record in records for key in {child.key for child in record.children} - {"#head"})
    return sum(1 for count in seen.values() if count >= FIELDS_ALIKE * len(records)) >= 2


def read_lines(rows: "Rows") -> Node | None:
    """Read lines that nearly all have as many words, word by word."""
    found = rows.filled
    if len(found) < MIN_LINES:
        return None
    sample = found[:MIN_LINES]
    if _usual_count([_words(rows.lines[row]) for row in sample]) is None:
        return None
    words = [_words(rows.lines[row]) for row in found]
    usual = _usual_count(words)
    if usual is None or sum(1 for row in found if is_logged(rows.lines[row])) > MAX_LOGGED * len(found):
        return None
    if sum(1 for row in found if _WRITTEN.match(rows.lines[row])) > MAX_WRITTEN * len(found):
        return None
    if sum(1 for row in found if _CALL.search(rows.lines[row][:1000])) > MAX_CALLS * len(found):
        return None  # code that repeats itself
    if sum(map(_has_digit, chain.from_iterable(words))) < MIN_FIGURES * sum(map(len, words)):
        return None  # sentences
    if any(reports_failure(rows.lines[row][:1000].lower()) for row in found):
        return None  # a log: what failed counts more there than what differs
    root = rows.root(PLAIN)
    for row, each in zip(found, words, strict=True):
        node = rows.node(row, row)
        if len(each) == usual:
            node.children = [Node(node.start, node.end, str(at), word) for at, word in enumerate(each)]
        else:
            node.odd = OTHER_SHAPE
        root.children.append(node)
    return root


def _has_digit(word: str) -> bool:
    return not word.isalpha() and any(map(str.isdigit, word))


def _words(line: str) -> list[str]:
    return _WORD.findall(line[:1000])


def _usual_count(words: Sequence[Sequence[str]]) -> int | None:
    (usual, count), *_ = Counter(map(len, words)).most_common(1)
    return usual if count >= LINES_ALIKE * len(words) and MIN_WORDS <= usual <= MAX_WORDS else None

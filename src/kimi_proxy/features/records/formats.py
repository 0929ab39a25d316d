"""JSON, lines of JSON, XML and HTML as trees, with the position of each member and element.

The last are records that no format declares: paragraphs with the same fields, as in lock files and settings, and lines
of the same shape, as `ping`, `netstat`, `hexdump` or a metrics endpoint print them. A record that differs is then found
by the field or the column in which it does.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from kimi_proxy.core import json
from kimi_proxy.features.failures import reports_failure
from kimi_proxy.features.pruning.source_type import is_logged
from kimi_proxy.features.records import tree
from kimi_proxy.features.records.tree import PLAIN, Node

MIN_NDJSON_LINES = 5
PIECE_CHARS = 160  # of a long string that is divided
MAX_DEPTH = 200

# Without commas and colons, of which nothing has to be known.
_VALUE_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s{}\[\],:"]+', re.S)
JSON_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.S)


def read_json(text: str) -> tree.Node | None:
    """Return the tree of a JSON array or object; None if the text is none, or nests too deep."""
    return _tree(text, 0, len(text)) if json.is_container(text) else None


def read_ndjson(text: str) -> tree.Node | None:
    """Return the tree of lines that are each an array or an object; None if one of them is not."""
    if text[:64].lstrip()[:1] not in ("{", "["):
        return None
    root = tree.Node(0, len(text), style=tree.ELEMENT, is_list=True)
    at = 0
    for line in text.split("\n"):
        if line.strip():
            record = _tree(text, at, at + len(line)) if json.is_container(line) else None
            if record is None:
                return None
            root.children.append(record)
        at += len(line) + 1
    return root if len(root.children) >= MIN_NDJSON_LINES else None


def _tree(text: str, start: int, end: int) -> tree.Node | None:
    """Return the tree of the JSON value in `text[start:end]`, which is known to be one."""
    open_: list[tree.Node] = []
    root: tree.Node | None = None
    key, key_start = "", -1
    for token in _VALUE_OR_BRACKET.finditer(text, start, end):
        first, after = token.span()
        character = text[first]
        if character in "}]":
            node = open_.pop()
            node.end = after
            _judge(node)
            root = node
            continue
        around = open_[-1] if open_ else None
        if character == '"' and around is not None and around.style is tree.MEMBER and key_start < 0:
            key = text[first + 1 : after - 1]
            key_start = first
            continue
        node = tree.Node(first if key_start < 0 else key_start, after, key)
        key, key_start = "", -1
        if around is not None:
            around.children.append(node)
        if character in "{[":
            if len(open_) >= MAX_DEPTH:
                return None
            node.style = tree.MEMBER if character == "{" else tree.ELEMENT
            open_.append(node)
        else:
            node.value = text[first:after]
            if after - first > tree.UNIT_CHARS:
                _divide_string(node, text, first + 1, after - 1)
    return root


def _judge(node: tree.Node) -> None:
    """Say whether the children of a container are records."""
    if node.style is tree.ELEMENT:
        node.is_list = True
        return
    node.is_list = tree.are_alike([child for child in node.children if child.style is tree.MEMBER], len(node.children))


# Neither stops within an escape.
_STRING_LINE = re.compile(r"(?:\\[^n]|[^\\]){0,600}?\\n")
_STRETCH = re.compile(r"(?:\\.|[^\\]){1,160}")
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")


def _divide_string(node: tree.Node, text: str, start: int, end: int) -> None:
    """Give a long string children: its lines, else stretches of words. An escape stays in one piece."""
    node.style = tree.IN_STRING
    at = start
    while at < end:
        line = _STRING_LINE.match(text, at, end)
        after = line.end() if line else _stretch_end(text, at, end)
        node.children.append(tree.Node(at, after, "" if line else tree.PIECE, text[at:after]))
        at = after


def _stretch_end(text: str, at: int, end: int) -> int:
    found = _STRETCH.match(text, at, end)
    stop = found.end() if found else end
    # `\u` is read as an escape of one character: its four digits may lie beyond.
    escape = text.rfind("\\u", max(at, stop - 5), stop)
    if escape >= 0 and text[escape - 1] != "\\":
        stop = min(end, escape + 6)
    if _HALF_PAIR.fullmatch(text, max(at, stop - 6), stop):
        stop = min(end, stop + 6)
    space = text.rfind(" ", at + PIECE_CHARS // 2, stop)
    return space + 1 if space >= 0 and stop < end else stop


# XML and HTML.

# A `<` in a value would be no XML, and ends the search, so that its time is linear.
_TAG = re.compile(
    r"<!--|<!\[CDATA\[|<\?|<!\w[^<>]*>"
    r"|<(/?)([A-Za-z_][\w:.-]*)((?:[\s/](?:[^<>\"']|\"[^\"<]*\"|'[^'<]*')*)?)>"
)
_ENDS = {"<!--": "-->", "<![CDATA[": "]]>", "<?": "?>"}
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)
_HTML = re.compile(
    r"\s*(?:<!--[^-]*(?:-(?!->)[^-]*)*-->\s*)*"
    r"<(?:!doctype html|html|head|body|div|p|table|ul|ol|main|article|section)\b",
    re.I,
)
_PARAGRAPH = re.compile(r"<(?:p|h[1-6])\b")
_SCRIPTS = frozenset({"script", "style"})
_RAW = _SCRIPTS | {"textarea"}
_ATTRIBUTE = re.compile(r"(?<![\w:.-])([\w:.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
MIN_ELEMENTS = 8
MIN_HTML_LINES = 50


def _is_page(text: str) -> bool:
    """Return whether HTML is read by its lines: in prose the words stand in one paragraph, the answer in the next."""
    lines = text.count("\n")
    if lines < MIN_HTML_LINES or len(text) >= tree.LONG_LINE_CHARS * lines:
        return False
    return len(_PARAGRAPH.findall(text)) > max(MIN_ELEMENTS, text.count("<tr"))


def read_xml(text: str) -> tree.Node | None:
    """Return the tree of the elements of XML, or of HTML whose elements all end; None if the text is neither."""
    if text[:64].lstrip("\ufeff \t\r\n")[:1] != "<":
        return None
    root = tree.Node(0, len(text), style=tree.XML_COMMENT)
    open_ = [root]
    count = at = 0
    is_html = _HTML.match(text) is not None
    if is_html and _is_page(text):
        return None
    while tag := _TAG.search(text, at):
        _add_text(open_[-1], text, at, tag.start())
        at = tag.end()
        closing, name, attributes = tag.groups()
        if tag[0] in _ENDS:
            end = text.find(_ENDS[tag[0]], at)
            if end < 0:
                return None
            at = end + len(_ENDS[tag[0]])
            if tag[0] in ("<![CDATA[", "<!--"):
                open_[-1].children.append(tree.Node(tag.start(), at, "#text", text[tag.start() : at]))
        elif closing:
            if open_[-1].key != name or len(open_) == 1:
                return None
            _close(open_.pop(), at)
        elif name is not None:
            count += 1
            node = _element(tag.start(), at, name, attributes)
            open_[-1].children.append(node)
            if not attributes.endswith("/") and not (is_html and name.lower() in _VOID):
                open_.append(node)
                if name.lower() in _SCRIPTS:
                    at = max(at, text.find("</", at))
    if len(open_) > 1 or count < MIN_ELEMENTS or text[at:].strip():
        return None
    for child in root.children:  # without the element around everything a text is no longer XML
        child.is_pinned = True
    return root


def _element(start: int, end: int, name: str, attributes: str) -> tree.Node:
    node = tree.Node(start, end, name, style=tree.XML_COMMENT)
    for found in _ATTRIBUTE.finditer(attributes):
        value = found[2] or found[3] or ""
        node.children.append(tree.Node(start, end, f"@{found[1]}", value, is_pinned=True))
    return node


def _close(node: tree.Node, end: int) -> None:
    node.end = end
    if node.key.lower() in _RAW:  # a comment in it would be text
        node.style = None
    names = Counter(child.key for child in node.children if not child.key.startswith(("@", "#")))
    node.is_list = names.total() >= 3 and max(names.values()) >= tree.ALIKE * names.total()


def _add_text(around: tree.Node, text: str, start: int, end: int) -> None:
    """Add what stands between two tags, in sentences if it is long."""
    piece = text[start:end]
    if not piece.strip():
        return
    start += len(piece) - len(piece.lstrip())
    end = start + len(piece.strip())
    if around.key.lower() in _RAW or end - start <= tree.UNIT_CHARS:
        around.children.append(tree.Node(start, end, "#text", text[start:end]))
        return
    at = start
    for seam in (*_SENTENCE.finditer(text, start, end), None):
        stop = seam.start() if seam else end
        if stop > at:
            around.children.append(tree.Node(at, stop, "#text", text[at:stop]))
        at = seam.end() if seam else end


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
                (each[2] or each[4] or "").strip(),
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

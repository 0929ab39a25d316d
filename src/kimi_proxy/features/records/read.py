"""The form of a text, found by its lines: tables, YAML, commits, diffs, traces, and texts of one line."""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

from kimi_proxy.core.lines import split
from kimi_proxy.features.records import tree
from kimi_proxy.features.records.formats import read_json, read_lines, read_ndjson, read_paragraphs, read_xml

MIN_ROWS = 6
MIN_CHARS = 600
SAMPLE_ROWS, SAMPLE_CHARS = 40, 4000
MAX_CHARS = 4 * 1024**2


def read(text: str) -> tree.Node | None:
    """Return the records of a text; None if it is not made of records, such as prose, code and most logs."""
    if not MIN_CHARS <= len(text) <= MAX_CHARS:
        return None
    for reader in (read_json, read_ndjson, read_xml):
        if (found := reader(text)) is not None:
            return found
    if tree.is_one_line(text):
        return _read_script(text)
    rows = Rows(text)
    readers: tuple[Callable[[Rows], tree.Node | None], ...] = (
        *(_read_diff, _read_commits, _read_short_log, _read_markdown, _read_psql),
        *(_read_delimited, _read_columns, _read_yaml, _read_traces, read_paragraphs, read_lines),
    )
    for by_rows in readers:
        if (found := by_rows(rows)) is not None:
            return found
    return _read_long_lines(rows) if tree.has_long_lines(text) else None


class Rows:
    """The lines of a text, and where each begins."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = split(text)
        self.starts = list(accumulate((len(line) + 1 for line in self.lines), initial=0))
        self.filled = [row for row, line in enumerate(self.lines) if line.strip()]

    def node(self, first: int, last: int, key: str = "") -> tree.Node:
        """Return a node for the lines from `first` to `last`, both included, without the last newline."""
        start = self.starts[first]
        end = self.starts[last] + len(self.lines[last])
        return tree.Node(start, end, key, self.text[start:end])

    def most_match(self, pattern: re.Pattern[str], share: float) -> bool:
        """Return whether that share of the lines begins so; of most texts the first ones suffice to know."""
        for rows in (self.filled[:SAMPLE_ROWS], self.filled):
            if sum(1 for row in rows if pattern.match(self.lines[row])) < share * len(rows):
                return False
        return True

    def root(self, style: tree.GapStyle) -> tree.Node:
        return tree.Node(0, len(self.text), style=style, is_list=True)


# Tables.

_DELIMITERS = ",\t;|"
MAX_NAME_WORDS = 5
MIN_CELLS = {",": 3, "\t": 2, ";": 3, "|": 3}
_RULE = re.compile(r"[-+|: =]{3,}")
ALIGNED = 0.9  # of the rows
PINNED_AT_END = re.compile(r"\(\d+ rows?\)|\d+ rows? .*")


def _read_delimited(rows: Rows) -> tree.Node | None:
    """Read CSV and TSV. Every row has as many cells as the first; a quoted cell may hold line ends."""
    if len(rows.filled) < MIN_ROWS:
        return None
    first = rows.lines[rows.filled[0]]
    delimiter = max(_DELIMITERS, key=first.count)
    wanted = first.count(delimiter) + 1
    if wanted < MIN_CELLS[delimiter]:
        return None
    counts = {rows.lines[row].count(delimiter) + 1 for row in rows.filled[:SAMPLE_ROWS]}
    if counts != {wanted} and '"' not in rows.text[:SAMPLE_CHARS]:
        return None
    cells = list(_cells(rows, delimiter))
    wanted = len(cells[0][2]) if cells else 0
    if len(cells) < MIN_ROWS or any(len(row) != wanted for _, _, row in cells):
        return None
    names = cells[0][2]
    if sum(map(bool, names)) < len(names) - 1 or any(map(_is_no_name, names)):
        return None
    quote = "" if delimiter == "\t" else '"'
    root = rows.root(tree.GapStyle(quote, quote + delimiter * (wanted - 1)))
    for start, end, row in cells:
        node = rows.node(start, end)
        node.children = [
            tree.Node(node.start, node.end, name, value) for name, value in zip(cells[0][2], row, strict=True)
        ]
        root.children.append(node)
    root.children[0].is_pinned = True
    return root


def _cells(rows: Rows, delimiter: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the first and the last line of each row, and its cells."""
    reader = csv.reader((f"{line}\n" for line in rows.lines), delimiter=delimiter, strict=True)
    before = 0
    try:
        for row in reader:
            if row:
                yield before, reader.line_num - 1, row
            before = reader.line_num
    except csv.Error:
        yield 0, 0, []


def _is_no_name(cell: str) -> bool:
    """Return whether a cell cannot head a column: a number, or a part of a sentence."""
    return _is_number(cell) or len(cell) > 60 or cell.endswith((".", ";", "{")) or len(cell.split()) > MAX_NAME_WORDS


def _is_number(text: str) -> bool:
    return text.strip().replace(".", "", 1).replace("-", "", 1).isdigit()


def _table(
    rows: Rows, found: Sequence[int], head: Sequence[int], cells: Callable[[str], list[str]], style: tree.GapStyle
) -> tree.Node:
    """Return a table whose rows are the lines of `found`; those of `head` stay."""
    names = cells(rows.lines[found[0]])
    pinned = set(head)
    root = rows.root(style)
    for row in found:
        node = rows.node(row, row)
        values = cells(rows.lines[row])
        if row in pinned:
            node.is_pinned = True
        elif len(values) == len(names):
            node.children = [tree.Node(node.start, node.end, n, v) for n, v in zip(names, values, strict=True)]
        root.children.append(node)
    return root


def _read_markdown(rows: Rows) -> tree.Node | None:
    rules = [row for row in rows.filled if _RULE.fullmatch(rows.lines[row].strip())]
    found = rows.filled[:-1] if rows.filled and PINNED_AT_END.fullmatch(rows.lines[rows.filled[-1]]) else rows.filled
    if found and rules and found[0] == rules[0]:  # as MySQL draws it
        found = found[1:]
    if len(found) < MIN_ROWS or not all(rows.lines[row].lstrip().startswith(("|", "+-")) for row in found):
        return None
    if not _RULE.fullmatch(rows.lines[found[1]].strip()):
        return None
    width = rows.lines[found[0]].strip().strip("|").count("|")
    style = tree.GapStyle("| ", " |" * (width + 1))
    head = (*found[:2], *rules[2:])
    return _table(rows, found, head, lambda line: [cell.strip() for cell in line.strip().strip("|").split("|")], style)


def _read_psql(rows: Rows) -> tree.Node | None:
    found = rows.filled
    if len(found) < MIN_ROWS or "+" not in rows.lines[found[1]] or not _RULE.fullmatch(rows.lines[found[1]].strip()):
        return None
    width = rows.lines[found[0]].count("|")
    last = found[-1] if PINNED_AT_END.fullmatch(rows.lines[found[-1]].strip()) else -1
    if width == 0 or any(rows.lines[row].count("|") < width for row in found[2:] if row != last):
        return None
    head = (*found[:2], *(() if last < 0 else (last,)))
    return _table(rows, found, head, lambda line: [cell.strip() for cell in line.split("|")], tree.PLAIN)


_HEADER_WORD = re.compile(r"\S+(?: \S+)*")


def _read_columns(rows: Rows) -> tree.Node | None:
    """Read what `docker ps`, `kubectl get`, `df` and `ps` print: names in the first line, values below them."""
    found = rows.filled
    if len(found) < MIN_ROWS:
        return None
    header = rows.lines[found[0]]
    words = header.split()
    is_ruled = _RULE.fullmatch(rows.lines[found[1]].strip()) is not None  # as `pip list` does
    fewest, head = (2, found[:2]) if is_ruled else (3, found[:1])
    if len(words) < fewest or ":" in header or not (header.isupper() or words[0].istitle() or header.islower()):
        return None
    starts = [match.start() for match in _HEADER_WORD.finditer(header)]
    body = [rows.lines[row] for row in found[len(head) :]]
    aligned = sum(1 for line in body if all(at == 0 or line[at - 1 : at] in ("", " ") for at in starts))
    if len(starts) >= fewest and aligned >= ALIGNED * len(body) and (is_ruled or header.count("  ") >= 2):
        ends = [*starts[1:], None]
        return _table(
            rows,
            found,
            head,
            lambda line: [line[at:end].strip() for at, end in zip(starts, ends, strict=True)],
            tree.PLAIN,
        )
    if header.isupper() and sum(1 for line in body if len(line.split()) >= len(words)) >= ALIGNED * len(body):
        return _table(rows, found, head, lambda line: line.split(None, len(words) - 1), tree.PLAIN)
    return None


# YAML.

_YAML_LINE = re.compile(r"( *)(?:(- +|-$)|([\w.$/@<\"'][^\s:{}()\[\]=;,]*(?: [^\s:{}()\[\]=;,]+)?):(?: |$))")
_YAML_ANY = re.compile(rf"{_YAML_LINE.pattern}| *#|---$")
_BLOCK_SCALAR = re.compile(r"[|>][+-]?\d*\s*(?:#.*)?$")
YAML_LIKE = 0.75
MAX_INDENT = 120  # deeper levels are not examined


def _read_yaml(rows: Rows) -> tree.Node | None:
    """Read YAML by its indentation. Doubtful texts are rejected: a mapping has no duplicate keys."""
    if len(rows.filled) < 2 * MIN_ROWS:
        return None
    if "\t" in rows.text or not _is_like_yaml(rows):
        return None
    heads = [_YAML_LINE.match(line) for line in rows.lines]
    root = rows.root(tree.YAML_COMMENT)
    documents = _documents(rows)
    for first, last in documents:
        document = rows.node(first, last)
        document.style = tree.YAML_COMMENT
        if not _add_block(rows, heads, document, first, last):
            return None
        root.children.append(document)
    if len(documents) == 1:
        root = root.children[0]
        root.start = 0
        root.end = len(rows.text)
    return root if root.children else None


def _is_like_yaml(rows: Rows) -> bool:
    """Return whether most lines are members, items or comments, apart from those within blocks of text."""
    within = -1  # the indentation of the member whose text goes on below it
    seen = alike = 0
    for row in rows.filled:
        line = rows.lines[row]
        indent = len(line) - len(line.lstrip(" "))
        if 0 <= within < indent:
            continue
        within = -1
        seen += 1
        alike += _YAML_ANY.match(line) is not None
        if seen == SAMPLE_ROWS and alike < YAML_LIKE * seen:
            return False
        if _YAML_LINE.match(line) and _BLOCK_SCALAR.search(line):
            within = indent
    return seen >= MIN_ROWS and alike >= YAML_LIKE * seen


def _documents(rows: Rows) -> list[tuple[int, int]]:
    """Return the first and last lines of the documents, without the lines that separate them."""
    edges = [-1, *(row for row in rows.filled if rows.lines[row].rstrip() in ("---", "...")), len(rows.lines)]
    found: list[tuple[int, int]] = []
    for before, after in pairwise(edges):
        inside = [row for row in range(before + 1, after) if rows.lines[row].strip()]
        if inside:
            found.append((inside[0], inside[-1]))
    return found


def _add_block(rows: Rows, heads: Sequence["re.Match[str] | None"], around: tree.Node, first: int, last: int) -> bool:
    """Add the members or items of a block as children; return whether it is one."""
    indent = len(rows.lines[first]) - len(rows.lines[first].lstrip(" "))
    begins: list[int] = []
    for row in range(first, last + 1):
        line = rows.lines[row]
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        here = len(line) - len(line.lstrip(" "))
        if here < indent:
            return False
        if here == indent:
            is_item = line.lstrip().startswith("- ") or line.strip() == "-"
            if begins and is_item and not _is_item(rows.lines[begins[0]]):
                continue  # a list may have the indentation of its key
            if heads[row] is None:
                return False
            begins.append(row)
    if not begins or indent > MAX_INDENT:
        return False
    keys = [heads[row][3] or "" for row in begins]  # type: ignore[index]  # each is a match
    is_list = _is_item(rows.lines[begins[0]])
    if not is_list and len(set(keys)) < len(keys):
        return False
    for row, end, key in zip(begins, (*(row - 1 for row in begins[1:]), last), keys, strict=True):
        child = rows.node(row, _last_filled(rows, row, end), key)
        child.is_pinned = "&" in child.value and re.search(r"[:-] &\w", child.value) is not None
        around.children.append(child)
        _look_into(rows, heads, child, row, end)
    mappings = [child for child in around.children if child.style is tree.YAML_COMMENT and not child.is_list]
    around.is_list = is_list or tree.are_alike(mappings, len(around.children))
    return True


def _is_item(line: str) -> bool:
    return line.lstrip().startswith("- ") or line.strip() == "-"


def _last_filled(rows: Rows, first: int, last: int) -> int:
    while last > first and (not rows.lines[last].strip() or rows.lines[last].lstrip().startswith("#")):
        last -= 1
    return last


def _look_into(rows: Rows, heads: Sequence["re.Match[str] | None"], node: tree.Node, row: int, last: int) -> None:
    """Add the contents of a member or an item; a text of several lines stays a leaf."""
    line = rows.lines[row]
    head = heads[row]
    rest = line[head.end() :].strip() if head is not None else ""
    last = _last_filled(rows, row, last)
    if head is not None and head[2] is not None:  # an item: its first member follows the dash
        node.style = tree.YAML_COMMENT
        first = tree.Node(node.start, rows.starts[row] + len(line), "", rest, is_pinned=True)
        inner = _YAML_LINE.match(rest)
        if inner is not None and inner[3]:
            first.value = rest[inner.end() :].strip()
            first.key = inner[3]
        if last == row:
            node.children = [first]
            node.style = None
            return
        if _BLOCK_SCALAR.search(rest) or not _add_members(rows, heads, node, row + 1, last, first):
            node.children = []
            node.style = None
        return
    if last == row:
        node.value = rest
        return
    if rest and not rest.startswith("#"):
        return  # a text that continues below, or a block of text
    node.style = tree.YAML_COMMENT
    below = next(
        at for at in range(row + 1, last + 1) if rows.lines[at].strip() and not rows.lines[at].lstrip().startswith("#")
    )
    if not _add_block(rows, heads, node, below, last):
        node.children = []
        node.style = None


def _add_members(
    rows: Rows, heads: Sequence["re.Match[str] | None"], node: tree.Node, first: int, last: int, head: tree.Node
) -> bool:
    """Add the members of an item below its first one, which may itself continue there."""
    indent = rows.lines[first - 1].index("- ") + 2
    while rows.lines[first - 1][indent : indent + 1] == " ":
        indent += 1
    at = first
    while at <= last and (not rows.lines[at].strip() or len(rows.lines[at]) - len(rows.lines[at].lstrip(" ")) > indent):
        at += 1
    if at > last:
        return False
    if at > first:
        head.end = rows.starts[at] - 1
    node.children.append(head)
    return len(rows.lines[at]) - len(rows.lines[at].lstrip(" ")) == indent and _add_block(rows, heads, node, at, last)


# What git prints.

_COMMIT = re.compile(r"commit [0-9a-f]{7,40}\b")
_SHORT = re.compile(r"[*|\\/ ]{0,12}([0-9a-f]{7,12}) (?:\([^)]*\) )?\S")
_DIFF = re.compile(r"diff --git |diff -|Index: |--- (?=\S)")


def _blocks(rows: Rows, begins: Sequence[int], until: int) -> Iterator[tuple[int, int]]:
    for row, after in zip(begins, (*begins[1:], until), strict=True):
        yield row, _last_filled_row(rows, row, after - 1)


def _last_filled_row(rows: Rows, first: int, last: int) -> int:
    while last > first and not rows.lines[last].strip():
        last -= 1
    return last


def _read_commits(rows: Rows) -> tree.Node | None:
    if not rows.filled or not _COMMIT.match(rows.lines[rows.filled[0]]):
        return None
    begins = [row for row in rows.filled if _COMMIT.match(rows.lines[row])]
    if len(begins) < 3:
        return None
    root = rows.root(tree.PLAIN)
    for first, last in _blocks(rows, begins, len(rows.lines)):
        commit = rows.node(first, last)
        _name_lines(rows, commit, first, last)
        if commit.size > tree.UNIT_CHARS:
            _divide_commit(rows, commit, first, last)
        root.children.append(commit)
    return root


def _name_lines(rows: Rows, commit: tree.Node, first: int, last: int) -> None:
    """Give a commit the values for comparison with others: its header fields, its subject, its words."""
    said: list[str] = []
    for line in rows.lines[first : last + 1]:
        name, colon, value = line.partition(":")
        if colon and name.isalpha() and not said:
            commit.children.append(tree.Node(commit.start, commit.end, name, value.strip()))
        elif line.startswith("    ") and line.strip():
            said.append(line.strip())
    commit.children += [
        tree.Node(commit.start, commit.end, name, value) for name, value in zip(("subject", "body"), said, strict=False)
    ]


def _divide_commit(rows: Rows, commit: tree.Node, first: int, last: int) -> None:
    """Keep the header of a long commit with its subject, and look into what follows: words, files, hunks."""
    commit.style = tree.PLAIN
    row = first
    while row < last and not rows.lines[row].startswith("    "):
        row += 1
    commit.children = [rows.node(first, row)]
    commit.children[0].is_pinned = True
    changes = next((at for at in range(row + 1, last + 1) if _DIFF.match(rows.lines[at])), last + 1)
    commit.children += [rows.node(at, at) for at in range(row + 1, changes) if rows.lines[at].strip()]
    if changes <= last:
        commit.children += _files(rows, changes, last)


def _read_short_log(rows: Rows) -> tree.Node | None:
    found = rows.filled
    if len(found) < MIN_ROWS or not rows.most_match(_SHORT, ALIGNED) or not _are_commits(rows):
        return None
    root = rows.root(tree.PLAIN)
    root.children = [rows.node(row, row) for row in found]
    return root


def _are_commits(rows: Rows) -> bool:
    """Return whether lines begin with ids of commits: not with times or numbers, which hold no letter."""
    ids = [match[1] for row in rows.filled if (match := _SHORT.match(rows.lines[row]))]
    lettered = sum(1 for id in ids if not id.isdigit())
    # Of seven hexadecimal digits one in 27 holds no letter.
    return lettered >= LETTERED * len(ids)


LETTERED = 0.75


def _read_diff(rows: Rows) -> tree.Node | None:
    if not rows.filled or not _DIFF.match(rows.lines[rows.filled[0]]) or "\n@@ " not in rows.text:
        return None
    root = rows.root(tree.PLAIN)
    root.children = _files(rows, rows.filled[0], rows.filled[-1])
    return root


def _files(rows: Rows, first: int, last: int) -> list[tree.Node]:
    """Return the files of a diff, each with its header and its hunks."""
    begins = [row for row in range(first, last + 1) if rows.lines[row].startswith(("diff ", "Index: "))]
    begins = begins or [row for row in range(first, last + 1) if rows.lines[row].startswith("--- ")]
    if not begins or begins[0] != first:
        begins = [first, *begins]
    found: list[tree.Node] = []
    for start, end in _blocks(rows, begins, last + 1):
        file = rows.node(start, end)
        hunks = [row for row in range(start, end + 1) if rows.lines[row].startswith("@@")]
        if hunks and file.size > tree.UNIT_CHARS:
            file.style = tree.PLAIN
            file.is_list = True
            file.children = [rows.node(start, hunks[0] - 1)] if hunks[0] > start else []
            for child in file.children:
                child.is_pinned = True
            file.children += [_hunk(rows, *block) for block in _blocks(rows, hunks, end + 1)]
        found.append(file)
    return found


def _hunk(rows: Rows, first: int, last: int) -> tree.Node:
    hunk = rows.node(first, last)
    if hunk.size > 2 * tree.UNIT_CHARS:
        hunk.style = tree.PLAIN
        hunk.children = [rows.node(row, row) for row in range(first, last + 1)]
        hunk.children[0].is_pinned = True
    return hunk


# Traces: blocks with a line that names the error, and frames below it.

_FRAME = re.compile(
    r'\s+at [\w.$<>/@]+ ?[(\[]|\s+File "[^"]*", line \d|\s+from \S+:\d+:in |\s+\S+\.go:\d|\s*#\d+ +0x'
    r"|\s+\.\.\. \d+ more"
)
MIN_TRACES = 3
TRACED = 0.35  # of the lines: in Python every second one is a frame
FRAMES_BESIDE = 2


def _read_traces(rows: Rows) -> tree.Node | None:
    if len(rows.filled) < 2 * MIN_ROWS or not rows.most_match(_FRAME, TRACED):
        return None
    begins = [rows.filled[0]]
    for before, row in zip(rows.filled, rows.filled[1:], strict=False):
        if row - before > 1 and not rows.lines[row][:1].isspace():
            begins.append(row)
    if len(begins) < MIN_TRACES:
        return None
    root = rows.root(tree.PLAIN)
    for first, last in _blocks(rows, begins, len(rows.lines)):
        trace = rows.node(first, last)
        has_frames = any(_FRAME.match(rows.lines[row]) for row in range(first, last + 1))
        if not has_frames:
            root.children += [rows.node(row, row) for row in range(first, last + 1) if rows.lines[row].strip()]
            continue
        if trace.size > tree.UNIT_CHARS:
            trace.style = tree.PLAIN
            trace.children = [rows.node(row, row) for row in range(first, last + 1)]
            _pin_ends(trace)
        root.children.append(trace)
    return root


def _pin_ends(trace: tree.Node) -> None:
    """Keep the line of a trace that names the error, and the frame next to it: above it in Python, else below."""
    said = [at for at, line in enumerate(trace.children) if line.value[:1].strip()]
    for at in said:
        for beside in range(max(0, at - FRAMES_BESIDE), min(len(trace.children), at + FRAMES_BESIDE + 1)):
            trace.children[beside].is_pinned = True


# A few very long lines among short ones, such as a body below its status line.


def _read_long_lines(rows: Rows) -> tree.Node:
    """Read each long line by itself; a line that is shorter than a marker stays."""
    root = tree.Node(0, len(rows.text), style=tree.PLAIN)
    for row in rows.filled:
        line = read(rows.lines[row])
        if line is None:
            line = rows.node(row, row)
            line.is_pinned = line.size <= tree.MARKER_CHARS
        else:
            tree.move(line, rows.starts[row])
        root.children.append(line)
    if all(line.style in (None, tree.INLINE) for line in root.children):
        root.children[0].key = tree.PIECE  # words, which a goal has to choose among
    return root


# One line of something else: a minified script, a style sheet, words.

_SCRIPT_SEAM = re.compile(r"[;}]+")
PIECE_CHARS = 120
_SCRIPT_SIGNS = re.compile(r"[{};]")


def _read_script(text: str) -> tree.Node | None:
    """Divide a text of one line at its own separators; those in it that end a statement, else between words."""
    is_script = len(_SCRIPT_SIGNS.findall(text[:20_000])) >= len(text[:20_000]) // 100
    root = tree.Node(0, len(text), style=tree.SCRIPT_COMMENT if is_script else tree.INLINE, is_list=True)
    root.children = list(_statements(text) if is_script else _words(text, 0, len(text)))
    if len(root.children) < MIN_ROWS:
        return None
    root.children[0].is_pinned = True  # no marker names the first part, whose number is that of the line
    return root


def _statements(text: str) -> Iterator[tree.Node]:
    at = 0
    while at < len(text):
        stop = min(at + PIECE_CHARS // 2, len(text))
        seam = _SCRIPT_SEAM.search(text, stop, min(stop + tree.UNIT_CHARS, len(text)))
        after = seam.end() if seam else min(at + PIECE_CHARS, len(text))
        yield tree.Node(at, after, value=text[at:after])
        at = after


def _words(text: str, start: int, end: int) -> Iterator[tree.Node]:
    """Yield pieces of about the same length that end behind a word."""
    at = start
    while at < end:
        stop = min(at + PIECE_CHARS, end)
        space = text.find(" ", stop, min(stop + PIECE_CHARS, end))
        after = space + 1 if space >= 0 else stop
        yield tree.Node(at, after, tree.PIECE, text[at:after])
        at = after

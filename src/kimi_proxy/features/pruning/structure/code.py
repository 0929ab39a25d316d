"""The structure of code: its header, imports and definitions, and the statements between."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from kimi_proxy.features.pruning.structure import languages, syntax
from kimi_proxy.features.pruning.structure.blocks import Block, Outline, Span, nest
from kimi_proxy.features.pruning.structure.syntax import Syntax

PARSE_MAX_CHARS = 512 * 1024
HEADER_LINES = 3

_COMMENT_OPENERS = ("#", "//", "/*", "*", '"""', "'''", "--", ";;", "<!--", "=begin", 'r"""')
_HASH_COMMENTS = frozenset({"", "python", "ruby", "bash", "php"})


@contextmanager
def outlining(lines: Sequence[str], check: Callable[[], None]) -> Iterator[Callable[[], Outline]]:
    """Parse `lines` beside the block, which gets a function that waits for their outline."""
    name = languages.guess(lines)
    check()
    is_parsed = name and sum(map(len, lines)) + len(lines) <= PARSE_MAX_CHARS
    with syntax.reading(lines, name, check) if is_parsed else nullcontext(lambda: None) as parsed:

        def make_outline() -> Outline:
            alike = likenesses(lines, check)  # before it waits for the parse
            return _outline(lines, name, parsed() or Syntax(errors=[(0, len(lines))]), alike, check)

        yield make_outline


def _outline(
    lines: Sequence[str], name: str, found: Syntax, alike: Sequence[int], check: Callable[[], None]
) -> Outline:
    marks = _marks(lines, found, alike, check)
    spans = [*_definitions(lines, found, marks, check), *_import_spans(marks), *_file_header(lines, marks, name)]
    blocks = with_statements(lines, spans, found.statements, check)
    if found.closures:
        blocks = with_closures(blocks, found.closures, len(lines))
    return Outline(blocks, tuple(marks.get(row, "") for row in range(len(lines))), name)


def _marks(lines: Sequence[str], found: Syntax, alike: Sequence[int], check: Callable[[], None]) -> dict[int, str]:
    """Return why lines must stay; where the parse failed, by the first words of a line."""
    marks: dict[int, str] = {}
    for start, end in found.errors:
        marks.update(mark(lines, start, min(end, len(lines)), check))
    for definition in found.definitions:
        for row in range(definition.start, definition.body):
            if lines[row].strip():
                marks.setdefault(row, "signature+")
        marks[definition.signature] = "signature"
    for row in found.members:
        marks[row] = "signature"
    for start, end in found.imports:
        marks.update((row, "import") for row in range(start, min(end, len(lines))))
    for row in alike:
        marks.setdefault(row, "likeness")
    return marks


def _definitions(lines: Sequence[str], found: Syntax, marks: dict[int, str], check: Callable[[], None]) -> list[Span]:
    if sum(end - start for start, end in found.errors) * 2 > len(lines):
        return rule_spans(lines, check)
    above = _attached_rows(lines, found, marks)
    spans: list[Span] = []
    for definition in found.definitions:
        start = above(definition.start)
        spans.append(Span(start, definition.end, definition.body, definition.kind, definition.name))
        if start < definition.start:
            spans.append(Span(start, definition.start, definition.start, "comment"))
    return spans


def _attached_rows(lines: Sequence[str], found: Syntax, marks: dict[int, str]) -> Callable[[int], int]:
    """Return a function from a definition's first row to that of the comments and attributes right above it."""
    comments = {end: start for start, end in found.comments if lines[start].lstrip().startswith(_COMMENT_OPENERS)}
    attributes = {end: start for start, end in found.attributes}

    def above(row: int) -> int:
        while row in comments or row in attributes:
            if row in attributes:
                marks.update((r, "signature+") for r in range(attributes[row], row) if not marks.get(r))
                row = attributes[row]
            else:
                row = comments[row]
        return row

    return above


def _import_spans(marks: dict[int, str]) -> list[Span]:
    """Return runs of imports, blank lines between them not counted in."""
    found: list[Span] = []
    for row in sorted(row for row, why in marks.items() if why == "import"):
        if found and row == found[-1].end:
            found[-1] = found[-1]._replace(end=row + 1, body=row + 1)
        else:
            found.append(Span(row, row + 1, row + 1, "import"))
    return found


def _file_header(lines: Sequence[str], marks: dict[int, str], name: str) -> list[Span]:
    """Return the comment or docstring that opens the file; its first lines stay."""
    openers = _COMMENT_OPENERS if name in _HASH_COMMENTS else _COMMENT_OPENERS[1:]
    start = next((row for row, line in enumerate(lines) if line.strip()), len(lines))
    end = start
    closing = ""
    for row in range(start, len(lines)):
        bare = lines[row].strip()
        if closing:
            end = row + 1
            if closing in bare:
                break
            continue
        if row in marks or not bare.startswith(openers):
            break
        end = row + 1
        closing = _open_closer(bare)
    if end == start:
        return []
    for row in range(start, min(end, start + HEADER_LINES)):
        marks.setdefault(row, "header")
    return [Span(start, end, min(end, start + HEADER_LINES), "file-header")]


def _open_closer(bare: str) -> str:
    """Return what closes the block comment or docstring that `bare` opens and does not close."""
    for opening, closing in (('"""', '"""'), ("'''", "'''"), ("/*", "*/"), ("<!--", "-->")):
        if bare.startswith(opening) and closing not in bare[len(opening) :]:
            return closing
    return ""


LINE_CHARS = 300

_IMPORT = re.compile(
    r"""(?:
    import\b(?!\s*[=:.(]) | from\s+\S+\s+import\b | \#\s*(?:include|import)\b | @import\b
    | (?:pub\s+)?use\s+[\w\\:{] | package\s++[\w.]++\s*+(?:;\s*+)?$ | (?:global\s++)?using\s++[\w.=<>][\w.= <>]*+;
    | (?:(?:const|let|var)\s[^=]{0,200}=\s*)?require(?:_relative|_once)?[\s(]+['"] | include(?:_once)?[\s(]+['"]
    | (?:source|\.)\s+[\w./"$~] | extern\s+crate\b | library\( | <\?php
    )""",
    re.VERBOSE,
)
_KEYWORD = re.compile(
    r"""
    (?:(?:export|default|public|private|protected|internal|static|final|abstract|sealed|async|override|virtual
        |inline|open|data|suspend|partial|unsafe|extern|const|pub(?:\([^)]{0,40}\))?|declare|local)\s+){0,6}
    (?:
        (?P<kind>class|interface|enum|struct|trait|impl|record|namespace|module|mod|protocol|object|extension|union)
        (?:<[^>]{0,80}>)?\s+(?P<name>[\w$.:]+)
        | (?:def|defp|defmodule|defmacro|func|fn|fun|function|sub|proc)\b\s*
          (?:\([^)]{0,80}\)\s*)?(?P<function>[\w$.:?!]*)
        | typedef\b | template\s*< | (?:type|newtype)\s+[A-Z]\w*
    )""",
    re.VERBOSE,
)
_FIRST_WORDS = frozenset(
    {
        "abstract", "async", "class", "const", "def", "default", "enum", "export", "fn", "from", "func", "function",
        "impl", "import", "include", "interface", "mod", "namespace", "package", "private", "protected", "pub",
        "public", "require", "struct", "template", "trait", "typedef", "unsafe", "use",
    }
)  # fmt: skip
_FIRST_WORD = re.compile(r"(?:#\s*+)?([a-z]+)")
_LIKENESS = re.compile(
    r"""(?:
    (?:import|package|def|func|fn|function|class|interface|enum|struct|trait|impl|mod|typedef|namespace)\b
    | from\s+\S+\s+import\b | \#\s*include\b | use\s+\S+; | require\( | template\s*<
    | (?:public|private|protected)\s
    | (?:export|default|async|abstract|pub(?:\([^)]{0,40}\))?|unsafe|const)\s+
      (?:(?:default|async|abstract|unsafe|const)\s+){0,3}
      (?:def|fn|function|class|interface|enum|struct|trait|impl|mod)\b
    )""",
    re.VERBOSE,
)
_ACCESS = re.compile(r"(?:public|private|protected|internal)\s+(?:[^(=;]{0,120}?(?<!\w)(?P<name>\w++)\s*+\()?")
# At the margin, as in C: a type, a name, parameters, and no semicolon.
_MARGIN = re.compile(r"[A-Za-z_][\w\s*&:<>,~]{0,120}?[\s*&](?P<name>[\w:~]+)\s*\([^;=]{0,250}$")
_STATEMENTS = frozenset(
    {"if", "for", "while", "switch", "return", "else", "catch", "do", "try", "with", "elif", "new", "await", "case"}
)
_DECORATOR = re.compile(r"(?:@[A-Za-z]|#!?\[|\[[A-Z]\w*(?:\(.*\))?\]\s*$)")
_STAYS_OPEN = re.compile(r"(?:[)}\]{#]|end\b|(?:public|private|protected)\s*:)")
_KINDS = {"enum": "type", "union": "type", "namespace": "namespace", "module": "namespace", "mod": "namespace"}


def mark(lines: Sequence[str], start: int, end: int, check: Callable[[], None]) -> dict[int, str]:
    """Return why lines from `start` to `end` must stay, for those that must."""
    marks: dict[int, str] = {}
    for row in range(start, end):
        if row % 1000 == 0:
            check()
        bare = lines[row].lstrip()
        if bare and _IMPORT.match(bare[:LINE_CHARS]):
            marks[row] = "import"
        elif bare and _defines(bare[:LINE_CHARS], len(lines[row]) - len(bare)) is not None:
            marks[row] = "signature"
    return marks


def likenesses(lines: Sequence[str], check: Callable[[], None]) -> list[int]:
    """Return lines that read like an import or a definition, also those that are none: a field, an example."""
    found: list[int] = []
    for row, line in enumerate(lines):
        if row % 1000 == 0:
            check()
        bare = line.lstrip()
        word = _FIRST_WORD.match(bare)
        if word and word[1] in _FIRST_WORDS and _LIKENESS.match(bare[:LINE_CHARS]):
            found.append(row)
    return found


def rule_spans(lines: Sequence[str], check: Callable[[], None]) -> list[Span]:
    """Return definitions by their first words; each lasts while lines are deeper than it, and takes its closer."""
    found: list[Span] = []
    opened: list[tuple[int, Span]] = []
    decorated = -1
    last = 0
    for row, line in enumerate(lines):
        if row % 1000 == 0:
            check()
        bare = line.lstrip()
        if not bare:
            continue
        indent = len(line) - len(bare)
        text = bare[:LINE_CHARS]
        stays = _STAYS_OPEN.match(text) is not None
        while opened and (indent < opened[-1][0] or (indent == opened[-1][0] and not stays)):
            found.append(opened.pop()[1]._replace(end=last + 1))
        last = row
        if _DECORATOR.match(text):
            decorated = row if decorated < 0 else decorated
            continue
        defined = None if stays else _defines(text, indent)
        if defined is not None:
            opened.append((indent, Span(decorated if decorated >= 0 else row, row + 1, row + 1, *defined)))
        decorated = -1
    return found + [span._replace(end=last + 1) for _, span in opened]


def _defines(line: str, indent: int) -> tuple[str, str] | None:
    """Return the kind and name of what `line`, given without its `indent`, begins to define."""
    keyword = _KEYWORD.match(line)
    if keyword is not None:
        if keyword["kind"]:
            return _KINDS.get(keyword["kind"], "class"), keyword["name"]
        return ("type", "") if keyword["function"] is None else ("function", keyword["function"])
    access = _ACCESS.match(line)
    if access is not None:
        return ("method", access["name"]) if access["name"] else ("statement", "")
    margin = _MARGIN.match(line) if not indent else None
    if margin is not None and line.split(None, 1)[0] not in _STATEMENTS:
        return "function", margin["name"]
    return None


# Bodies up to this length are kept or cut as a whole.
LONG_LINES = 60
# A statement of this length is a block of its own; shorter ones are grouped.
ALONE_LINES = 12
# A run with no blank line in it is cut when it gets this long.
RUN_LINES = 30
DEEPEST = 6

_OPEN_KINDS = frozenset({"class", "namespace"})
_CLOSERS = frozenset(")]};,")


def with_statements(
    lines: Sequence[str], spans: Sequence[Span], statements: Sequence[tuple[int, int]], check: Callable[[], None]
) -> tuple[Block, ...]:
    """Return the tree of `spans`, and of the statements in the file, in classes and in long bodies."""
    found = [*spans, *_outer(nest([*spans, *(Span(s, e, s + 1, "?") for s, e in statements)], len(lines)))]
    check()
    for gap_start, gap_end in _gaps(nest(found, len(lines)), len(lines)):
        _cut(lines, gap_start, gap_end, found, DEEPEST)
    check()
    return nest(found, len(lines))


def with_closures(blocks: Sequence[Block], closures: Sequence[tuple[int, int]], line_count: int) -> tuple[Block, ...]:
    """Return `blocks` and those of functions and classes that have no name; the row where one begins is its header."""
    spans = [Span(block.start, block.end, block.body, block.kind, block.name) for block in blocks]
    named = [span for span in spans if span.kind != "statement"]
    # Of two blocks of the same lines the first stays: a definition, then a closure, then a statement.
    unnamed = [Span(start, end, start + 1, "closure") for start, end in closures]
    return nest([*named, *unnamed, *(span for span in spans if span.kind == "statement")], line_count)


def _is_open(block: Block) -> bool:
    """Return whether the direct contents of `block` get blocks of their own."""
    return block.kind in _OPEN_KINDS or (block.end - block.body > LONG_LINES and block.kind != "comment")


def _outer(blocks: Sequence[Block]) -> list[Span]:
    """Return those of the candidate statements ("?") that stand in something open and are long or hold a definition."""
    found: list[Span] = []
    opened: list[tuple[int, bool]] = []
    for at, block in enumerate(blocks):
        while opened and opened[-1][0] <= block.start:
            opened.pop()
        if opened and not opened[-1][1]:
            opened.append((block.end, False))
            continue
        if block.kind != "?":
            opened.append((block.end, _is_open(block)))
        elif block.end - block.start >= ALONE_LINES or _holds_definition(blocks, at):
            found.append(Span(block.start, block.end, block.body, "statement"))
            opened.append((block.end, _is_open(block)))
    return found


def _holds_definition(blocks: Sequence[Block], at: int) -> bool:
    for inner in blocks[at + 1 : at + 2 + ALONE_LINES]:
        if inner.start >= blocks[at].end:
            return False
        if inner.kind != "?":
            return True
    return False


def _gaps(blocks: Sequence[Block], line_count: int) -> list[tuple[int, int]]:
    """Return the stretches of lines in the file and in open blocks that belong to no child block."""
    gaps: list[tuple[int, int]] = []
    opened: list[tuple[int, bool]] = [(line_count, True)]
    free = [0]

    def close(until: int) -> None:
        if opened[-1][1] and free[-1] < until:
            gaps.append((free[-1], until))

    for block in (*blocks, None):
        while opened and (block is None or opened[-1][0] <= block.start):
            close(opened[-1][0])
            opened.pop()
            free.pop()
        if block is not None:
            close(block.start)
            free[-1] = max(free[-1], block.end)
            opened.append((block.end, _is_open(block)))
            free.append(block.body)
    return gaps


def _cut(lines: Sequence[str], start: int, end: int, found: list[Span], depth: int) -> None:
    """Add runs that begin after a blank line at the shallowest indent; long ones are cut again, deeper."""
    indents = [_indent(lines[row]) for row in range(start, end)]
    shallowest = min((i for i in indents if i is not None), default=None)
    if shallowest is None:
        return
    first = last = -1
    blank = False
    for row, indent in enumerate(indents, start):
        if indent is None:
            blank = True
            continue
        fresh = indent <= shallowest and lines[row][indent] not in _CLOSERS
        if first < 0:
            first = row
        elif fresh and (blank or row - first >= RUN_LINES):
            _add(lines, first, last + 1, found, depth)
            first = row
        blank = False
        last = row
    _add(lines, first, last + 1, found, depth)


def _add(lines: Sequence[str], start: int, end: int, found: list[Span], depth: int) -> None:
    if all(set(line.strip()) <= _CLOSERS for line in lines[start:end]):
        return
    long = end - start > LONG_LINES and depth > 0
    found.append(Span(start, end, start + 1 if long else end, "statement"))
    if long:
        _cut(lines, start + 1, end - 1, found, depth - 1)


def _indent(line: str) -> int | None:
    bare = line.lstrip()
    return len(line) - len(bare) if bare else None

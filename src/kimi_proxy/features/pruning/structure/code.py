"""What code is made of: its header, imports and definitions, and the statements between."""

from collections.abc import Callable, Sequence

from kimi_proxy.features.pruning.structure import language, rules, syntax
from kimi_proxy.features.pruning.structure.blocks import Outline, Span
from kimi_proxy.features.pruning.structure.statements import with_statements
from kimi_proxy.features.pruning.structure.syntax import Definition, Syntax

# A parse cannot be interrupted, so beyond this size there is none.
PARSE_MAX_CHARS = 512 * 1024
TRIAL_LINES = 250
TRIAL_CHARS = 12_000
TRIAL_MAX_ERRORS = 40
HEADER_LINES = 3

_COMMENT_OPENERS = ("#", "//", "/*", "*", '"""', "'''", "--", ";;", "<!--", "=begin", 'r"""')
_HASH_COMMENTS = frozenset({"", "python", "ruby", "bash", "php"})


def outline(lines: Sequence[str], check: Callable[[], None]) -> Outline:
    name = language.guess(lines)
    check()
    parseable = name and _is_parseable(lines, name)
    found = syntax.read(lines, name, check) if parseable else Syntax(errors=[(0, len(lines))])
    marks = _marks(lines, found, check)
    spans = [*_definitions(lines, found, marks, check), *_import_spans(marks), *_file_header(lines, marks, name)]
    blocks = with_statements(lines, spans, found.statements, check)
    protected = [""] * len(lines)
    for row, why in marks.items():
        protected[row] = why
    return Outline(blocks, tuple(protected), name)


def _is_parseable(lines: Sequence[str], name: str) -> bool:
    """Whether a parse will end soon: recovery from errors takes quadratic time, so a long text gets a trial."""
    chars = sum(map(len, lines)) + len(lines)
    if chars > PARSE_MAX_CHARS:
        return False
    if len(lines) <= TRIAL_LINES and chars <= TRIAL_CHARS:
        return True
    head = "\n".join(lines[:TRIAL_LINES])[:TRIAL_CHARS]
    return syntax.count_errors(head.split("\n"), name) <= TRIAL_MAX_ERRORS


def _marks(lines: Sequence[str], found: Syntax, check: Callable[[], None]) -> dict[int, str]:
    """Why lines must stay; where the parse failed, line rules say what they know."""
    marks: dict[int, str] = {}
    for start, end in found.errors:
        marks.update(rules.mark(lines, start, min(end, len(lines)), check))
    for definition in found.definitions:
        _mark_header(definition, lines, marks)
    for row in found.members:
        marks[row] = "signature"
    for start, end in found.imports:
        marks.update((row, "import") for row in range(start, min(end, len(lines))))
    marks.update((row, "likeness") for row in rules.likenesses(lines, marks, check))
    return marks


def _definitions(lines: Sequence[str], found: Syntax, marks: dict[int, str], check: Callable[[], None]) -> list[Span]:
    if sum(end - start for start, end in found.errors) * 2 > len(lines):
        return rules.spans(lines, check)
    above = _attached(lines, found, marks)
    spans: list[Span] = []
    for definition in found.definitions:
        start = above(definition.start)
        spans.append(Span(start, definition.end, definition.body, definition.kind, definition.name))
        if start < definition.start:
            spans.append(Span(start, definition.start, definition.start, "comment"))
    return spans


def _mark_header(definition: Definition, lines: Sequence[str], marks: dict[int, str]) -> None:
    for row in range(definition.start, definition.body):
        if lines[row].strip():
            marks.setdefault(row, "signature+")
    marks[definition.signature] = "signature"


def _attached(lines: Sequence[str], found: Syntax, marks: dict[int, str]) -> Callable[[int], int]:
    """A function from a definition's first row to that of the comments and attributes right above it."""
    comments = {end: start for start, end in found.comments if _opens_line(lines[start])}
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


def _opens_line(line: str) -> bool:
    return line.lstrip().startswith(_COMMENT_OPENERS)


def _import_spans(marks: dict[int, str]) -> list[Span]:
    """Runs of imports, blank lines between them not counted in."""
    found: list[Span] = []
    for row in sorted(row for row, why in marks.items() if why == "import"):
        if found and row == found[-1].end:
            found[-1] = found[-1]._replace(end=row + 1, body=row + 1)
        else:
            found.append(Span(row, row + 1, row + 1, "import"))
    return found


def _file_header(lines: Sequence[str], marks: dict[int, str], name: str) -> list[Span]:
    """The comment or docstring that opens the file; its first lines stay."""
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
        closing = _left_open(bare)
    if end == start:
        return []
    for row in range(start, min(end, start + HEADER_LINES)):
        marks.setdefault(row, "header")
    return [Span(start, end, min(end, start + HEADER_LINES), "file-header")]


def _left_open(bare: str) -> str:
    """What closes the block comment or docstring that `bare` opens and does not close."""
    for opening, closing in (('"""', '"""'), ("'''", "'''"), ("/*", "*/"), ("<!--", "-->")):
        if bare.startswith(opening) and closing not in bare[len(opening) :]:
            return closing
    return ""

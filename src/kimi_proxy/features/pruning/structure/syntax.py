"""The grammars of languages, and the facts of a parse tree by row: imports, definitions, comments, errors.

A new language is one table in languages.toml, and its grammar among the dependencies."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, resources
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree, TreeCursor


class LanguageTable(msgspec.Struct, frozen=True):
    """A table of languages.toml, which documents its keys."""

    module: str = ""
    entry: str = ""
    like: str = ""
    imports: str = ""
    definitions: dict[str, str] = {}
    with_body: str = ""
    wrappers: str = ""
    members: str = ""
    attributes: str = ""
    calls: str = ""
    closures: str = ""
    strings: dict[int, tuple[str, ...]] = {}
    openers: tuple[tuple[int, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Grammar:
    """The node types of one language; `definitions` maps a node type to the kind of its block."""

    module: str = ""
    entry: str = "language"
    definitions: Mapping[str, str] = field(default_factory=dict)
    imports: frozenset[str] = frozenset()
    with_body: frozenset[str] = frozenset()
    wrappers: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    closures: frozenset[str] = frozenset()


@cache
def languages() -> dict[str, LanguageTable]:
    raw = (resources.files(__package__) / "languages.toml").read_bytes()
    return msgspec.toml.decode(raw, type=dict[str, LanguageTable], strict=False)


@cache
def grammar_of(language: str) -> Grammar:
    table = languages()[language]
    base = grammar_of(table.like) if table.like else Grammar()

    def own_words(words: str, inherited: frozenset[str]) -> frozenset[str]:
        return frozenset(words.split()) or inherited

    return Grammar(
        table.module or base.module,
        table.entry or base.entry,
        {**base.definitions, **{node: kind for kind, words in table.definitions.items() for node in words.split()}},
        own_words(table.imports, base.imports),
        own_words(table.with_body, base.with_body),
        own_words(table.wrappers, base.wrappers),
        own_words(table.members, base.members),
        own_words(table.attributes, base.attributes),
        own_words(table.calls, base.calls),
        own_words(table.closures, base.closures),
    )


@cache
def parser(language: str) -> "Parser":
    """Return the parser of a language; its grammar is loaded when first needed (30 ms for all of them)."""
    from tree_sitter import Language, Parser  # a process that never parses does not load it

    grammar = grammar_of(language)
    return Parser(Language(getattr(import_module(grammar.module), grammar.entry)()))


# A header longer than this is data (a huge default, a generated parameter list), not a signature.
HEADER_MAX_LINES = 40
NAME_MAX_CHARS = 80

# Shorter statements get no block of their own.
STATEMENT_LINES = 4

# A long text with so many errors in its head is read by line rules.
TRIAL_LINES = 250
TRIAL_CHARS = 12_000
TRIAL_MAX_ERRORS = 40

# Ten times what a parse takes. Recovery from errors takes quadratic time, and so do some texts without an error.
PARSE_CPU_S = 0.1
PARSE_CPU_S_PER_CHAR = 3e-6

# Has a job done by `perform` in a limit of CPU seconds, beside a block that may wait for the answer, or None if it was
# ended.
Guard: TypeAlias = Callable[[bytes, float], AbstractContextManager[Callable[[], bytes | None]]]


def _direct(job: bytes, cpu_s: float) -> AbstractContextManager[Callable[[], bytes | None]]:
    return nullcontext(lambda: perform(job))


# A parse cannot be interrupted, and holds the interpreter lock while it runs: a process that others wait for has
# another one, that can be killed, do it, or does without (None).
_guard: ContextVar[Guard | None] = ContextVar("guard", default=_direct)


@contextmanager
def parsing_by(guard: Guard | None) -> Iterator[None]:
    """Parse with `guard` inside the block; without one nothing is parsed."""
    token = _guard.set(guard)
    try:
        yield
    finally:
        _guard.reset(token)


_CALLEE = re.compile(r"\s*(?:(?:const|let|var)\s[^=]{0,200}=\s*)?(?:await\s+)?([\w.]+)")
_CALLS = frozenset({"call", "command", "lexical_declaration", "variable_declaration", "expression_statement"})
_FUNCTIONS = frozenset(
    {"arrow_function", "function_expression", "generator_function", "function", "class", "class_declaration"}
)
_BODIES = frozenset(
    {
        "module", "program", "source_file", "translation_unit", "compilation_unit", "block", "statement_block",
        "class_body", "compound_statement", "statement_list", "declaration_list", "body_statement", "do_group",
        "enum_body", "field_declaration_list", "preproc_ifdef", "preproc_if", "preproc_else",
    }
)  # fmt: skip
_HOLDERS = frozenset({"class", "type"})
_DECORATIONS = frozenset({"annotation", "marker_annotation", "attribute_list", "decorator", "attributes"})


@dataclass(frozen=True, slots=True)
class Definition:
    """Rows of a definition: `start` with its decorators, `signature` its own first line, `body` after the header."""

    start: int
    signature: int
    body: int
    end: int
    kind: str
    name: str


@dataclass(slots=True)
class Syntax:
    """The facts of a parse tree, in rows, ends exclusive."""

    definitions: list[Definition] = field(default_factory=list)
    imports: list[tuple[int, int]] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    comments: list[tuple[int, int]] = field(default_factory=list)
    attributes: list[tuple[int, int]] = field(default_factory=list)
    statements: list[tuple[int, int]] = field(default_factory=list)
    closures: list[tuple[int, int]] = field(default_factory=list)
    errors: list[tuple[int, int]] = field(default_factory=list)


class ParseJob(msgspec.Struct, frozen=True):
    """A text to parse; `grammar` is that of its language, or a variant of it."""

    text: bytes
    language: str
    grammar: str
    only_errors: bool = False  # count them, and read nothing else


_encoder = msgspec.msgpack.Encoder()
_jobs = msgspec.msgpack.Decoder(ParseJob)
_decoder = msgspec.msgpack.Decoder(Syntax | None)


def perform(job: bytes) -> bytes:
    """Parse a text; return its structure, or the number of errors in it."""
    asked = _jobs.decode(job)
    lines = asked.text.decode("utf-8", "surrogatepass").split("\n")
    if asked.only_errors:
        return b"%d" % _count_errors(lines, asked.grammar)
    if not _is_parseable(lines, asked.grammar):
        return _encoder.encode(None)
    return _encoder.encode(_TreeReader(lines, grammar_of(asked.language)).read(_parse(lines, asked.grammar).walk()))


@contextmanager
def reading(lines: Sequence[str], language: str, check: Callable[[], None]) -> Iterator[Callable[[], Syntax | None]]:
    """Parse `lines` in parallel with the block, which gets a function that waits for the result.

    None if there are too many errors or it takes too long. Rows are lines: tree-sitter also counts only `\n`.
    """
    with _parse_in_fork(lines, language) as answered:

        def parse() -> Syntax | None:
            found = answered()
            check()
            return None if found is None else _decoder.decode(found)

        yield parse


def _parse_in_fork(
    lines: Sequence[str], language: str, only_errors: bool = False
) -> AbstractContextManager[Callable[[], bytes | None]]:
    guard = _guard.get()
    if guard is None:
        return nullcontext(lambda: None)
    grammar = _variant(lines, language)
    parser(grammar)  # loaded here once, not in every child
    text = "\n".join(lines)
    job = ParseJob(text.encode("utf-8", "surrogatepass"), language, grammar, only_errors)
    return guard(_encoder.encode(job), PARSE_CPU_S + PARSE_CPU_S_PER_CHAR * (len(text) + 1))


def _is_parseable(lines: Sequence[str], language: str) -> bool:
    """Return whether a text is short, or the grammar understands its beginning."""
    if len(lines) <= TRIAL_LINES and sum(map(len, lines)) + len(lines) <= TRIAL_CHARS:
        return True
    head = "\n".join(lines[:TRIAL_LINES])[:TRIAL_CHARS]
    return _count_errors(head.split("\n"), language) <= TRIAL_MAX_ERRORS


def _variant(lines: Sequence[str], language: str) -> str:
    # To the grammar of PHP, all that is not between tags is text and never an error.
    return "php-without-tags" if language == "php" and not any("<?" in line for line in lines) else language


def _parse(lines: Sequence[str], language: str) -> "Tree":
    return parser(language).parse("\n".join(lines).encode("utf-8", "replace"))


class _Scope(NamedTuple):
    """The effect of an enclosing node on its children."""

    is_body: bool
    # The kind of the definition around, and the first row of the wrapper right around or -1.
    holder: str
    wrapper: int


class _TreeReader:
    """Visits a tree. Nodes of one line are looked at but not into, except for wrappers and bodies."""

    def __init__(self, lines: Sequence[str], grammar: Grammar) -> None:
        self._lines = lines
        self._grammar = grammar
        self._found = Syntax()

    def read(self, cursor: "TreeCursor") -> Syntax:
        scopes = [_Scope(False, "", -1)]
        while True:
            node = cursor.node
            inner = self._note(node, scopes[-1]) if node is not None and node.is_named else None
            if inner is not None and cursor.goto_first_child():
                scopes.append(inner)
                continue
            while not cursor.goto_next_sibling():
                if not cursor.goto_parent():
                    return self._found
                scopes.pop()

    def _note(self, node: "Node", scope: _Scope) -> _Scope | None:
        """Record what `node` is; return the scope to read its children in, if they matter."""
        kind = node.type
        start, end = _rows(node)
        grammar = self._grammar
        found = self._found
        first = start if scope.wrapper < 0 else scope.wrapper
        if "comment" in kind or self._is_import(node, start):
            (found.comments if "comment" in kind else found.imports).append((start, end))
            return None
        if kind in grammar.definitions:
            definition = _definition(node, grammar, first, end, scope.holder)
            if definition is not None:
                found.definitions.append(definition)
                return _Scope(False, definition.kind, -1) if end - start > 1 else None
        elif kind in grammar.members:
            found.members.append(_signature_row(node))
        elif kind in grammar.attributes:
            found.attributes.append((start, end))
        elif kind == "ERROR" and (not found.errors or start >= found.errors[-1][1]):
            found.errors.append((start, end))
        if kind in grammar.closures and end - start >= STATEMENT_LINES and _has_body(node):
            found.closures.append((start, end))
        if kind in grammar.wrappers:
            return _Scope(False, scope.holder, first)
        is_body = kind in _BODIES
        if end - start == 1 and not is_body:
            return None
        if scope.is_body and not is_body and end - start >= STATEMENT_LINES:
            found.statements.append((start, end))
        return _Scope(is_body, scope.holder, -1)

    def _is_import(self, node: "Node", start: int) -> bool:
        """Return whether `node` is an import: by its type, by the function it calls, or an export from elsewhere."""
        if node.type == "export_statement":
            return node.child_by_field_name("source") is not None
        if node.type in self._grammar.imports:
            return True
        callee = _CALLEE.match(self._lines[start]) if node.type in _CALLS else None
        return callee is not None and callee[1] in self._grammar.calls


def count_errors(lines: Sequence[str], language: str) -> int | None:
    """Return how many pieces of `lines` the grammar does not understand; None if a parse takes too long.

    `lines` may be the head of a longer text: where it was cut in a comment, that comment reads as
    nonsense, so the last two fifths are parsed but not judged.
    """
    with _parse_in_fork(lines, language, only_errors=True) as answered:
        found = answered()
    return None if found is None else int(found)


def _count_errors(lines: Sequence[str], language: str) -> int:
    judged = sum(len(line) + 1 for line in lines) * 3 // 5
    cursor = _parse(lines, language).walk()
    errors = 0
    while True:
        node = cursor.node
        assert node is not None  # noqa: S101 - a cursor always stands on a node
        errors += (node.is_error or node.is_missing) and node.start_byte <= judged
        if node.has_error and cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return errors


def _rows(node: "Node") -> tuple[int, int]:
    start = node.start_point[0]
    last, column = node.end_point
    # Some nodes end with their newline, at column 0 of the next row.
    return start, last + 1 if column or last == start else last


def _definition(node: "Node", grammar: Grammar, first: int, end: int, holder: str) -> Definition | None:
    kind = grammar.definitions[node.type]
    value = node
    if kind == "assigned":
        assigned = _assigned_definition(node)
        if assigned is None:
            return None
        value = assigned
        kind = "class" if "class" in value.type else "function"
    body = _body(value)
    if body is None and node.type in grammar.with_body:
        return None
    if kind == "function" and holder in _HOLDERS:
        kind = "method"
    signature = _signature_row(node)
    return Definition(first, signature, _header_end(value, body, signature, end, kind), end, kind, _name(node))


def _assigned_definition(node: "Node") -> "Node | None":
    """Return the function or class that a declaration, an assignment or a property gives a name to."""
    value = node.child_by_field_name("value") or node.child_by_field_name("right")
    if value is None or value.type not in _FUNCTIONS or value.start_point[0] == value.end_point[0]:
        return None
    return value


def _has_body(node: "Node") -> bool:
    return node.child_by_field_name("body") is not None or any(child.type in _BODIES for child in node.children)


def _body(node: "Node") -> "Node | None":
    body = node.child_by_field_name("body") or node.child_by_field_name("accessors")
    if body is None and node.type == "type_definition":
        inner = node.child_by_field_name("type")
        return inner.child_by_field_name("body") if inner else None
    return body


def _header_end(node: "Node", body: "Node | None", signature: int, end: int, kind: str) -> int:
    if body is None:
        return min(end, signature + 1 if kind != "function" else signature + HEADER_MAX_LINES)
    # A body that opens with a bracket has its first line in the header.
    opening = body.child(0) if body.child_count else None
    if opening is not None and opening.type in ("{", "("):
        last = body.start_point[0]
    else:
        before = [c for c in node.children if c.end_byte <= body.start_byte and "comment" not in c.type]
        last = max((c.end_point[0] for c in before), default=signature)
    last = max(last, signature)
    return min(end, last + 1 if last - signature < HEADER_MAX_LINES else signature + 1)


def _signature_row(node: "Node") -> int:
    """Return the row where the definition itself begins, after its annotations."""
    for child in node.children:
        if child.type == "modifiers":
            plain = [c for c in child.children if c.type not in _DECORATIONS]
            if plain:
                return plain[0].start_point[0]
        elif child.type not in _DECORATIONS and "comment" not in child.type:
            return child.start_point[0]
    return node.start_point[0]


def _name(node: "Node") -> str:
    for field_name in ("name", "left", "key", "declarator", "type"):
        named = node.child_by_field_name(field_name)
        if named is not None:
            return _leaf(named)
    spec = node.named_child(0) if node.type == "type_declaration" and node.named_child_count else None
    return _name(spec) if spec is not None else ""


def _leaf(node: "Node") -> str:
    """Return the identifier inside nested declarators: pointer, reference, function."""
    for _ in range(8):
        inner = node.child_by_field_name("declarator")
        if inner is None:
            break
        node = inner
    text = (node.text or b"").decode("utf-8", "replace")
    return text.split("\n", 1)[0].strip()[:NAME_MAX_CHARS]

"""Line rules for code: what a line says by its first words, where no grammar can."""

import re
from collections.abc import Callable, Mapping, Sequence

from kimi_proxy.features.pruning.structure.blocks import Span

LINE_CHARS = 300

_IMPORT = re.compile(
    r"""(?:
    import\b(?!\s*[=:.(]) | from\s+\S+\s+import\b | \#\s*(?:include|import)\b | @import\b
    | (?:pub\s+)?use\s+[\w\\:{] | package\s+[\w.]+\s*;?\s*$ | (?:global\s+)?using\s+[\w.= <>]+;
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
_ACCESS = re.compile(r"(?:public|private|protected|internal)\s+(?:[^(=;]{0,120}?(?P<name>\w+)\s*\()?")
# At the margin, as in C: a type, a name, parameters, and no semicolon.
_MARGIN = re.compile(r"[A-Za-z_][\w\s*&:<>,~]{0,120}?[\s*&](?P<name>[\w:~]+)\s*\([^;=]{0,250}$")
_STATEMENTS = frozenset(
    {"if", "for", "while", "switch", "return", "else", "catch", "do", "try", "with", "elif", "new", "await", "case"}
)
_DECORATOR = re.compile(r"(?:@[A-Za-z]|#!?\[|\[[A-Z]\w*(?:\(.*\))?\]\s*$)")
_STAYS_OPEN = re.compile(r"(?:[)}\]{#]|end\b|(?:public|private|protected)\s*:)")
_KINDS = {"enum": "type", "union": "type", "namespace": "namespace", "module": "namespace", "mod": "namespace"}


def mark(lines: Sequence[str], start: int, end: int, check: Callable[[], None]) -> dict[int, str]:
    """Why lines from `start` to `end` must stay, for those that must."""
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


def likenesses(lines: Sequence[str], marks: Mapping[int, str], check: Callable[[], None]) -> list[int]:
    """Lines that read like an import or a definition without being one: a field, a forward declaration, an example."""
    found: list[int] = []
    for row, line in enumerate(lines):
        if row % 1000 == 0:
            check()
        bare = line.lstrip()
        word = _FIRST_WORD.match(bare)
        if word and word[1] in _FIRST_WORDS and row not in marks and _LIKENESS.match(bare[:LINE_CHARS]):
            found.append(row)
    return found


def spans(lines: Sequence[str], check: Callable[[], None]) -> list[Span]:
    """Definitions by their first words; each lasts while lines are deeper than it, and takes its closer."""
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
    """The kind and name of what `line`, given without its `indent`, begins to define."""
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

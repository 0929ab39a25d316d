"""The cases of an evaluation: a goal in a person's words, a text, and the rows of it that answer.

The words are a commit's message, a docstring, a heading, or a failure that a log names."""

import ast
import random
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, NamedTuple

from kimi_proxy.core.lines import join, split
from kimi_proxy.core.prune import CallContext, SourceType
from kimi_proxy.features.failures import TOOLS
from kimi_proxy.features.pruning.engine import outline

Kind = Literal["commit", "docstring", "section", "failure", "used"]

MIN_LINES, MAX_LINES = 60, 3000
CASE_MAX_CHARS = 400_000
GOLD_SHARE = 0.25  # where more of a text answers the question, there is little to prune


@dataclass(frozen=True, slots=True)
class Case:
    """`gold` are the rows that answer the goal, counted from 0."""

    id: str
    kind: Kind
    source_type: SourceType
    path: str
    goal: str
    text: str
    gold: tuple[int, ...]
    context: CallContext | None = None  # where an agent's tool printed the text


def is_fair(case: Case) -> bool:
    """Return whether the text is neither so short nor so much of an answer that pruning it would prove nothing."""
    lines = split(case.text)
    if not MIN_LINES <= len(lines) <= MAX_LINES or len(case.text) > CASE_MAX_CHARS:
        return False
    return 0 < len(case.gold) <= GOLD_SHARE * len(lines) and case.gold[-1] < len(lines)


def _filled(lines: Sequence[str], start: int, end: int) -> tuple[int, ...]:
    """Return the rows from `start` to `end` (exclusive) that are not blank."""
    return tuple(row for row in range(start, min(end, len(lines))) if lines[row].strip())


def _blanked(lines: Sequence[str], start: int, end: int) -> list[str]:
    """Return the lines with these rows emptied: all others keep their numbers."""
    return [*lines[:start], *[""] * (end - start), *lines[end:]]


# Goals: what a person wanted, without what only machines read; "" if that is too little.

MAX_CHARS = 600
MIN_CHARS = 15
MIN_WORDS = 3

_NOISE = (
    re.compile(r"https?://\S+"),
    re.compile(
        r"\(?\b(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?|refs?|references|see|issues?|pr|pull request|part of|ticket)"
        r":?\s+(?:[\w.-]+/[\w.-]+)?(?:#|gh-)\d+(?:\s*,\s*#\d+)*\)?",
        re.IGNORECASE,
    ),
    re.compile(r"\(?(?:\b[\w.-]+/[\w.-]+)?(?:#|\bgh-)\d+\)?", re.IGNORECASE),
    re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{7,40}\b"),
    re.compile(r":[a-z_]+:(?=\s|$)"),
    re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\ufe0f\u200d]"),
    re.compile(r"\[(?:skip ci|ci skip)\]", re.IGNORECASE),
)
_TYPED = re.compile(
    r"(?:fix|feat|feature|chore|docs?|style|refactor|perf|tests?|build|ci|bug|internal)"
    r"(?:\((?P<scope>[^)]{1,40})\))?!?:\s*",
    re.IGNORECASE,
)
_TRAILER = re.compile(r"[A-Z][A-Za-z]*(?:-[A-Za-z]+)+:\s|(?:cc|refs?|fixes|closes|bug|reviewed|by):\s", re.IGNORECASE)
_BORING = re.compile(
    r"\W*(?:bump|releas|version|merg|revert|prepar|updat\w* (?:the )?(?:changelog|change log|authors|readme)|changelog"
    r"|format|lint|typos?\b|fix(?:e[sd])? (?:a )?typos?|wip\b|v?\d+\.\d+|clean ?up$|backport|cherry)",
    re.IGNORECASE,
)
_LIST_ITEM = re.compile(r"[*+-]\s|\d+[.)]\s")
_WORD = re.compile(r"[^\W\d_]{3,}")
_COMMENT_MARKS = re.compile(r"^\s*(?:/\*+!?|\*+/|///?!?|#+|--+|\*+|;;+)\s?|(?<![\s*])\s*\*+/\s*$")
_TAGGED = re.compile(
    r"\s*(?:@\w+|:\w[^:]*:|\\\w+|(?:Args|Arguments|Parameters|Returns?|Raises|Examples?|Note)\s*(?::|$))"
)
_MARKUP = re.compile(r"<[^<>]{1,80}>|[`*]+|\{@\w+ ([^{}]*)\}|:[\w:.-]{1,40}:(?=`)")
_QUESTIONS = ("How does this work: {}?", "Where is this explained: {}?", "I need to know about {}.", "{}")


def of_commit(message: str) -> str:
    """Return the subject and the first paragraph that adds something."""
    subject, _, body = message.strip().partition("\n")
    if _BORING.match(subject):
        return ""
    goal = _untyped(_clean(subject))
    for paragraph in re.split(r"\n\s*\n", body.strip()):
        more = _prose(paragraph)
        if more and more.lower() not in goal.lower():
            goal = f"{goal.rstrip('.')}. {more}"
            break
    return _enough(goal)


def of_comment(comment: str) -> str:
    """Return the first sentences of a docstring or of the comment above a definition."""
    found: list[str] = []
    for row in (_COMMENT_MARKS.sub("", row).strip() for row in comment.strip().split("\n")):
        if found and (not row or _TAGGED.match(row) or _LIST_ITEM.match(row)):
            break
        if row and not _TAGGED.match(row):
            found.append(row)
    return _enough(_clean(_MARKUP.sub(r"\1", " ".join(found))))


def of_heading(title: str, rng: random.Random) -> str:
    plain = _clean(_MARKUP.sub(r"\1", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", title)))
    plain = re.sub(r"\s*\{[^}]*\}$", "", plain).strip(" #")
    return rng.choice(_QUESTIONS).format(plain) if len(plain) >= 8 and _WORD.search(plain) else ""


def _clean(text: str) -> str:
    for noise in _NOISE:
        text = noise.sub(" ", text)
    text = re.sub(r"\(\s*\)", " ", text)
    return " ".join(text.split()).strip(" -:,")


def _untyped(subject: str) -> str:
    """Return `fix(router): x` as `router: x`, for what a change is called says little of where it is."""
    typed = _TYPED.match(subject)
    if typed is None:
        return subject
    rest = subject[typed.end() :]
    return f"{typed['scope']}: {rest}" if typed["scope"] else rest


def _prose(paragraph: str) -> str:
    rows = [row.strip() for row in paragraph.split("\n")]
    kept = [row for row in rows if row and not _TRAILER.match(row)]
    if not kept or _LIST_ITEM.match(kept[0]) or kept[0].startswith(("```", "<!--", "---", ">")):
        return ""
    prose = _clean(" ".join(kept))
    return prose if len(prose) >= MIN_CHARS else ""


def _enough(goal: str) -> str:
    if len(goal) < MIN_CHARS or len(_WORD.findall(goal)) < MIN_WORDS:
        return ""
    return goal if len(goal) <= MAX_CHARS else goal[:MAX_CHARS].rsplit(" ", 1)[0]


# Commits: the message asks, the rows that it changed answer.

MAX_FILES = 5  # a commit that touches more is a sweep, not an answer
MAX_CHANGED = 80

PROGRAMS = frozenset(
    (
        *(".py", ".pyi", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".tsx", ".go", ".rs", ".java", ".kt", ".scala"),
        *(".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".cs", ".rb", ".php", ".swift", ".sh", ".lua", ".ex"),
    )
)
PAGES = frozenset((".md", ".markdown", ".mdx", ".rst", ".adoc"))

_HISTORY = re.compile(r"change|history|news|releas|licen[cs]e|authors|contributors|migrat", re.IGNORECASE)
_FOREIGN = re.compile(
    r"(?:^|/)(?:vendor|third_party|node_modules|dist|generated|testdata|fixtures)/|\.min\.|_pb2|\.pb\."
)
_TEST = re.compile(r"test|spec\b|mock", re.IGNORECASE)
_CHANGED = re.compile(r"^[+-](?![+-]{2} )", re.MULTILINE)
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Commit:
    """`paths` are the files that it modified."""

    id: str
    message: str
    paths: tuple[str, ...]


def kind_of(path: str) -> SourceType | None:
    """Return the type of a file that people write themselves; None for the rest."""
    suffix = PurePath(path).suffix.lower()
    if _FOREIGN.search(path):
        return None
    if suffix in PROGRAMS:
        return "code"
    return "docs" if suffix in PAGES and not _HISTORY.search(path) else None


def candidates(commit: Commit) -> list[str]:
    """Return the files whose change the message may explain: programs first, tests after what they test, then pages."""
    if not of_commit(commit.message) or len(commit.paths) > MAX_FILES:
        return []

    def order(path: str) -> tuple[bool, bool, str]:
        is_page = kind_of(path) == "docs"
        return is_page, not is_page and _TEST.search(path) is not None, path

    return sorted((path for path in commit.paths if kind_of(path)), key=order)


def case_of(commit: Commit, path: str, before: str, diff: str) -> Case | None:
    """Return the case that `commit` makes of a file as it was `before`, if it makes a fair one."""
    source_type = kind_of(path)
    if source_type is None or len(_CHANGED.findall(diff)) > MAX_CHANGED:
        return None
    gold = changed_rows(diff, split(before))
    goal = of_commit(commit.message)
    case = Case(f"{commit.id[:12]}:{path}", "commit", source_type, path, goal, before, gold)
    return case if goal and is_fair(case) else None


def changed_rows(diff: str, before: Sequence[str]) -> tuple[int, ...]:
    """Return the rows that a diff without context removes or changes, and the two around each place of an insertion."""
    rows: set[int] = set()
    for hunk in _HUNK.finditer(diff):
        first, count = int(hunk[1]), int(hunk[2] or 1)
        rows.update(range(first - 1, first - 1 + count) if count else (first - 1, first))
    return tuple(sorted(row for row in rows if 0 <= row < len(before) and before[row].strip()))


# Docstrings: the documentation of a definition asks, its body answers.

MIN_BODY, MAX_BODY = 4, 120


class Documented(NamedTuple):
    """Rows of a definition, its signature included, and of what documents it; ends are exclusive."""

    name: str
    start: int
    end: int
    doc_start: int
    doc_end: int
    words: str


def docstring_cases(path: str, text: str) -> Iterator[Case]:
    lines = split(text)
    for found in _python(text) if path.endswith((".py", ".pyi")) else _commented(lines):
        goal = of_comment(found.words)
        asked = _blanked(lines, found.doc_start, found.doc_end)
        gold = _filled(asked, found.start, found.end)
        case = Case(f"{path}:{found.name}:{found.start + 1}", "docstring", "code", path, goal, join(asked), gold)
        if goal and MIN_BODY <= len(gold) <= MAX_BODY and is_fair(case):
            yield case


def parse_python(text: str) -> ast.Module | None:
    """Return the syntax tree of a Python file, None if it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old code may hold escapes that Python now warns of
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last for what nests too deep
        return None


def _python(text: str) -> Iterator[Documented]:
    tree = parse_python(text)
    for node in ast.walk(tree) if tree else ():
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.body:
            continue
        first, words = node.body[0], ast.get_docstring(node)
        if words and len(node.body) > 1:
            assert first.end_lineno is not None and node.end_lineno is not None
            yield Documented(node.name, node.lineno - 1, node.end_lineno, first.lineno - 1, first.end_lineno, words)


def _commented(lines: Sequence[str]) -> Iterator[Documented]:
    """Yield definitions with a comment right above them, in any language that the engine reads."""
    blocks = outline(lines, "code").blocks
    comments = {block.start: block.end for block in blocks if block.kind == "comment"}
    for block in blocks:
        end = comments.get(block.start, block.start)
        if block.kind in ("function", "method") and block.name and block.start < end < block.end:
            yield Documented(block.name, end, block.end, block.start, end, join(lines[block.start : end]))


# Sections: a heading asks, the text under it answers.

MIN_SECTIONS = 5
SECTION_MIN_LINES, SECTION_MAX_LINES = 2, 60


def section_cases(path: str, text: str, rng: random.Random) -> Iterator[Case]:
    lines = split(text)
    sections = [block for block in outline(lines, "docs").blocks if block.kind == "section"]
    if len(sections) < MIN_SECTIONS:
        return
    starts = [section.start for section in sections]
    for section in sections[1:]:
        end = min((start for start in starts if start > section.start), default=len(lines))
        gold = _filled(lines, section.body, end)
        goal = of_heading(section.name, rng)
        asked = join(_blanked(lines, section.start, section.body))
        case = Case(f"{path}:{section.start + 1}", "section", "docs", path, goal, asked, gold)
        if goal and SECTION_MIN_LINES <= len(gold) <= SECTION_MAX_LINES and is_fair(case):
            yield case


# Failures: the name of a failure in a log asks, its report answers.

MIN_REPORT, MAX_REPORT = 2, 120  # a name alone on a line is a list, not a report
MAX_CASES = 40

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def failure_cases(command: str, log: str) -> Iterator[Case]:
    """Yield one case for each failure, as far as their names differ."""
    lines = split(log)
    goals: set[str] = set()
    for start, end, goal in _reports(lines):
        gold = _filled(lines, start, end)
        case = Case(f"{command}:{start + 1}", "failure", "logs", command, goal, log, gold)
        if goal not in goals and len(gold) >= MIN_REPORT and len(goals) < MAX_CASES and is_fair(case):
            goals.add(goal)
            yield case


def _reports(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    formats = [tool.format for tool in TOOLS if tool.format]
    plain = [_COLOUR.sub("", line).rstrip() for line in lines]
    end = 0
    for row, line in enumerate(plain):
        if row < end:
            continue
        opened = next(((form, found) for form in formats if (found := form.opens.match(line))), None)
        if opened is not None:
            form, name = opened
            last = min(len(plain), row + MAX_REPORT)
            end = next((at for at in range(row + 1, last) if form.ends.match(plain[at])), last)
            yield row, end, form.question.format(name[1])

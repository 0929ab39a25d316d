"""From a commit to a case: its message asks, and the lines it changed in a file answer."""

import re
from collections.abc import Sequence
from pathlib import PurePath

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core.history import Commit
from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.evaluation import goals
from kimi_proxy.features.evaluation.case import Case, is_fair

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


def kind_of(path: str) -> SourceType | None:
    """What a file that people write themselves is; None for the rest."""
    suffix = PurePath(path).suffix.lower()
    if _FOREIGN.search(path):
        return None
    if suffix in PROGRAMS:
        return "code"
    return "docs" if suffix in PAGES and not _HISTORY.search(path) else None


def is_test(path: str) -> bool:
    return _TEST.search(path) is not None


def candidates(commit: Commit) -> list[str]:
    """The files whose change the message may explain: programs first, tests after what they test, then pages."""
    if not goals.of_commit(commit.message) or len(commit.paths) > MAX_FILES:
        return []
    return sorted((path for path in commit.paths if kind_of(path)), key=lambda path: (_turn(path), path))


def _turn(path: str) -> int:
    if kind_of(path) == "docs":
        return 2
    return 1 if is_test(path) else 0


def case_of(commit: Commit, path: str, before: str, diff: str) -> Case | None:
    """The case that `commit` makes of a file as it was `before`, if it makes a fair one."""
    source_type = kind_of(path)
    if source_type is None or len(_CHANGED.findall(diff)) > MAX_CHANGED:
        return None
    gold = changed_rows(diff, text_lines.split(before))
    goal = goals.of_commit(commit.message)
    case = Case(f"{commit.id[:12]}:{path}", "commit", source_type, path, goal, before, gold)
    return case if goal and is_fair(case) else None


def changed_rows(diff: str, before: Sequence[str]) -> tuple[int, ...]:
    """The rows that a diff without context removes or changes, and the two around each place where it inserts."""
    rows: set[int] = set()
    for hunk in _HUNK.finditer(diff):
        first, count = int(hunk[1]), int(hunk[2] or 1)
        rows.update(range(first - 1, first - 1 + count) if count else (first - 1, first))
    return tuple(sorted(row for row in rows if 0 <= row < len(before) and before[row].strip()))

"""From a documented definition to a case: its documentation asks, and is blanked; its signature and body answer."""

import ast
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kimi_proxy.core import lines as text_lines
from kimi_proxy.features.evaluation import goals
from kimi_proxy.features.evaluation.case import Case, blanked, is_fair, spoken
from kimi_proxy.features.pruning.outline import outline

MIN_BODY, MAX_BODY = 4, 120

_CALLABLE = (ast.FunctionDef, ast.AsyncFunctionDef)


class Documented(NamedTuple):
    """Rows of a definition, its signature included, and of what documents it; ends are exclusive."""

    name: str
    start: int
    end: int
    doc_start: int
    doc_end: int
    words: str


def cases(path: str, text: str) -> Iterator[Case]:
    lines = text_lines.split(text)
    for found in documented(path, text):
        goal = goals.of_comment(found.words)
        asked = blanked(lines, found.doc_start, found.doc_end)
        gold = spoken(text_lines.split(asked), found.start, found.end)
        case = Case(f"{path}:{found.name}:{found.start + 1}", "docstring", "code", path, goal, asked, gold)
        if goal and MIN_BODY <= len(gold) <= MAX_BODY and is_fair(case):
            yield case


def documented(path: str, text: str) -> Iterator[Documented]:
    if path.endswith((".py", ".pyi")):
        yield from _python(text)
    else:
        yield from _commented(text_lines.split(text))


def _python(text: str) -> Iterator[Documented]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old code may hold escapes that Python now warns of
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last for what nests too deep
        return
    for node in ast.walk(tree):
        if not isinstance(node, _CALLABLE) or not node.body:
            continue
        first, words = node.body[0], ast.get_docstring(node)
        if words and len(node.body) > 1:
            assert first.end_lineno is not None and node.end_lineno is not None  # noqa: S101 - ast.parse sets both
            yield Documented(node.name, node.lineno - 1, node.end_lineno, first.lineno - 1, first.end_lineno, words)


def _commented(lines: Sequence[str]) -> Iterator[Documented]:
    """Definitions with a comment right above them, in any language that the engine reads."""
    blocks = outline(lines, "code").blocks
    comments = {block.start: block.end for block in blocks if block.kind == "comment"}
    for block in blocks:
        end = comments.get(block.start, block.start)
        if block.kind in ("function", "method") and block.name and block.start < end < block.end:
            words = text_lines.join(lines[block.start : end])
            yield Documented(block.name, end, block.end, block.start, end, words)

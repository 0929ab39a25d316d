"""Shortens one output by the way that suits it. CPU-bound and pure: `check` is called often and may raise to abort."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from kimi_proxy.core import markers, tokens
from kimi_proxy.core.reasons import Reason
from kimi_proxy.features.sanitizer import by_lines, by_members, by_preview
from kimi_proxy.features.sanitizer.kinds import kind_of
from kimi_proxy.features.sanitizer.shortened import Names, Shortened, Task

# A text that the model has not read yet is cut only if there is enough of it; a log says less per line.
PATIENCE = {"code": 2, "docs": 2}


def _never() -> None:
    """The deadline of a caller who has none."""


def shorten(task: Task, check: Callable[[], None] = _never) -> Shortened:
    before = tokens.count(task.text)
    if before <= task.threshold_tokens:
        return Shortened(task.text, "below_threshold", (), before, before)
    task = replace(task, kind=kind_of(task.origin, task.text))
    why = _why_not(task, before)
    if why:
        return Shortened(task.text, why, (), before, before)
    names = Names(task.seed)
    if task.kind == "json":
        return by_members.shorten(task, names, before, check, _inside)
    return _text(task, names, before, check)


def _inside(task: Task, names: Names, check: Callable[[], None]) -> Shortened:
    """A string of a JSON text; one that is JSON itself stays whole, for there is no end to it."""
    before = tokens.count(task.text)
    if task.kind == "json":
        return Shortened(task.text, "nothing_to_cut", (), before, before)
    return _text(task, names, before, check)


def _text(task: Task, names: Names, before: int, check: Callable[[], None]) -> Shortened:
    if by_preview.suits(task.text):
        return by_preview.shorten(task, names, before)
    return by_lines.shorten(task, names, before, check)


def _why_not(task: Task, tokens_before: int) -> Reason | Literal[""]:
    if markers.quoted_id(task.text) is not None:
        return "already_cut"
    if task.is_unread and tokens_before <= PATIENCE.get(task.kind, 1) * task.threshold_tokens:
        return "unread"
    return ""

"""A question whose answer is known: which lines of a text a pruner should keep."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core.prune import SourceType

Kind = Literal["commit", "docstring", "section", "failure"]

MIN_LINES, MAX_LINES = 60, 3000
MAX_CHARS = 400_000
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


def is_fair(case: Case) -> bool:
    """Whether the text is neither so short nor so much of an answer that pruning it would tell nothing."""
    lines = text_lines.split(case.text)
    if not MIN_LINES <= len(lines) <= MAX_LINES or len(case.text) > MAX_CHARS:
        return False
    return 0 < len(case.gold) <= GOLD_SHARE * len(lines) and case.gold[-1] < len(lines)


def spoken(lines: Sequence[str], start: int, end: int) -> tuple[int, ...]:
    """The rows from `start` to `end` (exclusive) that are not blank."""
    return tuple(row for row in range(start, min(end, len(lines))) if lines[row].strip())


def blanked(lines: Sequence[str], start: int, end: int) -> str:
    """The text with these rows emptied: all others keep their numbers."""
    return text_lines.join([*lines[:start], *[""] * (end - start), *lines[end:]])

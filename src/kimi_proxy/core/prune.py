"""The question to the pruner, and its result."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from kimi_proxy.core import lines
from kimi_proxy.core.errors import WarningCode

SourceType = Literal["code", "logs", "docs"]
Numbering = Literal["lines", "parts"]  # what the numbers of an answer count
SOURCE_TYPES: tuple[SourceType, ...] = get_args(SourceType)


@dataclass(frozen=True, slots=True)
class Options:
    """The five options of the contract; the first two are limits that every result respects."""

    max_prune_ratio: float
    min_keep_lines: int
    timeout_ms: int
    annotate_lines: bool
    include_markers: bool


@dataclass(frozen=True, slots=True)
class Origin:
    """The tool, the file or command that it was called with, and whether it reported a failure."""

    tool: str = ""
    path: str = ""
    command: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class CallContext:
    """The agent's activity when a tool answered it. Texts are short: the newest that fit."""

    tool: str
    path: str = ""  # of the file that the call names
    user: str = ""  # the first and the newest words of the user
    said: str = ""  # the agent's text with the call
    arguments: str = ""
    recent: str = ""  # its earlier text and calls
    results: int = 0  # before this one
    siblings: int = 0  # calls of the same answer
    was_read: bool = False  # the same file, before
    was_edited: bool = False
    is_partial: bool = False  # the call requested a range of the file
    failed: bool = False
    edits_by_quoting: bool = False
    seen_rows: tuple[int, ...] = ()  # of the text: rows that the conversation shows already


@dataclass(frozen=True, slots=True)
class Question:
    """A text and the reader's question; for an agent's tool also the agent's activity.

    `room` is how many tokens may stay, markers included; without it as many lines go as the options allow.
    """

    text: str
    goal: str
    source_type: SourceType
    options: Options
    context: CallContext | None = None
    room: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """Lines `start` to `end`, 1-based and inclusive, and why they went."""

    start: int
    end: int
    reason: str

    @property
    def count(self) -> int:
        return self.end - self.start + 1


@dataclass(frozen=True, slots=True)
class Annotation:
    """A cut in the answer's list; `marker` is the line that replaces it."""

    cut: Cut
    marker: str


@dataclass(frozen=True, slots=True)
class Pruned:
    """A text after pruning. With no annotations it is the original, to the byte."""

    text: str
    annotations: tuple[Annotation, ...]
    original_lines: int
    tokens_before: int
    tokens_after: int
    used_fallback: bool = False
    warnings: tuple[WarningCode, ...] = ()
    part_starts: tuple[int, ...] = ()  # of a text that is counted in parts; without them lines are counted

    @property
    def numbering(self) -> Numbering:
        return "parts" if self.part_starts else "lines"

    @property
    def pruned_lines(self) -> int:
        return sum(a.cut.count for a in self.annotations)

    def with_warnings(self, *codes: WarningCode, fallback: bool = False) -> "Pruned":
        """Return the same result with more warnings."""
        return replace(
            self,
            warnings=(*self.warnings, *(c for c in codes if c not in self.warnings)),
            used_fallback=self.used_fallback or fallback,
        )


def rows_of(text: str, part_starts: Sequence[int]) -> list[str]:
    """Return what the numbers of an answer count: the lines of its text, or the parts that begin there."""
    return lines.split_at(text, part_starts) if part_starts else lines.split(text)


def no_op_result(text: str, original_lines: int, tokens: int, *warnings: WarningCode) -> Pruned:
    """Return the result that changes nothing; with a warning it is a fallback."""
    return Pruned(text, (), original_lines, tokens, tokens, bool(warnings), warnings)

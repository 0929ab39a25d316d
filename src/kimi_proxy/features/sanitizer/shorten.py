"""Shortens one tool result within its room, after removing redundant row numbers and terminal codes.

CPU-bound and pure: `check` is called often and may raise to abort.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count, pairwise
from typing import TypeAlias

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.errors import AnyReason, Reason
from kimi_proxy.core.lines import join, split
from kimi_proxy.core.markers import new_id
from kimi_proxy.core.prune import CallContext, Cut, Options, Origin, Question, SourceType
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.engine import Fit, render
from kimi_proxy.features.pruning.kinds import SOURCE_TYPES, Kind, kind_of
from kimi_proxy.features.pruning.room import room_for
from kimi_proxy.features.records.fitting import write_by_chars
from kimi_proxy.features.records.read import read
from kimi_proxy.features.sanitizer.plan import READERS

NUMBERED_EVERY = 10
MIN_NUMBERED_ROWS = 20  # below this the numbers cost less than a reader's second look

# How tools that show files number their rows: `    12→`, `12\t`, `12│`, `12|`, `12:`, the last three also with a space.
_NUMBER = re.compile(r" {0,8}L?(\d{1,7})([→\t│|:])")
_MAY_HAVE_SPACE = "│|:"
# Colours and cursor movements (CSI), window titles and links (OSC), and single-character escapes.
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|[@-Z\\-_])")


PADDED = " " * 8  # fewer spaces at the end of a line may be a file's own: an edit that quotes them must find them


def thin_numbers(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines with their row numbers left on every tenth row; the same object if they are not numbered.

    Only rows that count up by one lose theirs, so that every number follows from the one before it. A row without
    its number is the file's own text, byte for byte: an edit that quotes it finds it.
    """
    found = [_NUMBER.match(line) for line in lines]
    numbers = [int(match[1]) if match else -1 for match in found]
    consecutive = [False, *(here == before + 1 and before >= 0 for before, here in pairwise(numbers))]
    if sum(consecutive) < MIN_NUMBERED_ROWS:
        return lines
    runs = (follows or leads for follows, leads in zip(consecutive, [*consecutive[1:], False], strict=True))
    counted = (match for match, is_counted in zip(found, runs, strict=True) if match and is_counted)
    space = _space_after([match.string[match.end() :] for match in counted if match[2] in _MAY_HAVE_SPACE])
    if space is None:
        return lines
    thinned: list[str] = []
    for line, match, number, follows in zip(lines, found, numbers, consecutive, strict=True):
        bare = line if match is None else line[match.end() :]
        if match is not None and match[2] in _MAY_HAVE_SPACE:
            bare = bare.removeprefix(space)
        # A row that reads as numbered without its number would be taken for another row.
        keeps = match is None or not follows or number % NUMBERED_EVERY == 0 or _NUMBER.match(bare) is not None
        thinned.append(line if keeps else bare)
    return thinned


def _space_after(rows: Sequence[str]) -> str | None:
    """Return the space that a tool writes after its numbers; None if it may as well be the file's own indentation."""
    rows = [row for row in rows if row.strip()]
    if not all(row.startswith(" ") for row in rows):
        return ""
    return " " if not rows or any(not row.startswith("  ") for row in rows) else None


def strip_terminal(text: str) -> str:
    """Return what a terminal would show in the end: no escape codes, no padding, no progress that was overwritten."""
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "\r" in text:
        text = "\n".join(_last_written(line) for line in text.split("\n"))
    if f"{PADDED}\n" not in text and not text.endswith(PADDED):
        return text
    return "\n".join(line.rstrip(" ") if line.endswith(PADDED) else line for line in text.split("\n"))


def _last_written(line: str) -> str:
    """A carriage return goes back to the beginning of the line; one at its end belongs to the line break."""
    ending = "\r" if line.endswith("\r") else ""
    body = line.removesuffix("\r")
    return body[body.rfind("\r") + 1 :] + ending


def readable_rows(origin: Origin, lines: Sequence[str], cuts: Iterable[Cut] = ()) -> list[str]:
    """Return the rows without what is not read in them, one for each line; below a cut, a row keeps its number."""
    # Elsewhere numbers that count up may be the text's own: ids of a table, keys of a list.
    if origin.tool.lower() in READERS:
        rows = list(thin_numbers(lines))
        for cut in cuts:
            if cut.end < len(lines):
                rows[cut.end] = lines[cut.end]
        return rows
    return text_lines.split(strip_terminal(text_lines.join(lines))) if origin.command else list(lines)


NUMBERED_SAMPLE_LINES = 200
NUMBERED = 0.9  # of the lines that are not empty

_ANY_NUMBER = re.compile(r"\s{0,8}(?:L?(\d{1,7}))(?:→|\t|│ ?|\| ?|: ?)")


def strip_row_numbers(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines without their numbers, one for each; the same object if they have none."""
    sample = [line for line in lines[:NUMBERED_SAMPLE_LINES] if line.strip()]
    numbers = [int(found[1]) for line in sample if (found := _ANY_NUMBER.match(line))]
    if len(numbers) < max(2, NUMBERED * len(sample)) or numbers != sorted(set(numbers)):
        return lines
    return [line[found.end() :] if (found := _ANY_NUMBER.match(line)) else line for line in lines]


NextId: TypeAlias = Callable[[str], str]  # from a prefix to the next id
Edit: TypeAlias = tuple[int, int, bytes]

# A text that the model has not read yet is cut only if there is enough of it; a log says less per line. Without this a
# quarter of the files that Codex and opencode go on to quote would lose a line that they quote, instead of a sixth.
PATIENCE = {"code": 2, "docs": 2}
# A new output with more tokens never enters a conversation whole, unless it is a file that is likely to be used.
HUGE_TOKENS = 8_000
MARKERS_TOKENS = 1_000  # left in what stays of it, for a marker may cost more than it is counted for


@dataclass(frozen=True, slots=True)
class Task:
    """An output to shorten. Its ids are made of `seed`: secret, and the same task gets the same result."""

    text: str
    goal: str
    origin: Origin
    is_unread: bool
    threshold_tokens: int
    preview_chars: int
    seed: bytes
    hint: str = ""  # how to read what is left out, `{id}` in it, where the model has no tool for that
    keep_tokens: int = 0  # of a text that is likely to be quoted so many stay, if there are lines to choose from
    context: CallContext | None = None  # what the agent was doing when the tool answered
    is_scored: bool = True  # else lines are cut by what needs no scores
    most_tokens: int = HUGE_TOKENS  # of the text that enters, with its markers

    @property
    def room_tokens(self) -> int:
        """Return the tokens that may stay, with their markers, of the longest text."""
        return self.most_tokens - MARKERS_TOKENS


@dataclass(frozen=True, slots=True)
class Hidden:
    """A text that markers name. Where lines were cut from it, which, so that they can be explained."""

    id: str
    text: str
    source_type: SourceType | None = None
    max_prune_ratio: float = 0.0
    cuts: tuple[Cut, ...] = ()
    context: CallContext | None = None  # by which its lines were scored beside the goal


@dataclass(frozen=True, slots=True)
class ShortenedText:
    """`why` says what was done, or why nothing was; with nothing hidden, the text is shown whole."""

    shown: str
    why: AnyReason
    hidden: tuple[Hidden, ...]
    tokens_before: int
    tokens_after: int
    most_tokens: int = HUGE_TOKENS  # above which it does not enter as it is


def _no_deadline() -> None:
    pass


def shorten(task: Task, check: Callable[[], None] = _no_deadline, *, is_hurried: bool = False) -> ShortenedText:
    """Return the shortened form of the text.

    In a hurry lines are scored by the words of the goal and by signs of failure alone: that takes linear time, and
    `check` is not called.
    """
    return replace(_shorten(task, check, is_hurried), most_tokens=task.most_tokens)


def _shorten(task: Task, check: Callable[[], None], is_hurried: bool) -> ShortenedText:
    before = tokens.count(task.text)
    if before <= task.threshold_tokens:
        return _leave_uncut(task, before, "below_threshold")
    kind = kind_of(task.origin, task.text)
    if task.is_unread and before <= PATIENCE.get(kind, 1) * task.threshold_tokens and read(task.text) is None:
        return _leave_uncut(task, before, "below_threshold")
    if kind == "json" and read(task.text) is None:
        return _leave_uncut(task, before, "out_of_time" if is_hurried else "unreadable_json")
    is_hurried = is_hurried or not task.is_scored
    fitted = _fit_task(task, kind, before, _no_deadline if is_hurried else check, is_hurried)
    return fitted or _leave_uncut(task, before, "out_of_time" if is_hurried else "nothing_to_cut")


def _leave_uncut(task: Task, tokens_before: int, why: Reason = "nothing_to_cut") -> ShortenedText:
    return ShortenedText(task.text, why, (), tokens_before, tokens_before)


def ids_of(seed: bytes) -> NextId:
    """Return a function that makes ids, each of the seed and of how many there were."""
    numbers = count(1)

    def new(prefix: str) -> str:
        drawn = sha256(seed + next(numbers).to_bytes(4, "big")).digest()
        return new_id(prefix, lambda size: drawn[:size])

    return new


CHARS_PER_TOKEN = 4


def _fit_task(
    task: Task, kind: Kind, tokens_before: int, check: Callable[[], None], is_hurried: bool
) -> ShortenedText | None:
    """Return what stays of an output within its room; None if that would not make it shorter."""
    lines = split(task.text)
    judged = strip_row_numbers(lines)
    text = task.text if judged is lines else join(judged)
    room = max(room_for(tokens_before), task.keep_tokens, task.preview_chars // CHARS_PER_TOKEN)
    question = Question(text, task.goal, SOURCE_TYPES[kind], _SHOWN, task.context, min(room, task.room_tokens))
    known = tokens_before if text is task.text else None
    found = engine.fit(question, check, tokens_before=known, is_hurried=is_hurried)
    if found is None or not found.cuts:
        return None
    next_id = ids_of(task.seed)
    prune_id = next_id("prn")
    mask_id = next_id("msk")
    if found.records is not None and found.part_starts:
        shown = write_by_chars(text, found.records.gaps, mask_id, task.hint.replace("{id}", mask_id))
        hidden = Hidden(mask_id, task.text)
    else:
        shown = _show_lines(task, lines, found, prune_id, text)
        ratio = max(0.0, 1 - question.room / tokens_before)
        hidden = Hidden(prune_id, task.text, SOURCE_TYPES[kind], ratio, found.cuts, task.context)
    after = tokens.count(shown)
    return ShortenedText(shown, "pruned", (hidden,), tokens_before, after) if after < tokens_before else None


_SHOWN = Options(1.0, 0, 0, annotate_lines=False, include_markers=True)


def _show_lines(task: Task, lines: Sequence[str], found: Fit, prune_id: str, text: str) -> str:
    hint = task.hint.replace("{id}", prune_id)
    if found.records is not None:
        return render(lines, found.annotations(text, prune_id, hint), _SHOWN)
    shown = render(readable_rows(task.origin, lines, found.cuts), found.annotations(text, prune_id), _SHOWN)
    return f"{shown}{'' if shown.endswith(chr(10)) else chr(10)}{hint}" if hint else shown

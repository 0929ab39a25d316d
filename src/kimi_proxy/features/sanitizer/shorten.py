"""Shortens one tool result by the method for its kind, after removing redundant row numbers and terminal codes.

CPU-bound and pure: `check` is called often and may raise to abort.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count, pairwise
from pathlib import PurePath
from typing import Literal, TypeAlias

import numpy as np

from kimi_proxy.core import json as jsontext
from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.errors import AnyReason, Reason
from kimi_proxy.core.lines import join, split
from kimi_proxy.core.markers import new_id
from kimi_proxy.core.prune import CallContext, Cut, Options, Origin, Question, SourceType
from kimi_proxy.features.failures import FAILURE_MARKS, VERDICT, begins_report, failed_cases
from kimi_proxy.features.pruning import engine, source_type
from kimi_proxy.features.pruning.engine import annotate, outline, render
from kimi_proxy.features.pruning.explain import cuts_with_reasons
from kimi_proxy.features.pruning.goal import WORD, find, parts, read_goal
from kimi_proxy.features.pruning.select import gaps
from kimi_proxy.features.pruning.structure import languages
from kimi_proxy.features.pruning.structure.blocks import Floats, Outline, scale_to_one
from kimi_proxy.features.pruning.structure.logs import log_style, message_of, notable_rows
from kimi_proxy.features.records.choose import Ranking
from kimi_proxy.features.records.fitting import fills_all_lines, rank, within_tokens, write_by_chars, write_by_lines
from kimi_proxy.features.records.prune import cut_of, line_starts
from kimi_proxy.features.records.read import read, read_rows
from kimi_proxy.features.records.tree import RecordGap
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


Kind: TypeAlias = Literal["records", "json", "listing", "logs", "code", "docs"]
NextId: TypeAlias = Callable[[str], str]  # from a prefix to the next id
Edit: TypeAlias = tuple[int, int, bytes]

# A text that the model has not read yet is cut only if there is enough of it; a log says less per line. Without this a
# quarter of the files that Codex and opencode go on to quote would lose a line that they quote, instead of a sixth.
PATIENCE = {"code": 2, "docs": 2}
# A new output with more tokens never enters a conversation whole, unless it is a file that is likely to be used.
HUGE_TOKENS = 8_000
MARKERS_TOKENS = 1_000  # left for the markers in what stays of it
HURRIED_RECORDS_CHARS = 256 * 1024  # records are chosen in a hurry too: that is linear, and JSON stays JSON by it alone


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
        """Return the tokens that may stay beside the markers."""
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
    """Return the shortened form of the text. In a hurry no line is scored: that takes linear time, without `check`.

    Then the routine lines of a log are cut, and the middle of any other text that is too long to enter uncut.
    """
    return replace(_shorten(task, check, is_hurried), most_tokens=task.most_tokens)


def _shorten(task: Task, check: Callable[[], None], is_hurried: bool) -> ShortenedText:
    before = tokens.count(task.text)
    if before <= task.threshold_tokens:
        return _leave_uncut(task, before, "below_threshold")
    records = None if is_hurried and len(task.text) > HURRIED_RECORDS_CHARS else read(task.text)
    kind = kind_of(task.origin, task.text) if records is None else "records"
    if task.is_unread and before <= min(task.most_tokens, PATIENCE.get(kind, 1) * task.threshold_tokens):
        return _leave_uncut(task, before, "below_threshold")
    ids = ids_of(task.seed)
    if records is not None:
        ranking = Ranking(task.text, records, task.goal, _chars_of(task, before), _no_deadline if is_hurried else check)
        return _fit(task, ranking, ids, before, is_of_records=True) or _leave_uncut(task, before)
    if kind == "json":
        return _leave_uncut(task, before, "out_of_time" if is_hurried else "unreadable_json")
    shorter = _shorten_text(task, kind, ids, before, None if is_hurried or not task.is_scored else check)
    if (shorter.tokens_after or before) > task.most_tokens:
        rows = rank(task.text, task.goal, _chars_of(task, before))
        shorter = (rows and _fit(task, rows, ids, before)) or shorter
    return shorter


def _leave_uncut(task: Task, tokens_before: int, why: Reason = "nothing_to_cut") -> ShortenedText:
    return ShortenedText(task.text, why, (), tokens_before, tokens_before)


def ids_of(seed: bytes) -> NextId:
    """Return a function that makes ids, each of the seed and of how many there were."""
    numbers = count(1)

    def new(prefix: str) -> str:
        drawn = sha256(seed + next(numbers).to_bytes(4, "big")).digest()
        return new_id(prefix, lambda size: drawn[:size])

    return new


# What kind of text an output is.

SAMPLE_LINES = 400
LISTED = 0.7  # of the lines that are not empty
JUDGED = 0.2

_HIT = re.compile(r"(?![A-Z][a-z]{2} [ \d]\d \d\d:\d\d:)(?:[\w@~.+-]|[/\\ ](?=\S)|:(?=\\)){1,300}[:-]\d{1,7}[:-]|--$")
_PLACED = re.compile(r"[:-]\d{1,7}[:-]")  # without it a line is no hit, and to try one may take long
_READERS = re.compile(r"\s*(?:cat|bat|head|tail|less|more|nl|sed|awk)\b")
_DIFFS = re.compile(r"\s*(?:git\s+(?:diff|show|log\s+-p|format-patch)|diff)\b")
_CODE_FILE = re.compile(r"(?<![\w./~-])[\w./~-]+\.\w{1,5}\b")
_RUNS = re.compile(r"bash|shell|exec|terminal|command|console|run|stdout|stderr|output", re.I)


def kind_of(origin: Origin, text: str) -> Kind:
    if jsontext.is_container(text):  # what is left of it has to be one too
        return "json"
    lines = split(text)
    by_places = _kind_of_places(lines)
    if by_places is not None:
        return by_places
    if origin.failed:
        return "logs"
    if origin.command:
        return _kind_of_command(origin.command, text, lines)
    if PurePath(origin.path).suffix:
        return source_type.guess(origin.path, text)
    return _kind_of_lines(text, lines, runs=_RUNS.search(origin.tool) is not None)


def _kind_of_command(command: str, text: str, lines: Sequence[str]) -> Kind:
    """Most commands print a log; some print a file."""
    last = re.split(r"&&|;|\n", command.strip())[-1].split("|")[0]
    if _DIFFS.match(last):
        return "code"
    if _READERS.match(last):
        named = _CODE_FILE.findall(last)
        return source_type.guess(named[-1] if named else "", text)
    return _kind_of_lines(text, lines, runs=True)


def _kind_of_lines(text: str, lines: Sequence[str], runs: bool) -> Kind:
    """Whatever reports a failure is a log: only there are failures sure to stay."""
    guessed = source_type.guess("", text)
    if guessed == "logs" or begins_report(text):
        return "logs"
    if guessed == "code" and languages.guess(lines) != "":
        return "code"
    return "logs" if runs or log_style([message_of(line).lstrip() for line in lines], lines) == "ci" else guessed


def _kind_of_places(lines: Sequence[str]) -> Kind | None:
    """`path:line:content` is what ripgrep and its relatives print, and compilers say `path:line: error` alike."""
    step = max(1, len(lines) // SAMPLE_LINES)
    sample = [message for line in lines[::step] if (message := message_of(line))]  # a clock is not a place
    if len(sample) <= 3 or sum(map(_is_hit, sample)) < LISTED * len(sample):
        return None
    judged = sum(1 for line in sample if VERDICT.search(line[:400]))
    return "logs" if judged >= JUDGED * len(sample) else "listing"


def _is_hit(line: str) -> bool:
    return (_PLACED.search(line) is not None or line.startswith("--")) and _HIT.match(line) is not None


# How much of it may go.

UNREAD = 0.5  # the model has just asked for it
MIN_KEEP_LINES = 20

# An output that is huge, or that the model has read before.
_READ = {"code": 0.65, "docs": 0.65, "listing": 0.6, "logs": 0.8}
_HUGE_LOG = 0.9
_UNREAD_LISTING, _HUGE_LISTING_TOKENS = 0.42, 30_000  # what a hit is worth is hard to decide: rather one too many
# Of a log that says what failed, the report stays with as much again around it, and a screen more.
_AROUND_FAILURES = 2
_SCREEN_LINES = 40


def _ratio_of(kind: Kind, tokens_before: int, is_unread: bool) -> float:
    if kind == "logs" and tokens_before > HUGE_TOKENS:
        return _HUGE_LOG
    if kind == "listing" and is_unread and tokens_before <= _HUGE_LISTING_TOKENS:
        return _UNREAD_LISTING
    return UNREAD if is_unread and tokens_before <= HUGE_TOKENS else _READ[kind]


def _within_room(ratio: float, task: Task, tokens_before: int) -> float:
    """Return a ratio that keeps as much as the task asks for within its limit; above it only head and tail are sent."""
    return max(min(ratio, 1 - task.keep_tokens / tokens_before), 1 - task.room_tokens / tokens_before)


def _log_ratio(protected: Sequence[str], usual: float) -> float:
    """Return the ratio for a log with these protected lines; one that says what failed can do with less of the rest."""
    if not any(why in FAILURE_MARKS for why in protected):
        return usual
    kept = _AROUND_FAILURES * sum(1 for why in protected if why) + _SCREEN_LINES
    return max(0.0, 1 - kept / len(protected))


# A text with lines: those that matter for the goal stay, exactly as they were, around markers.

CHARS_PER_TOKEN = 4
LONG_LINE_CHARS = 400  # lines that are longer than this on average are machine-made
HEAD_SHARE = 0.6  # of what stays of a text whose middle goes
END_LINES = 3  # at the beginning of a log, and as many at its end
MARKER_CHARS = 120  # a gap with less in it is not worth its marker

_SHOWN = Options(1.0, 0, 0, annotate_lines=False, include_markers=True)
SOURCE_TYPES: Mapping[Kind, SourceType] = {"listing": "docs", "logs": "logs", "code": "code", "docs": "docs"}


def _shorten_text(
    task: Task, kind: Kind, next_id: NextId, before: int, check: Callable[[], None] | None
) -> ShortenedText:
    """`check` is None in a hurry."""
    if len(task.text) > LONG_LINE_CHARS * (task.text.count("\n") + 1):
        rows = read_rows(task.text)
        ranking = rows and Ranking(task.text, rows, task.goal, _chars_of(task, before), check or _no_deadline)
        return (ranking and _fit(task, ranking, next_id, before)) or _leave_uncut(task, before)
    lines = split(task.text)
    judged, as_type = strip_row_numbers(lines), SOURCE_TYPES[kind]
    prune_id = next_id("prn")
    if kind == "logs":
        ratio, found = _log_cuts(task, judged, before, check)
    elif check is None:
        ratio = _within_room(_ratio_of(kind, before, task.is_unread), task, before)
        found = _middle(lines, ratio) if before > task.most_tokens else []
    else:
        ratio = _within_room(_ratio_of(kind, before, task.is_unread), task, before)
        scores = _listing_scores(lines, task.goal, check) if kind == "listing" else None
        found = _scored_cuts(task, judged, as_type, ratio, check, scores, before)
    cuts = tuple(_worth_a_marker(found, lines))
    if not cuts:
        return _leave_uncut(task, before, "nothing_to_cut" if check else "out_of_time")
    text = render(readable_rows(task.origin, lines, cuts), annotate(cuts, prune_id), _SHOWN)
    hint = task.hint.replace("{id}", prune_id)
    shown = f"{text}{'' if text.endswith(chr(10)) else chr(10)}{hint}" if hint else text
    after = tokens.count(shown)
    if after >= before:
        return _leave_uncut(task, before)
    context = None if kind == "listing" else task.context
    return ShortenedText(shown, "pruned", (Hidden(prune_id, task.text, as_type, ratio, cuts, context),), before, after)


def _scored_cuts(
    task: Task,
    lines: Sequence[str],
    as_type: SourceType,
    ratio: float,
    check: Callable[[], None],
    scores: Sequence[float] | None = None,
    tokens_before: int | None = None,
) -> list[Cut]:
    """Return the cuts of the engine; `tokens_before` are those of the task's own text."""
    options = replace(_SHOWN, max_prune_ratio=ratio, min_keep_lines=MIN_KEEP_LINES)
    question = Question(join(lines), task.goal, as_type, options, task.context)
    known = tokens_before if len(question.text) == len(task.text) else None
    pruned = engine.prune(question, "prn_0", scores, check, tokens_before=known)
    return [annotation.cut for annotation in pruned.annotations]


def _middle(lines: Sequence[str], ratio: float) -> list[Cut]:
    """Return the cut of so many lines that keeps more of the beginning than of the end."""
    gone = math.floor(ratio * len(lines))
    start = math.ceil((len(lines) - gone) * HEAD_SHARE)
    return [Cut(start + 1, start + gone, "milieu d'un long résultat")] if gone else []


def _log_cuts(
    task: Task, lines: Sequence[str], before: int, check: Callable[[], None] | None
) -> tuple[float, list[Cut]]:
    """Return the share of a log that may be cut, and the cuts: routine lines, then the least relevant of the others.

    In a hurry, when `check` is None, the newest of the others stay.
    """
    found = outline(lines, "logs", check or _no_deadline)
    ratio = _within_room(_log_ratio(found.protected, _ratio_of("logs", before, task.is_unread)), task, before)
    room = len(lines) - math.floor(ratio * len(lines))
    rows = notable_rows(lines, found.protected, task.goal)
    stays = set(rows)
    if check is None:
        stays = set(rows[-room:])
    elif len(rows) > room:
        cuts = _scored_cuts(_of_rows(task, rows), [lines[row] for row in rows], "logs", 1 - room / len(rows), check)
        stays -= {rows[at] for cut in cuts for at in range(cut.start - 1, cut.end)}
    stays |= _failure_rows(lines, found, room)
    for row in range(len(lines) - 1, -1, -1):  # what is left of the room goes to the end, where a tool sums up
        if len(stays) >= max(room, MIN_KEEP_LINES):
            break
        stays.add(row)
    keep = [row in stays for row in range(len(lines))]
    return ratio, list(cuts_with_reasons(gaps(keep), found, lines, "logs"))


def _of_rows(task: Task, rows: Sequence[int]) -> Task:
    """Return the task with a context that counts only these rows."""
    if task.context is None or not task.context.seen_rows:
        return task
    seen = set(task.context.seen_rows)
    own = tuple(at for at, row in enumerate(rows) if row in seen)
    return replace(task, context=replace(task.context, seen_rows=own))


def _failure_rows(lines: Sequence[str], found: Outline, room: int) -> set[int]:
    """Return the rows of a log that report failures, and its ends, where tools say how a command ended."""
    marked = {row for row, why in enumerate(found.protected) if why in FAILURE_MARKS}
    return (
        marked
        | engine.failure_rows(lines, found, room)
        | failed_cases(lines)
        | {*range(END_LINES), *range(len(lines) - END_LINES, len(lines))}
    )


def _worth_a_marker(cuts: Iterable[Cut], lines: Sequence[str]) -> Iterator[Cut]:
    """Yield the cuts that are longer than the marker in their place."""
    for cut in cuts:
        gone = lines[cut.start - 1 : cut.end]
        if len(gone) > MARKER_CHARS or sum(map(len, gone)) + len(gone) > MARKER_CHARS:
            yield cut


LINE_CHARS = 300
RAREST = 4  # words of a hit that decide how much it is like the others
NOVELTY = 0.6


def _listing_scores(lines: Sequence[str], goal: str, check: Callable[[], None]) -> list[float]:
    """Return the score of each hit of a search: by the goal, and by how much it is unlike the others."""
    relevance = scale_to_one(find(lines, read_goal(goal), check).around(0).bm25())
    check()
    return [float(w) for w in np.minimum(1.0, relevance + NOVELTY * _novelty(lines))]


def _novelty(lines: Sequence[str]) -> Floats:
    words = [{part for word in WORD.findall(line[:LINE_CHARS]) for part in parts(word)} for line in lines]
    lines_with = Counter(word for found in words for word in found)
    rarity = {word: math.log(len(lines) / count) for word, count in lines_with.items()}
    rarest = (sorted((rarity[word] for word in found), reverse=True)[:RAREST] for found in words)
    return scale_to_one(np.array([sum(found) / RAREST for found in rarest]))


# Records: those that answer, and those that are unlike the others, within a budget.

RECORDS_SHARE, RECORDS_TOKENS = 0.2, 400  # of the text, and at least: what stays of records
ORDINARY_SHARE = 0.5  # of that: until then records stay that are like the others


def _kept_tokens(task: Task, tokens_before: int) -> int:
    preview = task.preview_chars // CHARS_PER_TOKEN
    return min(task.room_tokens, max(RECORDS_TOKENS, int(RECORDS_SHARE * tokens_before), task.keep_tokens, preview))


def _chars_of(task: Task, tokens_before: int) -> int:
    """Return about how many characters the tokens have that may stay of records."""
    return _kept_tokens(task, tokens_before) * len(task.text) // max(1, tokens_before)


def _fit(
    task: Task, ranking: Ranking, next_id: NextId, before: int, is_of_records: bool = False
) -> ShortenedText | None:
    """Return what stays of records, or of lines, within their budget; None if nothing fits."""
    prune_id, mask_id = next_id("prn"), next_id("msk")

    def show(gaps: Sequence[RecordGap]) -> tuple[str, str]:
        if fills_all_lines(task.text, gaps):
            hint = task.hint.replace("{id}", prune_id)
            return prune_id, write_by_lines(task.text, gaps, prune_id, hint)
        return mask_id, write_by_chars(task.text, gaps, mask_id, task.hint.replace("{id}", mask_id))

    keep = _kept_tokens(task, before)
    floor = 1.0 if task.keep_tokens else ORDINARY_SHARE
    found = within_tokens(ranking, task.text, keep, before, lambda gaps: tokens.count(show(gaps)[1]), floor)
    if found is None:
        return None
    id, text = show(found)
    after = tokens.count(text)
    if after >= before:
        return None
    has_rows = is_of_records and id == prune_id
    hidden = _hide_rows(task, id, found, before) if has_rows else Hidden(id, task.text)
    return ShortenedText(text, "pruned", (hidden,), before, after)


def _hide_rows(task: Task, id: str, gaps: Sequence[RecordGap], before: int) -> Hidden:
    """Return what markers name, with the rows that were cut and the share that was to go."""
    starts = line_starts(task.text)
    kind = source_type.guess(task.origin.path, task.text)
    ratio = max(0.0, 1 - _chars_of(task, before) / len(task.text))
    return Hidden(id, task.text, kind, ratio, tuple(cut_of(starts, gap) for gap in gaps))

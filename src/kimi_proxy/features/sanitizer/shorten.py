"""Shortens one output by the way that suits it. CPU-bound and pure: `check` is called often and may raise to abort."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import PurePath
from typing import Literal, TypeAlias

import numpy as np
from msgspec import Raw

from kimi_proxy.core import json as deepjson
from kimi_proxy.core import json as rawjson
from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import markers, tokens
from kimi_proxy.core.errors import AnyReason, Reason
from kimi_proxy.core.lines import split
from kimi_proxy.core.markers import MaskMarker, PruneMarker, clean_reason, new_id
from kimi_proxy.core.prune import Cut, Options, Question, SourceType
from kimi_proxy.features.failures import FAILED_CASE, FAILURE_HEAD, FAILURE_MARKS, VERDICT, failure_level
from kimi_proxy.features.pruning import engine, source_type
from kimi_proxy.features.pruning.engine import annotate, outline, render
from kimi_proxy.features.pruning.goal import WORD, find, parts, read_goal
from kimi_proxy.features.pruning.structure import languages
from kimi_proxy.features.pruning.structure.blocks import Floats, scaled
from kimi_proxy.features.pruning.structure.logs import log_style, message_of
from kimi_proxy.features.sanitizer.plan import Origin
from kimi_proxy.features.sanitizer.records import Run, is_long, runs

Kind: TypeAlias = Literal["json", "listing", "logs", "code", "docs"]

SAMPLE_LINES = 400
LISTED = 0.7  # of the lines that are not empty
JUDGED = 0.2

_BRACKETS = {"{": "}", "[": "]"}
_HIT = re.compile(r"(?:[\w@~.+-]|[/\\ ](?=\S)|:(?=\\)){1,300}[:-]\d{1,7}[:-]|--$")
_READERS = re.compile(r"\s*(?:cat|bat|head|tail|less|more|nl|sed|awk)\b")
_SEARCHERS = re.compile(r"\s*(?:rg|grep|egrep|fgrep|ag|ack|git\s+grep|findstr)\b")
_DIFFS = re.compile(r"\s*(?:git\s+(?:diff|show|log\s+-p|format-patch)|diff)\b")
_CODE_FILE = re.compile(r"[\w./~-]+\.\w{1,5}\b")
_RUNS = re.compile(r"bash|shell|exec|terminal|command|console|run|stdout|stderr|output", re.I)


def kind_of(origin: Origin, text: str) -> Kind:
    if is_json(text):
        return "json"
    lines = split(text)
    shape = _shape(lines)
    if shape is not None:
        return shape
    if origin.failed:
        return "logs"
    if origin.command:
        return _of_command(origin.command, text, lines)
    if PurePath(origin.path).suffix:
        return source_type.guess(origin.path, text)
    return _of_lines(text, lines, runs=_RUNS.search(origin.tool) is not None)


def is_json(text: str) -> bool:
    """Whether `text` is a JSON object or array: what is left of it has to be one too."""
    opening, closing = text[:64].lstrip()[:1], text[-64:].rstrip()[-1:]
    return _BRACKETS.get(opening) == closing and deepjson.is_json(text)


def _of_command(command: str, text: str, lines: Sequence[str]) -> Kind:
    """Most commands print a log; some print a file."""
    last = re.split(r"&&|;|\n", command.strip())[-1].split("|")[0]
    if _DIFFS.match(last):
        return "code"
    if _READERS.match(last):
        named = _CODE_FILE.findall(last)
        return source_type.guess(named[-1] if named else "", text)
    return _of_lines(text, lines, runs=True)


def _of_lines(text: str, lines: Sequence[str], runs: bool) -> Kind:
    """Whatever reports a failure is a log: only there are failures sure to stay."""
    guessed: SourceType = source_type.guess("", text)
    if guessed == "logs" or FAILURE_HEAD.search(text):
        return "logs"
    if guessed == "docs":
        return "logs" if runs or _is_build(lines) else "docs"
    is_code = languages.guess(lines) != ""
    return "code" if is_code or not (runs or _is_build(lines)) else "logs"


def _is_build(lines: Sequence[str]) -> bool:
    return log_style([message_of(line).lstrip() for line in lines], lines) == "ci"


def _shape(lines: Sequence[str]) -> Kind | None:
    """`path:line:content` is what ripgrep and its relatives print, and compilers say `path:line: error` alike."""
    step = max(1, len(lines) // SAMPLE_LINES)
    sample = [line for line in lines[::step] if line]
    if len(sample) <= 3 or sum(1 for line in sample if _HIT.match(line)) < LISTED * len(sample):
        return None
    judged = sum(1 for line in sample if VERDICT.search(line[:400]))
    return "logs" if judged >= JUDGED * len(sample) else "listing"


@dataclass(frozen=True, slots=True)
class Task:
    """An output to shorten. Its ids are made of `seed`: nobody may guess them, and the same task is done alike."""

    text: str
    goal: str
    origin: Origin
    is_unread: bool
    threshold_tokens: int
    preview_chars: int
    seed: bytes
    hint: str = ""  # how to read what is left out, `{id}` in it, where the model has no tool for that
    kind: Kind = "code"  # found out by whoever shortens


@dataclass(frozen=True, slots=True)
class Hidden:
    """A text that markers name. Where lines were cut from it, which, so that they can be explained."""

    id: str
    text: str
    source_type: SourceType | None = None
    max_prune_ratio: float = 0.0
    cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True, slots=True)
class ShortenedText:
    """`why` says what was done, or why nothing was; with nothing hidden, the text is shown whole."""

    shown: str
    why: AnyReason
    hidden: tuple[Hidden, ...]
    tokens_before: int
    tokens_after: int


class Names:
    """New ids, one after the other, each made of the seed and of how many there were."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._given = 0

    def new(self, prefix: str) -> str:
        self._given += 1
        return new_id(prefix, self._entropy())

    def _entropy(self) -> Callable[[int], bytes]:
        drawn = sha256(self._seed + self._given.to_bytes(4, "big")).digest()
        return lambda size: drawn[:size]


ENDS = 3  # lines at the beginning, and as many at the end
MARKER_CHARS = 120  # a gap with less in it is not worth its marker


def rows(lines: Sequence[str], protected: Sequence[str]) -> frozenset[int]:
    """The lines of a log that tell of failures; none of any other text, for which nothing is protected."""
    if not protected:
        return frozenset()
    told = {row for row, why in enumerate(protected) if why in FAILURE_MARKS}
    named = {row for row, line in enumerate(lines) if FAILED_CASE.match(line)}
    # Where tools say how a command ended.
    ends = {*range(ENDS), *range(len(lines) - ENDS, len(lines))}
    return frozenset(told | named | ends)


def spared(cuts: Iterable[Cut], lines: Sequence[str], stay: Collection[int]) -> Iterator[Cut]:
    """The cuts without the rows that stay, as far as what is left of each is worth a marker."""
    for cut in cuts:
        start = cut.start - 1
        for row in [*sorted(row for row in stay if cut.start - 1 <= row < cut.end), cut.end]:
            if sum(len(line) + 1 for line in lines[start:row]) > MARKER_CHARS:
                yield Cut(start + 1, row, cut.reason)
            start = row + 1


HUGE_TOKENS = 8_000
UNREAD = 0.5  # the model has just asked for it
MIN_KEEP_LINES = 20

# An output that is huge, or that the model has read before.
_READ = {"code": 0.65, "docs": 0.65, "listing": 0.6, "logs": 0.8, "json": 0.9}
_HUGE_LOG = 0.9
_UNREAD_LISTING, _HUGE_LISTING_TOKENS = 0.42, 30_000  # what a hit is worth is hard to tell: rather one too many
# Of a log that says what failed, the report stays with as much again around it, and a screen more.
_AROUND_FAILURES = 2
_SCREEN_LINES = 40


def ratio_of(kind: str, tokens: int, is_unread: bool) -> float:
    if kind == "logs" and tokens > HUGE_TOKENS:
        return _HUGE_LOG
    if kind == "listing" and is_unread and tokens <= _HUGE_LISTING_TOKENS:
        return _UNREAD_LISTING
    return UNREAD if is_unread and tokens <= HUGE_TOKENS else _READ[kind]


def log_ratio(protected: Sequence[str], usual: float) -> float:
    """The ratio for a log with these protected lines; one that tells what failed can do with less of the rest."""
    if not any(why in FAILURE_MARKS for why in protected):
        return usual
    kept = _AROUND_FAILURES * sum(1 for why in protected if why) + _SCREEN_LINES
    return max(0.0, 1 - kept / len(protected))


NUMBERED_SAMPLE_LINES = 200
SHARE = 0.9  # of the lines that are not empty

_NUMBER = re.compile(r"\s{0,8}(?:L?(\d{1,7}))(?:→|\t|│ ?|\| ?|: ?)")


def bare_lines(lines: Sequence[str]) -> Sequence[str]:
    """The lines without their numbers, one for each; the same object if they have none."""
    sample = [line for line in lines[:NUMBERED_SAMPLE_LINES] if line.strip()]
    numbers = [int(found[1]) for line in sample if (found := _NUMBER.match(line))]
    if len(numbers) < max(2, SHARE * len(sample)) or numbers != sorted(set(numbers)):
        return lines
    return [line[found.end() :] if (found := _NUMBER.match(line)) else line for line in lines]


LINE_CHARS = 300
RAREST = 4  # words of a hit that tell how much it is like the others
NOVELTY = 0.6


def worth(lines: Sequence[str], goal: str, check: Callable[[], None]) -> list[float]:
    here = np.arange(len(lines))
    relevance = scaled(find(lines, read_goal(goal), check).over(here, here + 1).bm25())
    check()
    return [float(w) for w in np.minimum(1.0, relevance + NOVELTY * _novelty(lines))]


def _novelty(lines: Sequence[str]) -> Floats:
    words = [{part for word in WORD.findall(line[:LINE_CHARS]) for part in parts(word)} for line in lines]
    lines_with = Counter(word for found in words for word in found)
    rarity = {word: math.log(len(lines) / count) for word, count in lines_with.items()}
    rarest = (sorted((rarity[word] for word in found), reverse=True)[:RAREST] for found in words)
    return scaled(np.array([sum(found) / RAREST for found in rarest]))


CHARS_PER_TOKEN = 4
# Lines that are longer than this on average are machine-made.
LONG_LINE_CHARS = 400


def suits(text: str) -> bool:
    return len(text) > LONG_LINE_CHARS * (text.count("\n") + 1)


def shorten_preview(task: Task, names: Names, before: int) -> ShortenedText:
    head, tail = _ends(task)
    mask_id = names.new("msk")
    start, end = head, len(task.text) - tail
    if end <= start:
        return ShortenedText(task.text, "nothing_to_cut", (), before, before)
    if task.kind == "logs" and failure_level(task.text[start:end]) == 1.0:
        return ShortenedText(task.text, "failures", (), before, before)
    marker = str(MaskMarker(mask_id, len(task.text), head, tail))
    hint = f"\n{task.hint.replace('{id}', mask_id)}" if task.hint else ""
    shown = task.text[:start] + marker + task.text[end:] + hint
    after = tokens.count(shown)
    if after >= before or len(shown) >= len(task.text):
        return ShortenedText(task.text, "nothing_to_cut", (), before, before)
    return ShortenedText(shown, "masked", (Hidden(mask_id, task.text),), before, after)


def _ends(task: Task) -> tuple[int, int]:
    """Of what the model has not read yet, as much as may always stay; of the rest, a glance."""
    shown = CHARS_PER_TOKEN * task.threshold_tokens // 2 if task.is_unread else task.preview_chars
    head = max(shown, task.preview_chars)
    return head, head // 2


_AS: dict[str, SourceType] = {"listing": "docs", "logs": "logs", "code": "code", "docs": "docs"}


def shorten_lines(task: Task, names: Names, before: int, check: Callable[[], None]) -> ShortenedText:
    """The lines that matter for the goal, exactly as they were, around markers."""
    lines = text_lines.split(task.text)
    judged, kind = bare_lines(lines), _AS[task.kind]
    protected = outline(judged, kind, check).protected if task.kind == "logs" else ()
    ratio = log_ratio(protected, ratio_of(task.kind, before, task.is_unread))
    scores = worth(lines, task.goal, check) if task.kind == "listing" else None
    options = Options(ratio, MIN_KEEP_LINES, 0, annotate_lines=False, include_markers=True)
    question = Question(text_lines.join(judged), task.goal, kind, options)
    prune_id = names.new("prn")
    chosen = (annotation.cut for annotation in engine.prune(question, prune_id, scores, check).annotations)
    cuts = tuple(spared(chosen, lines, rows(judged, protected)))
    text = render(lines, annotate(cuts, prune_id), options)
    return _shown(task, text, Hidden(prune_id, task.text, kind, ratio, cuts), before)


def _shown(task: Task, text: str, hidden: Hidden, before: int) -> ShortenedText:
    if not hidden.cuts:
        return ShortenedText(task.text, "nothing_to_cut", (), before, before)
    hint = task.hint.replace("{id}", hidden.id)
    shown = f"{text}{'' if text.endswith(chr(10)) else chr(10)}{hint}" if hint else text
    after = tokens.count(shown)
    if after >= before:
        return ShortenedText(task.text, "nothing_to_cut", (), before, before)
    return ShortenedText(shown, "pruned", (hidden,), before, after)


BYTES_PER_TOKEN = 3

Inside: TypeAlias = Callable[[Task, Names, Callable[[], None]], ShortenedText]
Edit: TypeAlias = tuple[int, int, bytes]

_REST_OF_LINE = re.compile(rb"[ \t]*,?[ \t]*\n")
_PRINTED = Origin(tool="output")  # a string in an answer is usually what something printed


@dataclass(frozen=True, slots=True)
class _Found:
    runs: tuple[Run, ...]
    strings: tuple[tuple[int, int], ...]


def shorten_members(task: Task, names: Names, before: int, check: Callable[[], None], inside: Inside) -> ShortenedText:
    """`inside` shortens a long string of the text."""
    whole = ShortenedText(task.text, "nothing_to_cut", (), before, before)
    raw = _bytes(task.text)
    top = rawjson.view(raw)
    if top is None:
        return replace(whole, why="unreadable_json")
    found = _look(top, raw, task, before, check)
    by_lines = all(_fills_lines(run, raw) for run in found.runs)
    own = Hidden(names.new("prn" if found.runs and by_lines else "msk"), task.text)
    edits, hidden = _strings(raw, found.strings, task, names, check, inside)
    hint = f" {task.hint.replace('{id}', own.id)}" if task.hint else ""
    for nth, run in enumerate(found.runs):
        marker = _by_lines(run, raw, own.id) if by_lines else _by_chars(run, raw, task.text, own.id)
        edits.append((run.start, run.end, _member(marker + (hint if nth == 0 else ""), run)))
    shown = _edited(raw, edits).decode()
    after = tokens.count(shown)
    if not edits or after >= before or not deepjson.is_json(shown):
        return whole
    return ShortenedText(shown, "pruned", (own, *hidden), before, after)


def _bytes(text: str) -> bytes:
    """None of a text that holds half of a surrogate pair: nobody can read that as JSON."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return b""


def _look(top: Raw, raw: bytes, task: Task, before: int, check: Callable[[], None]) -> _Found:
    """The runs of records that may go, and the long strings outside of them."""
    long_bytes = BYTES_PER_TOKEN * task.threshold_tokens
    ratio = ratio_of("json", before, task.is_unread)
    cut: list[Run] = []
    strings: list[tuple[int, int]] = []
    views = [top]
    while views:
        view = views.pop()
        start, size = rawjson.start(view, raw), rawjson.size(view)
        if size <= long_bytes:
            continue
        if raw[start : start + 1] == b'"':
            strings.append((start, start + size))
            continue
        members = rawjson.children(view)
        found = tuple(runs(members, raw, task.goal, ratio, check)) if is_long(members) else ()
        cut += found
        if not found:
            views += members.values() if isinstance(members, dict) else members
    return _Found(tuple(sorted(cut, key=lambda run: run.start)), tuple(sorted(strings)))


def _strings(
    raw: bytes, spans: Sequence[tuple[int, int]], task: Task, names: Names, check: Callable[[], None], inside: Inside
) -> tuple[list[Edit], list[Hidden]]:
    edits: list[Edit] = []
    hidden: list[Hidden] = []
    for start, end in spans:
        text = str(deepjson.decode_deep(raw[start:end]))
        shorter = inside(replace(task, text=text, kind=kind_of(_PRINTED, text)), names, check)
        token = json.dumps(shorter.shown, ensure_ascii=raw.isascii()).encode()
        if shorter.hidden and len(token) < end - start:
            edits.append((start, end, token))
            hidden += shorter.hidden
    return edits, hidden


def _fills_lines(run: Run, raw: bytes) -> bool:
    """Whether nothing else stands on the lines of a run: then they can be told, and read back, by their numbers."""
    line = raw.rfind(b"\n", 0, run.start) + 1
    return line > 0 and not raw[line : run.start].strip() and _REST_OF_LINE.match(raw, run.end) is not None


def _by_lines(run: Run, raw: bytes, prune_id: str) -> str:
    first = raw.count(b"\n", 0, run.start) + 1
    last = first + raw.count(b"\n", run.start, run.end)
    return str(PruneMarker(prune_id, first, last, clean_reason(f"{run.count} éléments semblables")))


def _by_chars(run: Run, raw: bytes, text: str, mask_id: str) -> str:
    """The hidden characters, as every masking marker tells them, and which members they are."""
    start = len(raw[: run.start].decode())
    end = start + len(raw[run.start : run.end].decode())
    marker = str(MaskMarker(mask_id, len(text), start, len(text) - end)).strip()
    return f"{marker} éléments {run.first}-{run.first + run.count - 1} ({run.count})"


def _member(marker: str, run: Run) -> bytes:
    return json.dumps(marker, ensure_ascii=False).encode() + (b": null" if run.of_object else b"")


def _edited(raw: bytes, edits: Sequence[Edit]) -> bytes:
    pieces: list[bytes] = []
    at = 0
    for start, end, new in sorted(edits):
        pieces += (raw[at:start], new)
        at = end
    return b"".join((*pieces, raw[at:]))


# A text that the model has not read yet is cut only if there is enough of it; a log says less per line.
PATIENCE = {"code": 2, "docs": 2}


def _never() -> None:
    """The deadline of a caller who has none."""


def shorten(task: Task, check: Callable[[], None] = _never) -> ShortenedText:
    before = tokens.count(task.text)
    if before <= task.threshold_tokens:
        return ShortenedText(task.text, "below_threshold", (), before, before)
    task = replace(task, kind=kind_of(task.origin, task.text))
    why = _why_not(task, before)
    if why:
        return ShortenedText(task.text, why, (), before, before)
    names = Names(task.seed)
    if task.kind == "json":
        return shorten_members(task, names, before, check, _inside)
    return _text(task, names, before, check)


def _inside(task: Task, names: Names, check: Callable[[], None]) -> ShortenedText:
    """A string of a JSON text; one that is JSON itself stays whole, for there is no end to it."""
    before = tokens.count(task.text)
    if task.kind == "json":
        return ShortenedText(task.text, "nothing_to_cut", (), before, before)
    return _text(task, names, before, check)


def _text(task: Task, names: Names, before: int, check: Callable[[], None]) -> ShortenedText:
    if suits(task.text):
        return shorten_preview(task, names, before)
    return shorten_lines(task, names, before, check)


def _why_not(task: Task, tokens_before: int) -> Reason | Literal[""]:
    if markers.quoted_id(task.text) is not None:
        return "already_cut"
    if task.is_unread and tokens_before <= PATIENCE.get(task.kind, 1) * task.threshold_tokens:
        return "unread"
    return ""

"""Forms of a tool result without scores, in linear time: redundant text removed, or only its ends."""

import json
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.errors import Shortening
from kimi_proxy.core.json import is_container
from kimi_proxy.core.markers import MaskMarker, clean_reason
from kimi_proxy.core.prune import Cut, Options, Question
from kimi_proxy.features.masking import MAX_TABLE_CHARS, middle_members
from kimi_proxy.features.pruning.engine import annotate, fit, render
from kimi_proxy.features.pruning.kinds import type_of
from kimi_proxy.features.records.fitting import write_by_chars
from kimi_proxy.features.records.table import MIN_SAVING, write_table
from kimi_proxy.features.sanitizer.plan import LongOutput
from kimi_proxy.features.sanitizer.shorten import (
    Hidden,
    NextId,
    ShortenedText,
    ids_of,
    readable_rows,
    strip_row_numbers,
)
from kimi_proxy.features.sanitizer.stage import Decision

MIN_REPEATED_LINES = 6
MIN_REPEATED_CHARS = 400  # a marker costs about 40 tokens, and a gap has to save more than that


def repeats(lines: Sequence[str], earlier: Sequence[str], source: str) -> tuple[Cut, ...]:
    """Return the runs of `lines` that also appear in `earlier`, in the same order; `source` identifies it.

    Linear in both: lines that occur once in `earlier` are anchors, from which runs grow in both directions.
    """
    anchors = _single(earlier)
    reason = clean_reason(f"déjà montré plus haut : {source}" if source else "déjà montré plus haut")
    return tuple(Cut(start + 1, end, reason) for start, end in _common_runs(lines, earlier, anchors))


def _single(lines: Sequence[str]) -> dict[str, int]:
    """Return the position of each line that occurs only once."""
    at: dict[str, int] = {}
    twice: set[str] = set()
    for row, line in enumerate(lines):
        if line in at:
            twice.add(line)
        at[line] = row
    return {line: row for line, row in at.items() if line.strip() and line not in twice}


def _common_runs(lines: Sequence[str], earlier: Sequence[str], anchors: dict[str, int]) -> Iterator[tuple[int, int]]:
    row = done = 0
    while row < len(lines):
        there = anchors.get(lines[row])
        if there is None:
            row += 1
            continue
        start = row
        end = row + 1
        while start > done and there - (row - start) > 0 and lines[start - 1] == earlier[there - (row - start) - 1]:
            start -= 1
        while end < len(lines) and there + end - row < len(earlier) and lines[end] == earlier[there + end - row]:
            end += 1
        if end - start >= MIN_REPEATED_LINES and sum(map(len, lines[start:end])) >= MIN_REPEATED_CHARS:
            yield start, end
        row = done = end


MIN_SAVED_TOKENS = 40  # less is not worth a commit
MIN_SAVED_CHARS = 40  # of which a token has one at least
HEAD_LINES, TAIL_LINES = 2, 1
END_CHARS = 160
MAX_END_CHARS = 600  # of the lines that stay at both ends
HEAD_SHARE, TAIL_SHARE = 0.6, 0.3  # of a bounded result; the rest is for the marker

MAX_EARLIER = 4  # results that a new one is compared with
MIN_SHARED_ROWS = 4  # long rows; a pointer needs more rows than that, of any length
MIN_SHARED_CHARS = 20
READABLE = frozenset({"thinned", "repeated"})  # ways to shorten that leave everything to be read
CHOSEN = frozenset({"pruned", "masked"})  # those that leave what matters

_OPTIONS = Options(1.0, 0, 0, annotate_lines=False, include_markers=True)


@dataclass(frozen=True, slots=True)
class Earlier:
    """A result that the conversation still shows; lines without their numbers, which shift with an edit."""

    source: str
    lines: Sequence[str]

    @classmethod
    def of(cls, output: LongOutput) -> "Earlier":
        return cls(source_of(output), strip_row_numbers(text_lines.split(output.text)))


def lossless_form(output: LongOutput, earlier: Sequence[Earlier], seed: bytes, hint: str = "") -> ShortenedText | None:
    """Return the result without redundant text; None if that saves too little.

    Rows shown by an earlier result become a reference to it, others lose their row numbers or terminal codes. `hint`,
    here and below, explains how to read cut text, with `{id}` in it, if the model has no tool for that.
    """
    if output.whole_because == "already_cut":
        return None
    lines = text_lines.split(output.text)
    if is_container(output.text):  # what stays of it has to be JSON too
        is_shown = any(one.lines == lines for one in earlier)
        return _json_ends(output, seed, END_CHARS, END_CHARS // 2, "repeated", hint) if is_shown else None
    cuts = _pointers(lines, earlier)
    rows = readable_rows(output.origin, lines, cuts)
    next_id = ids_of(seed)
    hidden = Hidden(next_id("prn" if cuts else "msk"), output.text)
    shown = render(rows, annotate(cuts, hidden.id), _OPTIONS) if cuts else text_lines.join(rows)
    if len(output.text) - len(shown) < MIN_SAVED_CHARS:
        return None
    before = tokens.count(output.text)
    form = _with_hint(
        ShortenedText(shown, "repeated" if cuts else "thinned", (hidden,), before, tokens.count(shown)), hint
    )
    return form if before - form.tokens_after >= MIN_SAVED_TOKENS else None


def _pointers(lines: Sequence[str], earlier: Sequence[Earlier]) -> tuple[Cut, ...]:
    """Return the runs of the result that one earlier result shows, of the one that shows most."""
    bare = strip_row_numbers(lines) if earlier else lines
    found = (repeats(bare, one.lines, one.source) for one in earlier)
    return max(found, key=lambda cuts: sum(cut.end - cut.start + 1 for cut in cuts), default=())


def aged_form(output: LongOutput, seed: bytes, hint: str = "") -> ShortenedText | None:
    """Return the ends of an old result around a marker that identifies it; None if that saves too little."""
    if is_container(output.text) and (form := _json_ends(output, seed, END_CHARS, END_CHARS // 2, "aged", hint)):
        return form
    before = tokens.count(output.text)
    lines = text_lines.split(output.text)
    ends = sum(map(len, (*lines[:HEAD_LINES], *lines[-TAIL_LINES:])))
    next_id = ids_of(seed)
    if len(lines) > HEAD_LINES + TAIL_LINES and ends <= MAX_END_CHARS:
        cut = Cut(HEAD_LINES + 1, len(lines) - TAIL_LINES, clean_reason(f"résultat ancien : {source_of(output)}"))
        form = _by_lines(output, lines, (cut,), "aged", next_id, before)
    else:
        form = _ends(output, next_id, before)
    form = _with_hint(form, hint) if form is not None else None
    return form if form is not None and before - form.tokens_after >= MIN_SAVED_TOKENS else None


def table_form(output: LongOutput, seed: bytes) -> ShortenedText | None:
    """Return a result that is JSON with its records as a table; None if that saves too little."""
    table = write_table(output.text) if len(output.text) <= MAX_TABLE_CHARS else None
    if table is None or output.whole_because:
        return None
    mask_id = ids_of(seed)("msk")
    before = tokens.count(output.text)
    form = ShortenedText(
        table(mask_id), "thinned", (Hidden(mask_id, output.text),), before, tokens.count(table(mask_id))
    )
    return form if before - form.tokens_after >= max(MIN_SAVED_TOKENS, MIN_SAVING * before) else None


def bounded_form(
    output: LongOutput, seed: bytes, max_tokens: int, hint: str = "", tokens_before: int = 0, goal: str = ""
) -> ShortenedText | None:
    """Return what fits of a result into `max_tokens`: what answers and what failed, else its head and tail.

    `tokens_before` are those of the result, where they were counted.
    """
    before = tokens_before or tokens.count(output.text)
    room = max_tokens * len(output.text) / max(1, before)  # in characters
    chosen = _chosen_form(output, seed, max_tokens, hint, before, goal)
    if chosen is not None:
        return chosen
    lines = text_lines.split(output.text)
    head = _rows_within(lines, HEAD_SHARE * room)
    tail = _rows_within(lines[::-1], TAIL_SHARE * room)
    next_id = ids_of(seed)
    if head and tail and head + tail < len(lines):
        cut = Cut(head + 1, len(lines) - tail, clean_reason(f"milieu d'un long résultat : {source_of(output)}"))
        return _with_hint(_by_lines(output, lines, (cut,), "pruned", next_id, before), hint)
    mask_id = next_id("msk")
    start = int(HEAD_SHARE * room)
    end = int(len(output.text) - TAIL_SHARE * room)
    marker = str(MaskMarker(mask_id, len(output.text), start, len(output.text) - end))
    shown = output.text[:start] + marker + output.text[end:]
    form = ShortenedText(shown, "masked", (Hidden(mask_id, output.text),), before, tokens.count(shown))
    return _with_hint(form, hint) if form.tokens_after < before else None


def _chosen_form(
    output: LongOutput, seed: bytes, max_tokens: int, hint: str, before: int, goal: str
) -> ShortenedText | None:
    """Return the chosen records or lines of a result; None if there is nothing to choose by."""
    text = output.text
    mask_id = ids_of(seed)("msk")
    kind = type_of(output.origin, text)
    room = max_tokens
    for _ in range(TRIES):
        question = Question(text, goal, kind, _OPTIONS, room=room)
        found = fit(question, tokens_before=before, is_hurried=True)
        if found is None or not found.cuts or not found.has_choice:
            return None
        shown = write_by_chars(text, found.gaps(text), mask_id, hint.replace("{id}", mask_id))
        after = tokens.count(shown)
        if after <= max_tokens:
            return ShortenedText(shown, "pruned", (Hidden(mask_id, text),), before, after)
        room = int(TIGHTER * room * max_tokens / after)
    return None


TRIES, TIGHTER = 4, 0.97


def head_form(output: LongOutput, seed: bytes, max_tokens: int) -> ShortenedText | None:
    """Return the head of a result, within `max_tokens`; None if it is short enough, or has lines that are too long."""
    before = tokens.count(output.text)
    lines = text_lines.split(output.text)
    head = _rows_within(lines, max_tokens * len(output.text) / max(1, before))
    if before <= max_tokens or not head or head >= len(lines):
        return None
    cut = Cut(head + 1, len(lines), clean_reason(f"fin d'un long résultat : {source_of(output)}"))
    return _by_lines(output, lines, (cut,), "pruned", ids_of(seed), before)


def _json_ends(
    output: LongOutput, seed: bytes, head_chars: int, tail_chars: int, why: Shortening, hint: str
) -> ShortenedText | None:
    """Return a JSON text with a marker for the members between its ends, as JSON; None if that saves too little."""
    text = output.text
    found = middle_members(text, head_chars, tail_chars)
    if found is None:
        return None
    start, end, kind = found
    mask_id = ids_of(seed)("msk")
    marker = str(MaskMarker(mask_id, len(text), start, len(text) - end)).strip()
    said = json.dumps(f"{marker} {hint.replace('{id}', mask_id)}".strip(), ensure_ascii=False)
    shown = f"{text[:start]}{said}{': null' if kind == 'object' else ''}{text[end:]}"
    form = ShortenedText(shown, why, (Hidden(mask_id, text),), tokens.count(text), tokens.count(shown))
    return form if form.tokens_before - form.tokens_after >= MIN_SAVED_TOKENS else None


def _with_hint(form: ShortenedText, hint: str) -> ShortenedText:
    if not hint or form.why == "thinned":  # every line of it is there
        return form
    shown = f"{form.shown}\n{hint.replace('{id}', form.hidden[0].id)}"
    return replace(form, shown=shown, tokens_after=tokens.count(shown))


def _rows_within(lines: Sequence[str], chars: float) -> int:
    rows = 0
    for line in lines:
        chars -= len(line) + 1
        if chars < 0:
            break
        rows += 1
    return rows


def _ends(output: LongOutput, next_id: NextId, before: int) -> ShortenedText | None:
    text = output.text
    mask_id = next_id("msk")
    if len(text) <= 3 * END_CHARS:
        return None
    marker = str(MaskMarker(mask_id, len(text), END_CHARS, END_CHARS // 2))
    shown = text[:END_CHARS] + marker + text[len(text) - END_CHARS // 2 :]
    return ShortenedText(shown, "aged", (Hidden(mask_id, text),), before, tokens.count(shown))


def _by_lines(
    output: LongOutput, lines: Sequence[str], cuts: Sequence[Cut], why: Shortening, next_id: NextId, before: int
) -> ShortenedText:
    prune_id = next_id("prn")
    shown = render(lines, annotate(tuple(cuts), prune_id), _OPTIONS)
    return ShortenedText(shown, why, (Hidden(prune_id, output.text),), before, tokens.count(shown))


def source_of(output: LongOutput) -> str:
    """Return a short description of a result: the tool, and its file or command."""
    about = output.origin.path or output.origin.command
    return f"{output.origin.tool} {about}".strip()[:60]


def rows_of(output: LongOutput) -> "array[int]":
    """Return hashes of the rows by which a result can be found in others, each once: of this process only.

    In an array: they are kept, and as numbers of their own among what is soon freed they would hold on to its memory.
    """
    rows = strip_row_numbers(text_lines.split(output.text))
    return array("q", {hash(line) for line in rows if len(line) >= MIN_SHARED_CHARS})


def _can_be_read(earlier: LongOutput, decision: Decision | None, output: LongOutput) -> bool:
    """Return whether a pointer to an earlier result serves as well as `output` itself.

    Where the client repeats a result that the model did not call for, as aider does after each edit, the first copy
    serves although it was cut.
    """
    if decision is None or decision.shown is None or decision.why in READABLE:
        return True
    return decision.why in CHOSEN and not output.call_id and output.text == earlier.text


def readable_before(
    before: Sequence[LongOutput],
    decisions: Mapping[bytes, Decision],
    output: LongOutput,
    rows: "Callable[[LongOutput], array[int]]" = rows_of,
    gone: Collection[bytes] = (),
) -> list[Earlier]:
    """Return the results before `output` that the model can still read and that share most rows with it.

    `rows` returns what `rows_of` does, and may remember it.
    """
    wanted = frozenset(rows(output))
    readable = (
        one
        for one in reversed(before)
        if one.stays and one.key not in gone and _can_be_read(one, decisions.get(one.key), output)
    )
    shared = ((len(wanted.intersection(rows(one))), one) for one in readable) if len(wanted) >= MIN_SHARED_ROWS else ()
    alike = sorted((pair for pair in shared if pair[0] >= MIN_SHARED_ROWS), key=lambda pair: -pair[0])
    return [Earlier.of(one) for _, one in alike[:MAX_EARLIER]]

"""Forms of a tool result that need no scores, in linear time: without what is redundant, or of an old one its ends."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.errors import Shortening
from kimi_proxy.core.markers import MaskMarker, clean_reason, quoted_id
from kimi_proxy.core.prune import Cut, Options
from kimi_proxy.features.pruning.engine import annotate, render
from kimi_proxy.features.sanitizer.plan import LongOutput
from kimi_proxy.features.sanitizer.policy import READERS
from kimi_proxy.features.sanitizer.shorten import Hidden, NextId, ShortenedText, ids_of, unnumbered
from kimi_proxy.features.sanitizer.stage import Decision

NUMBERED_EVERY = 10
MIN_NUMBERED_ROWS = 20  # below this the numbers cost less than a reader's second look
MIN_REPEATED_LINES = 6
MIN_REPEATED_CHARS = 400  # a marker costs about 40 tokens, and a gap has to save more than that
MAX_ROW_CHARS = 2000
ROW_HEAD_CHARS, ROW_TAIL_CHARS = 600, 200

# How tools that show files number their rows: `    12→`, `12\t`, `12│`, `12|`, `12:`, the last three also with a space.
_NUMBER = re.compile(r" {0,8}L?(\d{1,7})([→\t│|:])")
_MAY_HAVE_SPACE = "│|:"
# Colours and cursor movements (CSI), window titles and links (OSC), and single-character escapes.
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|[@-Z\\-_])")


PADDED = " " * 8  # fewer spaces at the end of a line may be a file's own: an edit that quotes them must find them
_PADDING = re.compile(r"(?<! ) {8,}$", re.M)


def thin_numbers(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines with their row numbers left on every tenth row; the same object if they are not numbered.

    Only rows that count up by one lose theirs, so that every number can be told from the one before it. A row without
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
    return _PADDING.sub("", text) if PADDED in text else text


def _last_written(line: str) -> str:
    """A carriage return goes back to the beginning of the line; one at its end belongs to the line break."""
    ending = "\r" if line.endswith("\r") else ""
    body = line.removesuffix("\r")
    return body[body.rfind("\r") + 1 :] + ending


@dataclass(frozen=True, slots=True)
class CharSpan:
    start: int
    end: int


def long_rows(text: str) -> list[CharSpan]:
    """Return the middles of rows that are too long to have been written by hand."""
    if len(text) <= MAX_ROW_CHARS:
        return []
    spans: list[CharSpan] = []
    start = 0
    while start <= len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if end - start > MAX_ROW_CHARS:
            spans.append(CharSpan(start + ROW_HEAD_CHARS, end - ROW_TAIL_CHARS))
        start = end + 1
    return spans


def repeats(lines: Sequence[str], earlier: Sequence[str], source: str) -> tuple[Cut, ...]:
    """Return the runs of `lines` that `earlier` shows as well, in the same order; `source` names where.

    Linear in both: lines that stand once in `earlier` are anchors, and runs grow from them in both directions.
    """
    anchors = _single(earlier)
    reason = clean_reason(f"déjà montré plus haut : {source}" if source else "déjà montré plus haut")
    return tuple(Cut(start + 1, end, reason) for start, end in _common_runs(lines, earlier, anchors))


def _single(lines: Sequence[str]) -> dict[str, int]:
    """Return where each line stands that stands there once."""
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
        start, end = row, row + 1
        while start > done and there - (row - start) > 0 and lines[start - 1] == earlier[there - (row - start) - 1]:
            start -= 1
        while end < len(lines) and there + end - row < len(earlier) and lines[end] == earlier[there + end - row]:
            end += 1
        if end - start >= MIN_REPEATED_LINES and sum(map(len, lines[start:end])) >= MIN_REPEATED_CHARS:
            yield start, end
        row = done = end


MIN_SAVED_TOKENS = 40  # less is not worth a commit
HEAD_LINES, TAIL_LINES = 2, 1
END_CHARS = 160
MAX_END_CHARS = 600  # of the lines that stay at both ends
HEAD_SHARE, TAIL_SHARE = 0.6, 0.3  # of a bounded result; the rest is for the marker

MAX_EARLIER = 4  # results of the same file that a new one is compared with
READABLE = frozenset({"thinned", "repeated"})  # ways to shorten that leave everything to be read

_OPTIONS = Options(1.0, 0, 0, annotate_lines=False, include_markers=True)


@dataclass(frozen=True, slots=True)
class Earlier:
    """A result that the conversation still shows; lines without their numbers, which shift with an edit."""

    source: str
    lines: Sequence[str]

    @classmethod
    def of(cls, output: LongOutput) -> "Earlier":
        return cls(source_of(output), unnumbered(text_lines.split(output.text)))


def lossless_form(output: LongOutput, earlier: Sequence[Earlier], seed: bytes, hint: str = "") -> ShortenedText | None:
    """Return the result without what the model can see elsewhere or does not need; None if that saves too little.

    `hint`, here and below, is how to read what is left out, `{id}` in it, where the model has no tool for that.
    """
    before = tokens.count(output.text)
    if quoted_id(output.text) is not None:
        return None
    next_id = ids_of(seed)
    forms = (
        _repeated(output, earlier, next_id, before),
        _thinned(output, next_id, before),
        _without_long_rows(output, next_id, before),
    )
    hinted = (_hinted(form, hint) for form in forms if form is not None)
    best = min(hinted, key=lambda form: form.tokens_after, default=None)
    return best if best is not None and before - best.tokens_after >= MIN_SAVED_TOKENS else None


def _repeated(output: LongOutput, earlier: Sequence[Earlier], next_id: NextId, before: int) -> ShortenedText | None:
    lines = text_lines.split(output.text)
    bare = unnumbered(lines)
    found = ((cuts, one) for one in earlier if (cuts := repeats(bare, one.lines, one.source)))
    cuts, _ = max(found, key=lambda pair: sum(cut.end - cut.start + 1 for cut in pair[0]), default=((), None))
    return _by_lines(output, lines, cuts, "repeated", next_id, before) if cuts else None


def _thinned(output: LongOutput, next_id: NextId, before: int) -> ShortenedText | None:
    lines = text_lines.split(output.text)
    # Elsewhere numbers that count up may be the text's own: ids of a table, keys of a list.
    thinned = thin_numbers(lines) if output.origin.tool.lower() in READERS else lines
    if thinned is not lines:
        shown = text_lines.join(thinned)
    elif output.origin.command:
        shown = strip_terminal(output.text)
    else:
        return None
    if shown == output.text:
        return None
    return ShortenedText(shown, "thinned", (Hidden(next_id("msk"), output.text),), before, tokens.count(shown))


def _without_long_rows(output: LongOutput, next_id: NextId, before: int) -> ShortenedText | None:
    text, spans = output.text, long_rows(output.text)
    if not spans or text[:64].lstrip()[:1] in ("{", "["):  # JSON stays JSON
        return None
    mask_id = next_id("msk")
    pieces: list[str] = []
    at = 0
    for span in spans:
        pieces += (text[at : span.start], str(MaskMarker(mask_id, len(text), span.start, len(text) - span.end)))
        at = span.end
    shown = "".join((*pieces, text[at:]))
    return ShortenedText(shown, "masked", (Hidden(mask_id, text),), before, tokens.count(shown))


def aged_form(output: LongOutput, seed: bytes, hint: str = "") -> ShortenedText | None:
    """Return the ends of an old result around a marker that names what it was; None if that saves too little."""
    before = tokens.count(output.text)
    lines = text_lines.split(output.text)
    ends = sum(map(len, (*lines[:HEAD_LINES], *lines[-TAIL_LINES:])))
    next_id = ids_of(seed)
    if len(lines) > HEAD_LINES + TAIL_LINES and ends <= MAX_END_CHARS:
        cut = Cut(HEAD_LINES + 1, len(lines) - TAIL_LINES, clean_reason(f"résultat ancien : {source_of(output)}"))
        form: ShortenedText | None = _by_lines(output, lines, (cut,), "aged", next_id, before)
    else:
        form = _ends(output, next_id, before)
    form = _hinted(form, hint) if form is not None else None
    return form if form is not None and before - form.tokens_after >= MIN_SAVED_TOKENS else None


def bounded_form(output: LongOutput, seed: bytes, max_tokens: int, hint: str = "") -> ShortenedText | None:
    """Return the head and tail of a result, within `max_tokens`: for one whose lines could not be scored in time."""
    before = tokens.count(output.text)
    lines = text_lines.split(output.text)
    room = max_tokens * len(output.text) / max(1, before)  # in characters
    head, tail = _rows_within(lines, HEAD_SHARE * room), _rows_within(lines[::-1], TAIL_SHARE * room)
    next_id = ids_of(seed)
    if head and tail and head + tail < len(lines):
        cut = Cut(head + 1, len(lines) - tail, clean_reason(f"milieu d'un long résultat : {source_of(output)}"))
        return _hinted(_by_lines(output, lines, (cut,), "pruned", next_id, before), hint)
    mask_id, start, end = next_id("msk"), int(HEAD_SHARE * room), int(len(output.text) - TAIL_SHARE * room)
    marker = str(MaskMarker(mask_id, len(output.text), start, len(output.text) - end))
    shown = output.text[:start] + marker + output.text[end:]
    form = ShortenedText(shown, "masked", (Hidden(mask_id, output.text),), before, tokens.count(shown))
    return _hinted(form, hint) if form.tokens_after < before else None


def head_form(output: LongOutput, seed: bytes, max_tokens: int) -> ShortenedText | None:
    """Return the head of a result, within `max_tokens`; None if it is short enough, or has lines that are too long."""
    before = tokens.count(output.text)
    lines = text_lines.split(output.text)
    head = _rows_within(lines, max_tokens * len(output.text) / max(1, before))
    if before <= max_tokens or not head or head >= len(lines):
        return None
    cut = Cut(head + 1, len(lines), clean_reason(f"fin d'un long résultat : {source_of(output)}"))
    return _by_lines(output, lines, (cut,), "pruned", ids_of(seed), before)


def _hinted(form: ShortenedText, hint: str) -> ShortenedText:
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
    text, mask_id = output.text, next_id("msk")
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
    """Return what a result was about, in a few words: the tool, and its file or command."""
    about = output.origin.path or output.origin.command
    return f"{output.origin.tool} {about}".strip()[:60]


def readable_before(
    before: Sequence[LongOutput], decisions: Mapping[bytes, Decision], output: LongOutput, gone: Collection[bytes] = ()
) -> list[Earlier]:
    """Return the results before `output`, newest first, that the model can still read and that may hold the same."""
    alike = (
        one
        for one in reversed(before)
        if one.key not in gone
        and (one.text == output.text or (one.origin.path and one.origin.path == output.origin.path))
        and ((decision := decisions.get(one.key)) is None or decision.shown is None or decision.why in READABLE)
    )
    return [Earlier.of(one) for one in islice(alike, MAX_EARLIER)]

"""Forms of a tool result that need no scores, in linear time: without what is redundant, or of an old one its ends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.errors import Shortening
from kimi_proxy.core.markers import MaskMarker, clean_reason, quoted_id
from kimi_proxy.core.prune import Cut, Options
from kimi_proxy.features.pruning.engine import annotate, render
from kimi_proxy.features.sanitizer.lossless import long_rows, repeats, strip_terminal, thin_numbers
from kimi_proxy.features.sanitizer.plan import LongOutput
from kimi_proxy.features.sanitizer.policy import READERS
from kimi_proxy.features.sanitizer.shorten import Hidden, NextId, ShortenedText, ids_of, unnumbered

MIN_SAVED_TOKENS = 40  # less is not worth a commit
HEAD_LINES, TAIL_LINES = 2, 1
END_CHARS = 160
MAX_END_CHARS = 600  # of the lines that stay at both ends
HEAD_SHARE, TAIL_SHARE = 0.6, 0.3  # of a bounded result; the rest is for the marker

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

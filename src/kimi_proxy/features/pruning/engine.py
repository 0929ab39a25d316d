"""A prune from end to end: structure, signals, scores, selection, reasons, text."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.errors import WarningCode
from kimi_proxy.core.markers import NO_PRUNE_BEGIN, NO_PRUNE_END, PruneMarker
from kimi_proxy.core.prune import Annotation, Cut, Options, Pruned, Question, SourceType, untouched
from kimi_proxy.features.pruning import explain as reasons
from kimi_proxy.features.pruning import score
from kimi_proxy.features.pruning.explain import LineWhy
from kimi_proxy.features.pruning.explain import explain as explain_lines
from kimi_proxy.features.pruning.model import Scorers, installed
from kimi_proxy.features.pruning.select import Costs, filled, gaps, select
from kimi_proxy.features.pruning.signals import Signals, measure
from kimi_proxy.features.pruning.structure import code, docs, logs
from kimi_proxy.features.pruning.structure.blocks import Block, Floats, Outline


def forbid_pruning(lines: Sequence[str], outline: Outline) -> Outline:
    """`outline` with every line between the directives protected, and the directives too.

    They nest. A begin without an end protects to the end of the text; an end without a begin only itself.
    """
    rows = _protected_rows(lines)
    if not rows:
        return outline
    protected = list(outline.protected)
    for row in rows:
        protected[row] = "no_prune"
    return replace(outline, protected=tuple(protected))


def _protected_rows(lines: Sequence[str]) -> list[int]:
    rows: list[int] = []
    depth = 0
    for row, line in enumerate(lines):
        word = line.strip() if "⟦NO_PRUNE" in line else ""
        if word == NO_PRUNE_BEGIN:
            depth += 1
        if depth or word == NO_PRUNE_END:
            rows.append(row)
        if word == NO_PRUNE_END and depth:
            depth -= 1
    return rows


def outline(lines: Sequence[str], source_type: SourceType, check: Callable[[], None] = lambda: None) -> Outline:
    """The blocks and protected lines of a text of that type; `check` is called often and may raise to abort."""
    match source_type:
        case "code":
            found = code.outline(lines, check)
        case "logs":
            found = logs.outline(lines, check)
        case "docs":
            found = docs.outline(lines, check)
    return forbid_pruning(lines, found)


@dataclass(frozen=True, slots=True)
class Fitted:
    """Fitted on mined cases by what is kept of the answers at the same number of tokens, markers included.

    `scripts/train_scorer --select` prints what each of them gains or loses.
    """

    blank_share: float = 0.1  # of what its neighbours are worth: an empty line brings little by itself
    toll_share: float = 0.7  # of a marker's tokens: what a gap pays while gaps are chosen
    frame_share: float = 0.2  # of what is kept under it: a dearer header stays out
    outline_share: float = 0.4  # of the answer's tokens: so cheap an outline stays at any ratio


# Those of logs are set by hand.
FITTED: Mapping[SourceType, Fitted] = {
    "code": Fitted(),
    "docs": Fitted(),
    "logs": Fitted(toll_share=1.0),
}


# Up to this ratio every protected line stays. Beyond it the caller asks for so little text that an
# outline of all of it would leave no room for the answer: structure then stays around what is kept.
GENEROUS_RATIO = 0.6
ALWAYS = frozenset({"no_prune"})
FAILURES = frozenset({"failure", "traceback"})
FAILURES_SHARE = 0.5  # of the lines that may stay
ESSENTIAL = frozenset({"import", "signature", "header", "heading", "error", "summary"}) | ALWAYS | FAILURES
FRAMES = frozenset({"signature", "heading"})


def always(outline: Outline, lines: Sequence[str], source_type: SourceType, max_prune_ratio: float) -> list[bool]:
    """For each line whether it must stay whatever it is worth."""
    stays = [why in ALWAYS for why in outline.protected]
    if source_type == "logs":
        failures = [why in ALWAYS or why in FAILURES for why in outline.protected]
        if sum(failures) <= FAILURES_SHARE * (1 - max_prune_ratio) * len(lines):
            stays = failures
    if lines and not lines[-1]:
        stays[-1] = True  # what ends with a newline goes out with one
    return stays


def outlined(keep: Sequence[bool], outline: Outline) -> list[bool]:
    """`keep` with all protected lines."""
    return [stays or why != "" for stays, why in zip(keep, outline.protected, strict=True)]


def sketched(keep: Sequence[bool], outline: Outline) -> list[bool]:
    """`keep` with the protected lines that tell most: first lines of signatures, not how they go on."""
    return [stays or why in ESSENTIAL for stays, why in zip(keep, outline.protected, strict=True)]


def framed(keep: Sequence[bool], outline: Outline, costs: Costs, share: float) -> list[bool]:
    """`keep` with the headers above kept lines that cost at most this share of them.

    A dear one may go: the marker in its place names what the kept lines belong to.
    """
    out = list(keep)
    for block in outline.blocks:
        rows = [i for i in range(block.start, block.body) if outline.protected[i] in FRAMES and not keep[i]]
        first = next((i for i in range(block.body, block.end) if keep[i]), None)
        if rows and first is not None and _price(rows, first, costs) <= share * _paid(block, keep, costs):
            for i in rows:
                out[i] = True
    return out


def _price(rows: Sequence[int], first: int, costs: Costs) -> int:
    """What a header costs: its lines, and a marker for the gap between it and the first kept line."""
    return sum(costs.lines[i] for i in rows) + min(costs.marker, sum(costs.lines[rows[-1] + 1 : first]))


def _paid(block: Block, keep: Sequence[bool], costs: Costs) -> int:
    return sum(costs.lines[i] for i in range(block.body, block.end) if keep[i])


def annotate(cuts: Sequence[Cut], prune_id: str) -> tuple[Annotation, ...]:
    return tuple(Annotation(c, str(PruneMarker(prune_id, c.start, c.end, c.reason))) for c in cuts)


def render(lines: Sequence[str], annotations: Sequence[Annotation], options: Options) -> str:
    """`lines` without their cuts. Nothing cut, nothing changed: no numbers either."""
    if not annotations:
        return text_lines.join(lines)
    out: list[str] = []
    after = 1
    for annotation in annotations:
        out += text_lines.pick(lines, after, annotation.cut.start - 1, options.annotate_lines)
        if options.include_markers:
            out.append(annotation.marker)
        after = annotation.cut.end + 1
    out += text_lines.pick(lines, after, len(lines), options.annotate_lines)
    return text_lines.join(out)


# Raise it when the same question may get another answer: remembered answers are then forgotten.
VERSION = "3"

MARKER_TOKENS = 40  # a marker with a usual reason; measured on o200k
SCORER_REFUSED: WarningCode = "scorer_refused"
SMALL_TOKENS = 3 * MARKER_TOKENS
MIN_SAVING = 0.10  # below this share a reader is better served by the whole text


def _never() -> None:
    """The deadline of a caller who has none."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as the engine sees it, before it decides anything."""

    lines: Sequence[str]
    outline: Outline
    signals: Signals
    scores: Floats


def prune(
    question: Question,
    prune_id: str,
    scores: Sequence[float] | None = None,
    check: Callable[[], None] = _never,
    scorers: Scorers | None = None,
) -> Pruned:
    """Cut what matters least for the goal, within the limits; `check` may raise to abort.

    `scores`, one per line, replace the local relevance. Same question, same cuts: the options that
    only change how the answer looks have no say in what is cut.
    """
    scorers = scorers or installed()
    lines = text_lines.split(question.text)
    costs = tokens.count_lines(lines)
    before = tokens.count(question.text)
    room = math.floor(len(lines) * question.options.max_prune_ratio)
    if len(lines) - room < question.options.min_keep_lines:
        room = len(lines) - question.options.min_keep_lines
    if room < 0:
        return untouched(question.text, len(lines), before, "constraints_unmet")
    if room == 0 or before < SMALL_TOKENS:
        return untouched(question.text, len(lines), before)
    reading = read(question, lines, scores, check, scorers)
    keep = choose(reading, Costs(costs, MARKER_TOKENS), question, len(lines) - room, check)
    cuts = reasons.explained(gaps(keep), reading.outline, lines, question.source_type)
    pruned = _shortest(question, lines, annotate(cuts, prune_id), before)
    return pruned.warned(SCORER_REFUSED, fallback=True) if scorers.fault and scores is None else pruned


def read(
    question: Question,
    lines: Sequence[str],
    scores: Sequence[float] | None,
    check: Callable[[], None],
    scorers: Scorers,
) -> Reading:
    found = outline(lines, question.source_type, check)
    signals = measure(lines, question.goal, question.source_type, found, check)
    if scores is None:
        return Reading(lines, found, signals, score.relevance(question.source_type, signals, scorers, check))
    return Reading(lines, found, signals, np.asarray(scores, dtype=np.float64))


def choose(
    reading: Reading,
    costs: Costs,
    question: Question,
    floor: int,
    check: Callable[[], None] = _never,
    fitted: Fitted | None = None,
) -> list[bool]:
    """The lines worth keeping, then the structure that makes them readable on top."""
    fitted = fitted or FITTED[question.source_type]
    lines, ratio = reading.lines, question.options.max_prune_ratio
    worth = score.worth(reading.scores, lines, costs.lines, fitted.blank_share)
    forced = always(reading.outline, lines, question.source_type, ratio)
    chosen = select(worth, costs.tolled(fitted.toll_share), forced, floor, check)
    for frame in (outlined, sketched):
        whole = filled(frame(chosen, reading.outline), costs)
        if _affordable(whole, chosen, costs, ratio, fitted.outline_share):
            return whole
    return filled(framed(chosen, reading.outline, costs, fitted.frame_share), costs)


def _affordable(
    whole: Sequence[bool], chosen: Sequence[bool], costs: Costs, ratio: float, outline_share: float
) -> bool:
    """Whether the outline of the whole text leaves something to save, and room for the answer."""
    spent = costs.of(whole)
    if ratio <= GENEROUS_RATIO:
        return spent <= (1 - MIN_SAVING) * sum(costs.lines)
    answer = costs.of(chosen)
    return spent - answer <= outline_share * answer


def local_scores(question: Question, check: Callable[[], None] = _never) -> list[float]:
    """What the engine itself thinks of each line, between 0 and 1."""
    lines = text_lines.split(question.text)
    return [float(s) for s in read(question, lines, None, check, installed()).scores]


def explain(question: Question, cuts: Sequence[Cut], check: Callable[[], None] = _never) -> list[LineWhy]:
    """Why each line stayed or went in the prune that made `cuts`."""
    reading = read(question, text_lines.split(question.text), None, check, installed())
    shares = score.shares(question.source_type, reading.signals, installed())
    return explain_lines(cuts, reading.outline.protected, reading.scores, shares)


def _shortest(question: Question, lines: Sequence[str], annotations: tuple[Annotation, ...], before: int) -> Pruned:
    """The pruned text, or the original where pruning would not make it shorter."""
    if not annotations:
        return untouched(question.text, len(lines), before)
    text = render(lines, annotations, question.options)
    after = tokens.count(text)
    plain = after if _is_plain(question.options) else tokens.count(render(lines, annotations, _PLAIN))
    if after >= before or before - plain < MIN_SAVING * before:
        return untouched(question.text, len(lines), before)
    return Pruned(text, annotations, len(lines), before, after)


_PLAIN = Options(1.0, 0, 0, annotate_lines=False, include_markers=True)


def _is_plain(options: Options) -> bool:
    return options.include_markers and not options.annotate_lines

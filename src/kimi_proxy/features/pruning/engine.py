"""A prune from end to end: structure, signals, scores, selection, reasons, text."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.errors import WarningCode
from kimi_proxy.core.markers import NO_PRUNE_BEGIN, NO_PRUNE_END, PruneMarker
from kimi_proxy.core.prune import Annotation, Cut, Options, Pruned, Question, SourceType, no_op_result, rows_of
from kimi_proxy.features.failures import FAILURE_MARKS, REPORT_MARKS, failed_cases
from kimi_proxy.features.pruning import explain as reasons
from kimi_proxy.features.pruning import score
from kimi_proxy.features.pruning.explain import LineWhy
from kimi_proxy.features.pruning.extremes import extreme_rows
from kimi_proxy.features.pruning.frames import framing
from kimi_proxy.features.pruning.goal import find, read_goal, rows_with
from kimi_proxy.features.pruning.model import Scorers, load_scorers
from kimi_proxy.features.pruning.select import Costs, fill_small_gaps, gaps, select, select_within
from kimi_proxy.features.pruning.signals import Signals, measure, read_lines, wider_goal
from kimi_proxy.features.pruning.structure import code, docs, languages, logs
from kimi_proxy.features.pruning.structure.blocks import Floats, Outline, scale_to_one, spread
from kimi_proxy.features.pruning.structure.syntax import parser
from kimi_proxy.features.records.prune import (
    RecordCuts,
    annotate_records,
    explain_records,
    fit_records,
    line_starts,
    show_parts,
)
from kimi_proxy.features.records.tree import PLAIN, RecordGap

# Raise it when the same question may get another answer: remembered answers are then forgotten.
VERSION = "7"

MARKER_TOKENS = 40  # a marker with a usual reason; measured on o200k
SCORER_REFUSED: WarningCode = "scorer_refused"
SMALL_TOKENS = 3 * MARKER_TOKENS
MIN_SAVING = 0.10  # below this share the whole text serves a reader better

_PLAIN = Options(1.0, 0, 0, annotate_lines=False, include_markers=True)


def _no_deadline() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Analysis:
    """A text as the engine reads it, before it decides anything."""

    lines: Sequence[str]
    outline: Outline
    scores: Floats
    is_of_use: bool = False  # the scores combine an agent's likely use with relevance to the goal
    is_matched: bool = True  # the text has words of the goal

    @property
    def has_choice(self) -> bool:
        return self.is_matched or any(why in FAILURE_MARKS for why in self.outline.protected)


def prune(
    question: Question,
    prune_id: str,
    scores: Sequence[float] | None = None,
    check: Callable[[], None] = _no_deadline,
    scorers: Scorers | None = None,
    tokens_before: int | None = None,
) -> Pruned:
    """Cut the lines that matter least for the goal, within the limits; `check` may raise to abort.

    `scores`, one per line, replace the local relevance; `tokens_before` are those of the text, if already counted. The
    same question always has the same cuts: options that only change the form of the answer do not affect them.
    """
    scorers = scorers or load_scorers()
    lines = text_lines.split(question.text)
    before = tokens.count(question.text) if tokens_before is None else tokens_before
    if before < SMALL_TOKENS:
        met = len(lines) - question.options.min_keep_lines >= 0
        return no_op_result(question.text, len(lines), before, *(() if met else ("constraints_unmet",)))
    found = fit(question, check, scorers, scores, before)
    if found is None:
        return no_op_result(question.text, len(lines), before, "constraints_unmet")
    pruned = _shortest(question, lines, found, prune_id, before)
    return pruned.with_warnings(SCORER_REFUSED, fallback=True) if scorers.fault and scores is None else pruned


@dataclass(frozen=True, slots=True)
class Fit:
    """What goes of a text for a question: rows, which are its lines or parts, and where they are records, the gaps."""

    cuts: tuple[Cut, ...]
    records: RecordCuts | None = None

    has_choice: bool = True  # False: nothing answers the question or reports a failure, so place decided

    @property
    def part_starts(self) -> tuple[int, ...]:
        return self.records.part_starts if self.records else ()

    def gaps(self, text: str) -> Sequence[RecordGap]:
        """Return what goes of the text, by its characters."""
        if self.records is not None:
            return self.records.gaps
        starts = line_starts(text)
        ends = [*(start - 1 for start in starts[1:]), len(text)]
        return [RecordGap(starts[cut.start - 1], ends[cut.end - 1], cut.count, PLAIN) for cut in self.cuts]

    def annotations(self, text: str, prune_id: str, hint: str = "") -> tuple[Annotation, ...]:
        """Return each cut with what replaces it; `hint` is in the first marker among records."""
        if self.records is not None:
            return annotate_records(text, self.records, prune_id, hint)
        return annotate(self.cuts, prune_id)


def fit(
    question: Question,
    check: Callable[[], None] = _no_deadline,
    scorers: Scorers | None = None,
    scores: Sequence[float] | None = None,
    tokens_before: int | None = None,
    *,
    is_hurried: bool = False,
) -> Fit | None:
    """Return what goes of a text so that the rest answers the question within its room and its limits.

    This is the one choice for every way in: of records where the text has any, otherwise of lines. None if the limits
    leave nothing to cut. In a hurry lines are scored by the words of the question and by signs of failure alone.
    """
    before = tokens.count(question.text) if tokens_before is None else tokens_before
    records = fit_records(question, before, check) if scores is None else None
    if records is not None:
        return Fit(records.cuts, records, records.has_choice)
    lines = text_lines.split(question.text)
    options = question.options
    floor = max(len(lines) - math.floor(len(lines) * options.max_prune_ratio), options.min_keep_lines)
    if floor >= len(lines):
        return None
    if is_hurried:
        analysis = _glance(question, lines, check)
    else:
        with outlining(lines, question.source_type, check) as outlined:
            costs = Costs(tokens.count_lines(lines), MARKER_TOKENS)
            analysis = _analyze(question, lines, scores, check, scorers or load_scorers(), outlined)
    if is_hurried:
        costs = Costs(tokens.count_lines(lines), MARKER_TOKENS)
    if question.room and before <= LITTLE_TOKENS and _is_all_failed(analysis):
        return Fit(())
    keep: Sequence[bool] | None = choose_within(analysis, costs, question, check) if question.room else None
    if keep is None or sum(keep) < floor:
        keep = choose(analysis, costs, question, floor, check, also=keep)
    cuts = reasons.cuts_with_reasons(gaps(keep), analysis.outline, lines, question.source_type)
    return Fit(tuple(cuts), has_choice=analysis.has_choice)


ALL_FAILED, LITTLE_TOKENS = 0.9, 8_000


def _is_all_failed(analysis: Analysis) -> bool:
    """Return whether nearly every line of a log reports a failure: then none is worth less than another."""
    return len(analysis.outline.errors) >= ALL_FAILED * sum(1 for line in analysis.lines if line.strip())


def _glance(question: Question, lines: Sequence[str], check: Callable[[], None]) -> Analysis:
    """Return the scores of lines by what is found in linear time, without a parser and without trees."""
    if question.source_type == "logs":
        found = outline(lines, "logs", check)
    else:
        found = _with_directives(lines, Outline((), ("",) * len(lines), ""))
    words = find(lines, read_goal(question.goal), check, is_terse=question.source_type == "logs")
    near = scale_to_one(spread(words.around(0).bm25(), 3)) + scale_to_one(words.around(GLANCE_REACH).bm25())
    failed = np.array([why in FAILURE_MARKS for why in found.protected], dtype=np.float64)
    scores = scale_to_one(near + scale_to_one(spread(words.exact, 1)) + failed)
    return Analysis(lines, found, scores, is_matched=bool(near.any()))


GLANCE_REACH = 5


def preparations() -> tuple[Callable[[], object], ...]:
    """Load in steps what the first text would wait for: the model and the parsers, 70 ms of CPU time."""
    return (load_scorers, lambda: load_scorers().learned.get(score.USED), languages.openers, lambda: parser("python"))


def local_scores(question: Question, check: Callable[[], None] = _no_deadline) -> list[float]:
    """Return the engine's own score of each line, between 0 and 1."""
    lines = text_lines.split(question.text)
    return [float(s) for s in analyze(question, lines, None, check, load_scorers()).scores]


def explain(
    question: Question,
    cuts: Sequence[Cut],
    part_starts: Sequence[int] = (),
    check: Callable[[], None] = _no_deadline,
) -> list[LineWhy]:
    """Return why each line stayed or went in the prune that made `cuts`, or each part that begins at `part_starts`."""
    by_records = explain_records(question, cuts, part_starts, check)
    if by_records is not None:
        return by_records
    lines = rows_of(question.text, part_starts)
    scorers = load_scorers()
    with outlining(lines, question.source_type, check) as outlined:
        found, asked, of_use = _measure(question, lines, check, scorers, outlined)
    added = score.contributions(question.source_type, asked, scorers)
    if of_use is not None:
        added = score.blended_contributions(score.contributions(score.USED, of_use, scorers), added)
    scores = _scores(question.source_type, asked, of_use, scorers, check)
    return reasons.explain(cuts, found.protected, scores, added)


def analyze(
    question: Question,
    lines: Sequence[str],
    scores: Sequence[float] | None,
    check: Callable[[], None],
    scorers: Scorers,
) -> Analysis:
    with outlining(lines, question.source_type, check) as outlined:
        return _analyze(question, lines, scores, check, scorers, outlined)


def _analyze(
    question: Question,
    lines: Sequence[str],
    scores: Sequence[float] | None,
    check: Callable[[], None],
    scorers: Scorers,
    outlined: Callable[[], Outline],
) -> Analysis:
    if scores is not None:
        return Analysis(lines, outlined(), np.asarray(scores, dtype=np.float64))
    found, asked, of_use = _measure(question, lines, check, scorers, outlined)
    own = _scores(question.source_type, asked, of_use, scorers, check)
    return Analysis(lines, found, own, of_use is not None, is_matched=bool(asked["line"].any()))


def _measure(
    question: Question,
    lines: Sequence[str],
    check: Callable[[], None],
    scorers: Scorers,
    outlined: Callable[[], Outline],
) -> tuple[Outline, Signals, Signals | None]:
    """Read the words of a text while it is parsed, then wait for `outlined`.

    Return its outline, its signals for the goal, and, with a context, those for its likely use by the agent.
    """
    source_type = question.source_type
    context = question.context if score.USED in scorers.learned else None
    words = read_lines(lines, question.goal, source_type, check)
    found = outlined()
    asked = measure(lines, question.goal, source_type, found, check, words=words)
    if context is None:
        return found, asked, None
    goal = wider_goal(question.goal, context)
    wider = read_lines(lines, goal, source_type, check, context, words)
    return found, asked, measure(lines, goal, source_type, found, check, context, wider, asked)


def _scores(
    source_type: SourceType, asked: Signals, of_use: Signals | None, scorers: Scorers, check: Callable[[], None]
) -> Floats:
    """Return the score of each line for the goal, and where an agent reads it for its use as well."""
    answers = score.relevance(source_type, asked, scorers, check)
    return answers if of_use is None else score.blend(score.use(of_use, scorers, check), answers)


def outline(lines: Sequence[str], source_type: SourceType, check: Callable[[], None] = _no_deadline) -> Outline:
    """Return the blocks and protected lines of a text of that type; `check` is called often and may raise to abort."""
    with outlining(lines, source_type, check) as outlined:
        return outlined()


@contextmanager
def outlining(
    lines: Sequence[str], source_type: SourceType, check: Callable[[], None]
) -> Iterator[Callable[[], Outline]]:
    """Parse a text beside the block, which gets a function that waits for what `outline` returns."""
    if source_type == "code":
        with code.outlining(lines, check) as outlined:
            yield lambda: _with_directives(lines, outlined())
    else:
        found = logs.outline if source_type == "logs" else docs.outline
        yield lambda: _with_directives(lines, found(lines, check))


def _with_directives(lines: Sequence[str], found: Outline) -> Outline:
    rows = _no_prune_rows(lines)
    if not rows:
        return found
    protected = list(found.protected)
    for row in rows:
        protected[row] = "no_prune"
    return replace(found, protected=tuple(protected))


def _no_prune_rows(lines: Sequence[str]) -> list[int]:
    """Return the rows between NO_PRUNE directives, and those of the directives.

    They can be nested. A begin without an end protects the rest of the text; an end without a begin only itself.
    """
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


@dataclass(frozen=True, slots=True)
class Fitted:
    """Constants fitted on extracted cases by the share of answers kept at equal tokens, markers included.

    `scripts/train_scorer --select` prints the effect of each of them.
    """

    blank_share: float = 0.1  # of its neighbours' value: an empty line has little value on its own
    toll_share: float = 0.7  # of a marker's tokens: the price of a gap during selection
    import_share: float = 0.25  # of what its score is worth: an import repeats the goal's words and answers little


# Those of logs are set by hand.
FITTED: Mapping[SourceType, Fitted] = {
    "code": Fitted(blank_share=0.03, toll_share=0.4),
    "docs": Fitted(),
    "logs": Fitted(toll_share=1.0),
}
# The likelihood of use differs from row to row more than relevance does: dear gaps make few and large ones of many.
FITTED_TO_USE = Fitted(toll_share=2.0)
# Up to this ratio every protected line stays. Beyond it the caller asks for so little text that an
# signature would leave no room for the answer: only headers of kept lines stay.
GENEROUS_RATIO = 0.6
OUTLINE_SHARE = 0.6  # of the text's tokens: a dearer outline would leave little to save
REPORTS_SHARE = 0.5  # of the lines that may stay
QUOTED_SHARE, QUOTED_LINES = 0.1, 20  # lines with a quotation from the goal stay if there are at most this many
NAMED_LINES = 5  # the same for names in the goal, in the output of an agent's tool
EXEMPLARS_SHARE = 0.2  # of the lines that have to stay: what examples of all templates may take
KEYS_PER_TEMPLATE = 4  # lines of one template may differ in words too; where there are more, templates are many as well
ALWAYS = frozenset({"no_prune"})
# The protected lines that say most: first lines of signatures, not how they go on.
ESSENTIAL = frozenset({"import", "signature", "header", "heading", "error", "summary"}) | ALWAYS | REPORT_MARKS


def choose(
    analysis: Analysis,
    costs: Costs,
    question: Question,
    floor: int,
    check: Callable[[], None] = _no_deadline,
    fitted: Fitted | None = None,
    also: Sequence[bool] | None = None,
) -> list[bool]:
    """Return which lines to keep: those worth it with the headers above them, and up to a ratio the whole outline.

    Lines of `also` stay in any case.
    """
    fitted = fitted or (FITTED_TO_USE if analysis.is_of_use else FITTED[question.source_type])
    lines = analysis.lines
    protected = analysis.outline.protected
    ratio = question.options.max_prune_ratio
    worth = score.worth(analysis.scores, lines, costs.lines, fitted.blank_share)
    weighed = [w * fitted.import_share if why == "import" else w for w, why in zip(worth, protected, strict=True)]
    forced = _forced_lines(analysis, question.source_type, ratio)
    if also is not None:
        forced = [must or stays for must, stays in zip(forced, also, strict=True)]
    for row in _named_rows(lines, question.goal, analysis.is_of_use, check):
        forced[row] = True
    for row in extreme_rows(lines, question.goal, check):
        rows = {row, *_heads(row, lines, analysis.outline)}
        if sum(forced) + len(rows) <= FIRST_SHARE * floor:
            for each in rows:
                forced[each] = True
    if question.source_type == "logs":
        for row in _exemplars(lines, weighed, EXEMPLARS_SHARE * floor):
            forced[row] = True
    frames = framing(lines, analysis.outline)
    keep = select(weighed, costs.with_toll(fitted.toll_share), forced, floor, check, frames)
    if ratio <= GENEROUS_RATIO:
        wanted = _outline_marks(protected, costs, question.source_type)
        keep = [stays or why in wanted for stays, why in zip(keep, protected, strict=True)]
    return fill_small_gaps(keep, costs)


FIRST_SHARE = 0.8  # of the room: what stays before the rest is chosen by worth


def choose_within(
    analysis: Analysis, costs: Costs, question: Question, check: Callable[[], None] = _no_deadline
) -> list[bool]:
    """Return which lines to keep within the question's room: named, extreme and failed ones first, then by worth."""
    source_type = question.source_type
    lines = analysis.lines
    protected = analysis.outline.protected
    fitted = FITTED_TO_USE if analysis.is_of_use else FITTED[source_type]
    worth = score.worth(analysis.scores, lines, costs.lines, fitted.blank_share)
    weighed = [w * fitted.import_share if why == "import" else w for w, why in zip(worth, protected, strict=True)]
    if source_type == "logs":
        notable = set(logs.notable_rows(lines, protected, question.goal))
        weighed = [w if row in notable else ROUTINE_SHARE * w for row, w in enumerate(weighed)]
    forced = _first_lines(analysis, costs, question, weighed, check)
    toll = costs.with_toll(fitted.toll_share)
    frames = framing(lines, analysis.outline)
    wanted = _room_of(analysis, costs, question)
    # The toll steers the search; what is paid are whole markers, so the room that it is given shrinks until they fit.
    room = wanted
    best = list(forced)
    most = -1
    for _ in range(ROOM_TRIES):
        check()
        keep = fill_small_gaps(select_within(weighed, toll, forced, int(room), check, frames), costs)
        paid = costs.of(keep)
        if most < paid <= wanted:
            best = keep
            most = paid
        if ROOM_USED * wanted <= paid <= wanted:
            break
        room *= 0.98 * wanted / max(1, paid)
    return best


_ABOUT_FAILURE = re.compile(
    r"fail|error|\bfix|\bbug|broke|crash|exception|traceback|\bwrong|\bpass\b|time[sd]? out"
    r"|échec|échou|echou|erreur|plant[eé]|corrig|répar",
    re.I,
)
# Where the failures answer the question, they stay with as much again around them, and a screen more.
AROUND_FAILURES, SCREEN_LINES = 2, 40


def _room_of(analysis: Analysis, costs: Costs, question: Question) -> float:
    """Return the room that a text takes of the one that it has: less if it is a log, and its failures answer."""
    goal = question.goal
    failed = [why in FAILURE_MARKS for why in analysis.outline.protected]
    if question.source_type != "logs" or not any(failed) or (goal.strip() and not _ABOUT_FAILURE.search(goal)):
        return float(question.room)
    per_line = sum(costs.lines) / max(1, len(costs.lines))
    told = sum(cost for cost, has_failed in zip(costs.lines, failed, strict=True) if has_failed)
    return min(float(question.room), AROUND_FAILURES * told + SCREEN_LINES * per_line)


ROUTINE_SHARE = 0.2
ROOM_TRIES, ROOM_USED = 6, 0.93


def _first_lines(
    analysis: Analysis, costs: Costs, question: Question, worth: Sequence[float], check: Callable[[], None]
) -> list[bool]:
    """Return the lines that stay before the others are chosen: so many of them as take .8 of the room."""
    lines = analysis.lines
    found = analysis.outline
    keep = [why in ALWAYS for why in found.protected]
    if lines and not lines[-1]:
        keep[-1] = True
    most = FIRST_SHARE * question.room

    def add(rows: Iterable[int]) -> bool:
        """Keep all of these rows if they fit."""
        wider = list(keep)
        for row in rows:
            wider[row] = True
        if costs.of(wider) > most:
            return False
        keep[:] = wider
        return True

    def add_each(rows: Iterable[int]) -> None:
        for row in rows:
            if not add((row,)):
                break

    add(_named_rows(lines, question.goal, True, check))
    for row in extreme_rows(lines, question.goal, check):
        if not add((*_heads(row, lines, found), row)):
            add((row,))
    if question.source_type == "logs":
        per_line = max(1.0, sum(costs.lines) / max(1, len(lines)))
        room = question.room / per_line
        ends = {*range(min(END_LINES, len(lines))), *range(max(0, len(lines) - END_LINES), len(lines))}
        add(ends)
        rows = failure_rows(lines, found, room)
        if not add(rows | failed_cases(lines)) and not add(rows):
            add_each(_by_rarity(lines, sorted(rows)))
        for row in _exemplars(lines, worth, EXEMPLARS_SHARE * room):
            add((row,))
    return keep


END_LINES = 3


def _heads(row: int, lines: Sequence[str], found: Outline) -> list[int]:
    """Return the first line of a line's paragraph, and the headers of the blocks around it."""
    first = row
    while first > 0 and lines[first - 1].strip() and row - first < PARAGRAPH_LINES:
        first -= 1
    return [first, *(block.start for block in found.blocks if block.start <= row < block.end and block.name)]


PARAGRAPH_LINES = 400


def _by_rarity(lines: Sequence[str], rows: Sequence[int]) -> list[int]:
    """Return rows in the order of how rare their templates are."""
    keys = logs.templates(lines[row] for row in rows)
    count = Counter(keys)
    return [row for _, row in sorted(zip((count[key] for key in keys), rows, strict=True))]


def _forced_lines(analysis: Analysis, source_type: SourceType, max_prune_ratio: float) -> list[bool]:
    """Return for each line whether it must stay whatever it is worth."""
    lines = analysis.lines
    stays = [why in ALWAYS for why in analysis.outline.protected]
    if source_type == "logs":
        for row in failure_rows(lines, analysis.outline, (1 - max_prune_ratio) * len(lines)):
            stays[row] = True
    if lines and not lines[-1]:
        stays[-1] = True  # a final newline is preserved
    return stays


def failure_rows(lines: Sequence[str], outline: Outline, room: float) -> set[int]:
    """Return the rows of a log that stay at any ratio; `room` is the number of lines that have to stay.

    If they fit, these are whole reports and every error; otherwise one of each group of equal errors; and if those do
    not fit either, one of each template.
    """
    reports = {row for row, why in enumerate(outline.protected) if why in REPORT_MARKS}
    if len(reports | set(outline.errors)) <= REPORTS_SHARE * room:
        return reports | set(outline.errors)
    heads = {block.start for block in outline.blocks if block.kind in REPORT_MARKS}
    errors = sorted({*outline.errors, *heads})
    distinct = _first_rows(errors, logs.messages_of([lines[row] for row in errors]))
    if len(reports | distinct) <= REPORTS_SHARE * room:
        return reports | distinct
    return distinct if len(distinct) <= room else _first_rows(errors, logs.templates(lines[row] for row in errors))


def _exemplars(lines: Sequence[str], worth: Sequence[float], most: float) -> Iterable[int]:
    """Return of each template of a log the row that is worth most; none if there are more templates than `most`.

    A line that shares no word with the goal may answer it: from one of its kind a reader knows to ask for the others.
    """
    best: dict[str, int] = {}
    for row, key in enumerate(logs.without_numbers_of(lines)):
        if key.strip() and worth[row] > worth[best.setdefault(key, row)]:
            best[key] = row
        if len(best) > KEYS_PER_TEMPLATE * most:
            return ()
    rows = sorted(best.values(), key=lambda row: (-worth[row], row))
    kinds = _first_rows(rows, logs.templates(lines[row] for row in rows))
    return kinds if len(kinds) <= most else ()


def _first_rows(rows: Sequence[int], keys: Sequence[str]) -> set[int]:
    """Return the first row of each key."""
    first: dict[str, int] = {}
    for row, key in zip(rows, keys, strict=True):
        first.setdefault(key, row)
    return set(first.values())


def _named_rows(lines: Sequence[str], goal: str, is_of_use: bool, check: Callable[[], None]) -> set[int]:
    """Return the lines with strings quoted in the goal, except strings in too many lines.

    For scores that include likely use, also lines with an identifier or path of the goal: past use must not overrule
    the user's words.
    """
    asked = read_goal(goal)
    most = min(QUOTED_LINES, QUOTED_SHARE * len(lines))
    found = {row for rows in rows_with(lines, asked.quoted, check) if len(rows) <= most for row in rows}
    if is_of_use:
        few = min(NAMED_LINES, QUOTED_SHARE * len(lines))
        found |= {row for rows in rows_with(lines, asked.exact, check) if len(rows) <= few for row in rows}
    return found


def _outline_marks(protected: Sequence[str], costs: Costs, source_type: SourceType) -> frozenset[str]:
    """Return why lines of the outline stay: all of it, or the most informative ones if it costs most of the text.

    The ratio has no say in it: a higher one must not bring back lines that a lower one cut.
    """
    for wanted in (frozenset(protected) - {""}, ESSENTIAL):
        keep = fill_small_gaps([why in wanted for why in protected], costs)
        if costs.of(keep) <= OUTLINE_SHARE * sum(costs.lines):
            return wanted
    return ALWAYS if source_type == "logs" else ESSENTIAL


def annotate(cuts: Sequence[Cut], prune_id: str) -> tuple[Annotation, ...]:
    return tuple(Annotation(c, str(PruneMarker(prune_id, c.start, c.end, c.reason))) for c in cuts)


def render(lines: Sequence[str], annotations: Sequence[Annotation], options: Options) -> str:
    """Return `lines` without their cuts. Nothing cut, nothing changed: no numbers either."""
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


def _shortest(question: Question, lines: Sequence[str], found: Fit, prune_id: str, before: int) -> Pruned:
    """Return the pruned text, or the original where pruning would not make it shorter."""
    annotations = found.annotations(question.text, prune_id)
    if not annotations:
        return no_op_result(question.text, len(lines), before)
    if found.records is not None and found.part_starts:
        text = show_parts(question.text, found.records, annotations, question.options.include_markers)
    else:
        text = render(lines, annotations, question.options)
    plain = after = tokens.count(text)
    if not found.part_starts and (question.options.annotate_lines or not question.options.include_markers):
        plain = tokens.count(render(lines, annotations, _PLAIN))
    if after >= before or before - plain < MIN_SAVING * before:
        return no_op_result(question.text, len(lines), before)
    rows = len(found.part_starts or lines)
    return Pruned(text, annotations, rows, before, after, part_starts=found.part_starts)

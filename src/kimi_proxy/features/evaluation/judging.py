"""What a contestant reached on one case, at each budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.prune import Options, Pruned, Question
from kimi_proxy.features.evaluation import keeping, validity
from kimi_proxy.features.evaluation.case import Case
from kimi_proxy.features.evaluation.measures import BUDGETS, Figures, Kept, between, recall
from kimi_proxy.features.evaluation.rankers import Ranker
from kimi_proxy.features.pruning.engine import MARKER_TOKENS
from kimi_proxy.features.pruning.select import Costs

# A pruner is told which share of the lines may go. What it reaches at a share of the tokens lies between these.
RATIOS = (0.35, 0.55, 0.7, 0.8, 0.88, 0.94, 0.97)
TIMED_RATIO = 0.7
TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Judged:
    """A contestant's figures on a case, one for each budget, and how long a prune took it."""

    case: Case
    contestant: str
    figures: tuple[Figures, ...]
    ms: float


def ranking(name: str, case: Case, ranker: Ranker, clock: Callable[[], float]) -> Judged:
    """A ranker keeps exactly what each budget pays for."""
    lines = text_lines.split(case.text)
    costs = Costs(tokens.count_lines(lines), MARKER_TOKENS)
    began = clock()
    ranked = keeping.order(ranker(case, lines), lines, case.id)
    ms = 1000 * (clock() - began)
    kept = [keeping.within(ranked, costs, budget) for budget in BUDGETS]
    return Judged(case, name, tuple(_figures(case, lines, keep) for keep in kept), ms)


def pruning(name: str, case: Case, prune: Callable[[Question], Kept]) -> Judged:
    """A pruner is asked for several ratios; its figures at a budget lie on the line between its answers."""
    lines = text_lines.split(case.text)
    answers = [prune(question(case, ratio)) for ratio in RATIOS]
    reached = [_figures(case, lines, kept.keep) for kept in answers]
    shares = [kept.share for kept in answers]
    figures = []
    for budget in BUDGETS:
        nearest = min(range(len(answers)), key=lambda i: abs(shares[i] - budget))
        recalled = between([(s, f.recall) for s, f in zip(shares, reached, strict=True)], budget)
        complete = between([(s, f.complete) for s, f in zip(shares, reached, strict=True)], budget)
        figures.append(Figures(recalled, complete, reached[nearest].parses))
    return Judged(case, name, tuple(figures), answers[RATIOS.index(TIMED_RATIO)].ms)


def question(case: Case, ratio: float) -> Question:
    options = Options(ratio, 1, TIMEOUT_MS, annotate_lines=False, include_markers=True)
    return Question(case.text, case.goal, case.source_type, options)


def kept_of(pruned: Pruned, ms: float) -> Kept:
    keep = [True] * pruned.original_lines
    for annotation in pruned.annotations:
        cut = annotation.cut
        keep[cut.start - 1 : cut.end] = [False] * cut.count
    return Kept(keep, pruned.tokens_after / max(1, pruned.tokens_before), ms)


def _figures(case: Case, lines: Sequence[str], keep: Sequence[bool]) -> Figures:
    share = recall(case, keep)
    parses = validity.survives(lines, keep) if case.source_type == "code" else None
    return Figures(share, float(share == 1.0), None if parses is None else float(parses))

"""Judges contestants on one case: what a ranker or a pruner keeps of the answer at each budget."""

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from evaluation.cases import Case, parse_python
from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.prune import Options, Pruned, Question, SourceType
from kimi_proxy.features.pruning.engine import MARKER_TOKENS, outline
from kimi_proxy.features.pruning.goal import Matches, find, read_goal
from kimi_proxy.features.pruning.select import Costs, fill_small_gaps, gaps
from kimi_proxy.features.pruning.signals import SCORED_BLOCKS
from kimi_proxy.features.pruning.structure import languages
from kimi_proxy.features.pruning.structure.blocks import Floats, Rows, scale_to_one, spread
from kimi_proxy.features.pruning.structure.syntax import parser

BUDGETS = (0.50, 0.30, 0.15)  # shares of the tokens, markers included
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Kept:
    """What a prune left of a case; `share` is of the tokens, markers included."""

    keep: Sequence[bool]
    share: float
    ms: float


class Figures(NamedTuple):
    """At one budget: the share of gold lines kept, whether that was all of them, whether code still parses."""

    recall: float
    complete: float
    parses: float | None


class Estimate(NamedTuple):
    """A mean over cases, and the interval that holds 95 % of its resamples."""

    mean: float
    low: float
    high: float


def recall(case: Case, keep: Sequence[bool]) -> float:
    return sum(keep[row] for row in case.gold) / len(case.gold)


def between(points: Sequence[tuple[float, float]], share: float) -> float:
    """Return the value at `share` on the line through `points`; nothing kept is worth 0, everything 1."""
    known = sorted({0.0: 0.0, 1.0: 1.0, **dict(sorted(points))}.items())
    for (a, u), (b, v) in pairwise(known):
        if a <= share <= b:
            return u + (v - u) * (share - a) / (b - a)
    return known[-1][1]


def estimate(values: Sequence[float], seed: int) -> Estimate:
    """Return the mean with a bootstrap interval: the same values and seed give the same figures."""
    mean = statistics.fmean(values)
    rng = random.Random(f"{seed} {len(values)}")
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return Estimate(mean, means[round(0.025 * RESAMPLES)], means[round(0.975 * RESAMPLES) - 1])


Ranker = Callable[[Case, Sequence[str]], Floats]

CONTEXT_LINES = 3
LOG_BLOCK_LINES = 10
BLOCK_LINES = 50
LINE_SHARE = 0.5  # what the line adds to the score of its block


def at_random(case: Case, lines: Sequence[str]) -> Floats:
    rng = random.Random(f"ranker {case.id}")
    return np.array([rng.random() for _ in lines])


def ends_first(case: Case, lines: Sequence[str]) -> Floats:
    """Rank both ends above the middle."""
    before = np.cumsum([0, *(len(line) + 1 for line in lines)], dtype=np.float64)
    scores: Floats = -np.minimum(before[:-1], before[-1] - before[1:])
    return scores


def bm25_line(case: Case, lines: Sequence[str]) -> Floats:
    return _matches(case, lines).around(0).bm25()


def bm25_context(case: Case, lines: Sequence[str]) -> Floats:
    return spread(bm25_line(case, lines), CONTEXT_LINES)


def bm25_block(case: Case, lines: Sequence[str]) -> Floats:
    """Rank by blocks first, by lines inside them second."""
    found = _matches(case, lines)
    starts, ends = _blocks(lines, case.source_type)
    blocks = np.repeat(scale_to_one(found.over(starts, ends).bm25()), ends - starts)
    scores: Floats = blocks + LINE_SHARE * scale_to_one(spread(found.around(0).bm25(), CONTEXT_LINES))
    return scores


RANKERS: Mapping[str, Ranker] = {
    "BM25 block, then line": bm25_block,
    "BM25 ± 3 lines": bm25_context,
    "BM25 per line": bm25_line,
    "head + tail": ends_first,
    "random": at_random,
}


def _matches(case: Case, lines: Sequence[str]) -> Matches:
    return find(lines, read_goal(case.goal), lambda: None)


def _blocks(lines: Sequence[str], source_type: SourceType) -> tuple[Rows, Rows]:
    """Return where blocks begin and end: at definitions and headings, or every few lines of a log."""
    borders = {0, len(lines)}
    if source_type == "logs":
        borders.update(range(0, len(lines), LOG_BLOCK_LINES))
    else:
        scored = [block for block in outline(lines, source_type).blocks if block.kind in SCORED_BLOCKS]
        borders.update(row for block in scored for row in (block.start, block.end))
    cuts = [row for a, b in pairwise(sorted(borders)) for row in range(a, b, BLOCK_LINES)]
    starts = np.array(cuts, dtype=np.int64)
    return starts, np.append(starts[1:], len(lines))


_HASH_COMMENTS = frozenset({"bash", "ruby"})


def survives(lines: Sequence[str], keep: Sequence[bool]) -> bool | None:
    """Return whether what is kept parses; None where the whole did not, or where the language is unknown."""
    name = languages.guess(lines)
    if not name or not parses(text_lines.join(lines), name):
        return None
    return parses(stitched(lines, keep, name), name)


def parses(text: str, name: str) -> bool:
    if name == "python":
        return parse_python(text) is not None
    return not parser(name).parse(text.encode("utf-8", "replace")).root_node.has_error


def stitched(lines: Sequence[str], keep: Sequence[bool], name: str) -> str:
    """Return the kept lines, with an empty statement in the place of each gap, indented like what it replaces."""
    filler = "..." if name == "python" else "# …" if name in _HASH_COMMENTS else "/* … */"
    starts = {start: _indent(lines, start, end) for start, end in gaps(keep)}
    out: list[str] = []
    for row, (line, stays) in enumerate(zip(lines, keep, strict=True)):
        if row in starts:
            out.append(starts[row] + filler)
        if stays:
            out.append(line)
    return text_lines.join(out)


def _indent(lines: Sequence[str], start: int, end: int) -> str:
    line = next((line for line in lines[start:end] if line.strip()), "")
    return line[: len(line) - len(line.lstrip())]


def order(scores: Floats, lines: Sequence[str], seed: str) -> list[int]:
    """Return rows, best first. Blank lines come last, and ties in an order that favours no place."""
    rng = random.Random(seed)
    tie = [rng.random() for _ in lines]
    return sorted(range(len(lines)), key=lambda row: (not lines[row].strip(), -scores[row], tie[row]))


def within(ranked: Sequence[int], costs: Costs, share: float) -> list[bool]:
    """Return as many of the best lines as cost no more than `share` of all; gaps cheaper than their marker stay."""
    budget = share * sum(costs.lines)
    enough, too_many = 0, len(ranked) + 1
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        if costs.of(_best(ranked, middle, costs)) <= budget:
            enough = middle
        else:
            too_many = middle
    return _best(ranked, enough, costs)


def _best(ranked: Sequence[int], count: int, costs: Costs) -> list[bool]:
    keep = [False] * len(ranked)
    for row in ranked[:count]:
        keep[row] = True
    return fill_small_gaps(keep, costs)


# A pruner is given the share of the lines that may go. What it reaches at a share of the tokens lies between these.
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
    """Judge a ranker, which keeps exactly what each budget pays for."""
    lines = text_lines.split(case.text)
    costs = Costs(tokens.count_lines(lines), MARKER_TOKENS)
    began = clock()
    ranked = order(ranker(case, lines), lines, case.id)
    ms = 1000 * (clock() - began)
    kept = [within(ranked, costs, budget) for budget in BUDGETS]
    return Judged(case, name, tuple(_figures(case, lines, keep) for keep in kept), ms)


def pruning(name: str, case: Case, prune: Callable[[Question], Kept]) -> Judged:
    """Judge a pruner at several ratios; its figures at a budget lie on the line between its answers."""
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
    return Question(case.text, case.goal, case.source_type, options, case.context)


def kept_of(pruned: Pruned, ms: float) -> Kept:
    keep = [True] * pruned.original_lines
    for annotation in pruned.annotations:
        cut = annotation.cut
        keep[cut.start - 1 : cut.end] = [False] * cut.count
    return Kept(keep, pruned.tokens_after / max(1, pruned.tokens_before), ms)


def _figures(case: Case, lines: Sequence[str], keep: Sequence[bool]) -> Figures:
    share = recall(case, keep)
    parses = survives(lines, keep) if case.source_type == "code" else None
    return Figures(share, float(share == 1.0), None if parses is None else float(parses))

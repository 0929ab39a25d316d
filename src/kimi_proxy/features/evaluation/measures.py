"""How well a prune did: gold kept, at which share of the tokens, with how much doubt."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from kimi_proxy.features.evaluation.case import Case

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
    """The value at `share` on the line through `points`; nothing kept is worth 0, everything 1."""
    known = sorted({0.0: 0.0, 1.0: 1.0, **dict(sorted(points))}.items())
    for (a, u), (b, v) in pairwise(known):
        if a <= share <= b:
            return u + (v - u) * (share - a) / (b - a)
    return known[-1][1]


def estimate(values: Sequence[float], seed: int) -> Estimate:
    """The mean with a bootstrap interval: the same values and seed give the same figures."""
    mean = statistics.fmean(values)
    rng = random.Random(f"{seed} {len(values)}")  # noqa: S311 - a benchmark, not a secret
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return Estimate(mean, means[round(0.025 * RESAMPLES)], means[round(0.975 * RESAMPLES) - 1])

"""From a ranking to the lines that a share of the tokens can pay for, markers included."""

import random
from collections.abc import Sequence

from kimi_proxy.features.pruning.columns import Floats
from kimi_proxy.features.pruning.select import Costs, filled


def order(scores: Floats, lines: Sequence[str], seed: str) -> list[int]:
    """Rows, best first. Blank lines come last, and ties in an order that favours no place."""
    rng = random.Random(seed)  # noqa: S311 - a benchmark, not a secret
    tie = [rng.random() for _ in lines]
    return sorted(range(len(lines)), key=lambda row: (not lines[row].strip(), -scores[row], tie[row]))


def within(ranked: Sequence[int], costs: Costs, share: float) -> list[bool]:
    """As many of the best lines as cost no more than `share` of all; gaps cheaper than their marker stay."""
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
    return filled(keep, costs)

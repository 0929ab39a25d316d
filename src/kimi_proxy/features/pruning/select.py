"""Choosing what to cut: the best set of whole-line gaps for the tokens that they save."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

ROUNDS = 14
CHEAPEST = 1e-7  # of the dearest price: worth spans many orders of magnitude, so prices are halved on a log scale


@dataclass(frozen=True, slots=True)
class Selection:
    """The lines that stay, and the price of a token at which they were chosen."""

    keep: list[bool]
    price: float


@dataclass(frozen=True, slots=True)
class Costs:
    """What each line costs, and what a marker costs in the place of a gap."""

    lines: Sequence[int]
    marker: int

    def of(self, keep: Sequence[bool]) -> int:
        """What is left to pay when only these lines stay."""
        gaps = sum(1 for before, stays in pairwise([True, *keep]) if before and not stays)
        return sum(c for c, stays in zip(self.lines, keep, strict=True) if stays) + self.marker * gaps


def select(
    worth: Sequence[float],
    costs: Costs,
    forced: Sequence[bool],
    floor: int,
    check: Callable[[], None] = lambda: None,
) -> Selection:
    """Which lines to keep: at least `floor` of them, all that are forced, and the most worth per token.

    A price per token is set; at that price the best gaps are found exactly (`at_price`). The higher
    the price, the fewer lines stay: bisection finds the highest that still keeps `floor` lines.
    """
    keep = [True] * len(worth)
    high = _price_of_everything(worth, costs)
    low = high * CHEAPEST
    for _ in range(ROUNDS):
        check()
        middle = math.sqrt(low * high)
        trial = at_price(middle, worth, costs, forced)
        if sum(trial) >= floor:
            keep, low = trial, middle
        else:
            high = middle
    return Selection(keep, low)


def _price_of_everything(worth: Sequence[float], costs: Costs) -> float:
    """A price at which nothing is worth keeping."""
    return 2 * max((w / max(1, c) for w, c in zip(worth, costs.lines, strict=True)), default=0.0) + 1e-9


def at_price(price: float, worth: Sequence[float], costs: Costs, forced: Sequence[bool]) -> list[bool]:
    """The set of gaps with the most worth kept minus the price of all tokens, markers included.

    Viterbi over two states, the line kept or cut. To enter a gap costs its marker, so a gap that
    saves less than its marker is never made.
    """
    kept, cut = 0.0, float("-inf")
    toll = price * costs.marker
    entered_from_cut: list[bool] = []
    stayed_cut: list[bool] = []
    for value, tokens, must_stay in zip(worth, costs.lines, forced, strict=True):
        entered_from_cut.append(cut > kept)
        if must_stay:
            stayed_cut.append(False)
            kept, cut = max(kept, cut) + value - price * tokens, float("-inf")
        else:
            stays = cut >= kept - toll
            stayed_cut.append(stays)
            kept, cut = max(kept, cut) + value - price * tokens, cut if stays else kept - toll
    in_gap = cut > kept
    keep: list[bool] = []
    for from_cut, stays in zip(reversed(entered_from_cut), reversed(stayed_cut), strict=True):
        keep.append(not in_gap)
        in_gap = stays if in_gap else from_cut
    keep.reverse()
    return keep

"""Selection: the best set of whole-line gaps for the tokens that they save."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kimi_proxy.features.pruning.structure.blocks import nearness

ROUNDS = 16
MOST_OVER = 1.6  # times the floor
LEAST_USED = 0.4  # of the lines that may go
NEVER = float("-inf")
CHEAPEST = 1e-7  # of the dearest price: worth spans many orders of magnitude, so prices are halved on a log scale


@dataclass(frozen=True, slots=True)
class Costs:
    """What each line costs, and what a marker costs in the place of a gap."""

    lines: Sequence[int]
    marker: int

    def with_toll(self, share: float) -> "Costs":
        """Return the same, but for a gap that pays only this share of its marker."""
        return Costs(self.lines, round(share * self.marker))

    def of(self, keep: Sequence[bool]) -> int:
        """Return what is left to pay when only these lines stay."""
        return sum(c for c, stays in zip(self.lines, keep, strict=True) if stays) + self.marker * len(gaps(keep))


def select(
    worth: Sequence[float],
    costs: Costs,
    forced: Sequence[bool],
    floor: int,
    check: Callable[[], None] = lambda: None,
) -> list[bool]:
    """Return which lines to keep: at least `floor` of them, all that are forced, and the most worth per token.

    A price per token is set; at that price the best gaps are found exactly (`at_price`). The higher
    the price, the fewer lines stay: bisection finds the highest that still keeps `floor` lines.
    """
    enough, few = [True] * len(worth), list(forced)
    # At this price nothing is worth keeping.
    high = 2 * max((w / max(1, c) for w, c in zip(worth, costs.lines, strict=True)), default=0.0) + 1e-9
    low = high * CHEAPEST
    for _ in range(ROUNDS):
        check()
        middle = math.sqrt(low * high)
        trial = at_price(middle, worth, costs, forced)
        if sum(trial) >= floor:
            enough, low = trial, middle
        else:
            few, high = trial, middle
    return _grown(few, enough, floor) if _is_flood(sum(enough), floor, len(worth)) else enough


def _is_flood(kept: int, floor: int, line_count: int) -> bool:
    """Return whether far more stays than has to: whole blocks are worth some lines more, a flood is not."""
    return kept > MOST_OVER * floor or line_count - kept < LEAST_USED * (line_count - floor)


def _grown(few: Sequence[bool], enough: Sequence[bool], floor: int) -> list[bool]:
    """Return `few` and the lines of `enough` nearest to it, up to `floor`.

    Where many lines are worth the same, no price keeps some of them: they all go, or none.
    """
    near = nearness(np.array(few, dtype=bool))
    keep = list(few)
    missing = floor - sum(few)
    addable = [i for i, (kept, can_stay) in enumerate(zip(few, enough, strict=True)) if can_stay and not kept]
    for i in sorted(addable, key=lambda i: (-near[i], i))[:missing]:
        keep[i] = True
    return keep


def filled(keep: Sequence[bool], costs: Costs) -> list[bool]:
    """Return `keep` without the gaps that cost no more than their marker."""
    out = list(keep)
    for start, end in gaps(keep):
        if sum(costs.lines[start:end]) <= costs.marker:
            out[start:end] = [True] * (end - start)
    return out


def gaps(keep: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the runs of lines that go, 0-based, end exclusive."""
    found: list[tuple[int, int]] = []
    start: int | None = None
    for i, stays in enumerate([*keep, True]):
        if not stays and start is None:
            start = i
        elif stays and start is not None:
            found.append((start, i))
            start = None
    return found


def at_price(price: float, worth: Sequence[float], costs: Costs, forced: Sequence[bool]) -> list[bool]:
    """Return the set of gaps with the most worth kept minus the price of all tokens, markers included.

    Viterbi over two states, the line kept or cut. To enter a gap costs its marker, so a gap that
    saves less than its marker is never made.
    """
    kept, cut = 0.0, NEVER
    toll = price * costs.marker
    entered_from_cut: list[bool] = []
    stayed_cut: list[bool] = []
    gains = (np.asarray(worth) - price * np.asarray(costs.lines)).tolist()
    for gain, must_stay in zip(gains, forced, strict=True):
        from_cut, into_cut = cut > kept, kept - toll
        entered_from_cut.append(from_cut)
        stays = cut >= into_cut and not must_stay
        stayed_cut.append(stays)
        kept = (cut if from_cut else kept) + gain
        if must_stay:
            cut = NEVER
        elif not stays:
            cut = into_cut
    in_gap = cut > kept
    keep: list[bool] = []
    for from_cut, stays in zip(reversed(entered_from_cut), reversed(stayed_cut), strict=True):
        keep.append(not in_gap)
        in_gap = stays if in_gap else from_cut
    keep.reverse()
    return keep

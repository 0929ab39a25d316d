"""Selection: the best set of whole-line gaps for the tokens that they save."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from kimi_proxy.features.pruning.frames import Act, Framing
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
    framing: Framing | None = None,
) -> list[bool]:
    """Return which lines to keep: at least `floor` of them, all that are forced, and the most worth per token.

    A price per token is set; at that price the best gaps are found exactly, within the frames of `framing` where there
    are any. The higher the price, the less is paid: bisection finds the highest that still keeps `floor` lines. So a
    lower floor never gets a lower price.
    """
    framed = framing if framing is not None and framing.frames else None
    enough, few = [True] * len(worth), list(forced)
    # At this price nothing is worth keeping.
    high = 2 * max((w / max(1, c) for w, c in zip(worth, costs.lines, strict=True)), default=0.0) + 1e-9
    low = high * CHEAPEST
    for _ in range(ROUNDS):
        check()
        middle = math.sqrt(low * high)
        trial = (
            at_price(middle, worth, costs, forced)
            if framed is None
            else at_price_framed(middle, worth, costs, forced, framed)
        )
        if sum(trial) >= floor:
            enough, low = trial, middle
        else:
            few, high = trial, middle
    if not _is_flood(sum(enough), floor, len(worth)):
        return enough
    grown = _grown(few, enough, floor)
    return grown if framed is None else framed.closed(grown)


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


def at_price_framed(
    price: float, worth: Sequence[float], costs: Costs, forced: Sequence[bool], framing: Framing
) -> list[bool]:
    """Return the same under the rules of the frames: no line without its headers, no header alone, wholes whole."""
    gains = np.asarray(worth) - price * np.asarray(costs.lines)
    search = _FramedSearch(price * costs.marker, gains.tolist())
    must = list(accumulate(forced, initial=0))
    until = list(accumulate(search.gains, initial=0.0))
    for act, start, end in framing.steps:
        may_go = must[end] == must[start]
        if act == Act.LINES:
            search.lines(search.gains[start] if end == start + 1 else until[end] - until[start], may_go)
        elif act == Act.ENTER:
            search.enter()
        elif act == Act.LEAVE:
            search.leave(may_go)
        else:
            search.bare_line(search.gains[start], may_go and act == Act.BARE)
    return search.kept_rows(framing)


KEPT, CUT, KEPT_ALONE, CUT_ALONE = range(4)


class _FramedSearch:
    """Viterbi over four states: the last line is kept or cut, and its frame holds more than headers or not yet.

    Each step appends from which state each of the four is reached best.
    """

    def __init__(self, toll: float, gains: list[float]) -> None:
        self.gains = gains
        self._toll = toll
        self._kept, self._cut, self._kept_alone, self._cut_alone = 0.0, NEVER, NEVER, NEVER
        self._came: list[tuple[int, int, int, int]] = []
        self._outer: list[tuple[float, float, float, float]] = []

    def lines(self, gain: float, may_go: bool) -> None:
        """Take lines that stay or go together, and that justify the headers above them."""
        best, state = (self._kept, KEPT) if self._kept >= self._cut else (self._cut, CUT)
        if self._kept_alone > best:
            best, state = self._kept_alone, KEPT_ALONE
        if self._cut_alone > best:
            best, state = self._cut_alone, CUT_ALONE
        cut, alone = self._cut_next(may_go)
        self._kept, self._kept_alone = best + gain, NEVER
        self._came.append((state, cut, KEPT_ALONE, alone))

    def bare_line(self, gain: float, may_go: bool) -> None:
        """Take a header, or a line that does not justify one."""
        best, state = (self._kept, KEPT) if self._kept >= self._cut else (self._cut, CUT)
        best_alone, state_alone = (
            (self._kept_alone, KEPT_ALONE) if self._kept_alone >= self._cut_alone else (self._cut_alone, CUT_ALONE)
        )
        cut, alone = self._cut_next(may_go)
        self._kept, self._kept_alone = best + gain, best_alone + gain
        self._came.append((state, cut, state_alone, alone))

    def _cut_next(self, may_go: bool) -> tuple[int, int]:
        """Enter the states in which a line was cut; return where they come from."""
        if not may_go:
            self._cut = self._cut_alone = NEVER
            return CUT, CUT_ALONE
        return self._into_gap(self._kept, self._cut, self._kept_alone, self._cut_alone)

    def _into_gap(self, kept: float, cut: float, kept_alone: float, cut_alone: float) -> tuple[int, int]:
        into, into_alone = kept - self._toll, kept_alone - self._toll
        self._cut, self._cut_alone = max(cut, into), max(cut_alone, into_alone)
        return CUT if cut >= into else KEPT, CUT_ALONE if cut_alone >= into_alone else KEPT_ALONE

    def enter(self) -> None:
        self._outer.append((self._kept, self._cut, self._kept_alone, self._cut_alone))
        self._came.append(
            (
                KEPT,
                CUT,
                KEPT if self._kept > self._kept_alone else KEPT_ALONE,
                CUT if self._cut > self._cut_alone else CUT_ALONE,
            )
        )
        self._kept_alone = max(self._kept, self._kept_alone)
        self._cut_alone = max(self._cut, self._cut_alone)
        self._kept = self._cut = NEVER

    def leave(self, may_go: bool) -> None:
        """Close a frame: what was found in it, or all of it cut, in which case -1 - state says where from."""
        outer = self._outer.pop()
        found = self._cut
        self._kept_alone = NEVER
        if not may_go:
            self._cut_alone = NEVER
            self._came.append((KEPT, CUT, KEPT_ALONE, CUT_ALONE))
            return
        cut, alone = self._into_gap(*outer)
        if found >= self._cut:
            self._cut = found
            self._came.append((KEPT, CUT, KEPT_ALONE, -1 - alone))
        else:
            self._came.append((KEPT, -1 - cut, KEPT_ALONE, -1 - alone))

    def kept_rows(self, framing: Framing) -> list[bool]:
        keep = [False] * len(self.gains)
        state = KEPT if self._kept >= self._cut else CUT
        cut_whole: tuple[int, int] | None = None
        for (act, start, end), came in zip(reversed(framing.steps), reversed(self._came), strict=True):
            if cut_whole is not None:
                if act == Act.ENTER and cut_whole == (start, end):
                    cut_whole = None
                continue
            if act < Act.ENTER and state in (KEPT, KEPT_ALONE):
                keep[start:end] = [True] * (end - start)
            state = came[state]
            if state < 0:
                state, cut_whole = -1 - state, (start, end)
        return keep

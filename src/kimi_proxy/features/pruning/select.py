"""Selection: the best set of whole-line gaps for the tokens that they save."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

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
    search = Search(worth, costs, forced, framed)
    enough, few = [True] * len(worth), list(forced)
    # At this price nothing is worth keeping.
    high = 2 * max((w / max(1, c) for w, c in zip(worth, costs.lines, strict=True)), default=0.0) + 1e-9
    low = high * CHEAPEST
    for _ in range(ROUNDS):
        check()
        middle = math.sqrt(low * high)
        trial = search.at(middle)
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


class Step(NamedTuple):
    """Rows `start` to `end`, end exclusive, with what happens there; `may_go` says whether none of them is forced."""

    act: int
    start: int
    end: int
    may_go: bool


# As plain numbers: to look up a member of an enumeration takes longer than a step. ROWS stay or go one by one.
HEADER, ENTER, LEAVE, ROWS, WHOLE = int(Act.HEADER), int(Act.ENTER), int(Act.LEAVE), max(Act) + 1, max(Act) + 2


def _steps(framing: Framing | None, forced: Sequence[bool]) -> list[Step]:
    """Return the steps through a text, rows that stay or go one by one put together."""
    steps = framing.steps if framing else tuple((int(Act.LINES), row, row + 1) for row in range(len(forced)))
    must = list(accumulate(forced, initial=0))
    out: list[Step] = []
    for act, start, end in steps:
        may_go = must[end] == must[start]
        if act in (HEADER, ENTER, LEAVE):
            out.append(Step(act, start, end, may_go))
        elif end > start + 1:
            out.append(Step(WHOLE, start, end, may_go))
        elif out and out[-1].act == ROWS and out[-1].may_go == may_go:
            out[-1] = Step(ROWS, out[-1].start, end, may_go)
        else:
            out.append(Step(ROWS, start, end, may_go))
    return out


class Search:
    """Finds at a price the gaps with the most worth kept minus the price of all tokens, markers included.

    The rules of the frames hold: no line without its headers, no header alone, wholes whole. To enter a gap costs its
    marker, so a gap that saves less than its marker is never made.
    """

    def __init__(
        self, worth: Sequence[float], costs: Costs, forced: Sequence[bool], framing: Framing | None = None
    ) -> None:
        self._worth, self._costs, self._marker = np.asarray(worth), np.asarray(costs.lines), costs.marker
        self._steps = _steps(framing, forced)
        self._bare = framing.bare if framing else (False,) * len(worth)
        self._has_wholes = any(step.act == WHOLE for step in self._steps)

    def at(self, price: float) -> list[bool]:
        """Return which lines to keep at this price per token."""
        columns = self._worth - price * self._costs
        gains: list[float] = columns.tolist()
        until = [0.0, *np.cumsum(columns).tolist()] if self._has_wholes else []
        states = _States(price * self._marker)
        for act, start, end, may_go in self._steps:
            if act == ROWS:
                states.rows(gains[start:end], self._bare[start:end], may_go)
            elif act == WHOLE:
                states.rows((until[end] - until[start],), (False,), may_go)
            elif act == HEADER:
                states.rows((gains[start],), (True,), False)
            elif act == ENTER:
                states.enter()
            else:
                states.leave(may_go)
        return states.kept_rows(self._steps, len(gains))


KEPT, CUT, KEPT_ALONE, CUT_ALONE = range(4)  # the even ones are those in which a line is kept


class _States:
    """Viterbi over four states: the last line is kept or cut, and its frame holds more than headers or not yet.

    Each step appends from which state each of the four is reached best.
    """

    def __init__(self, toll: float) -> None:
        self._toll = toll
        self._kept, self._cut, self._kept_alone, self._cut_alone = 0.0, NEVER, NEVER, NEVER
        self._came: list[tuple[int, int, int, int]] = []
        self._outer: list[tuple[float, float, float, float]] = []

    def rows(self, gains: Sequence[float], bare: Sequence[bool], may_go: bool) -> None:
        """Take lines that stay or go one by one. A bare one does not justify the headers above it.

        Most of the time of a search is spent here, which is why it is one loop over local names.
        """
        kept, cut, kept_alone, cut_alone = self._kept, self._cut, self._kept_alone, self._cut_alone
        toll, came = self._toll, self._came.append
        for gain, is_bare in zip(gains, bare, strict=True):
            best, state = (kept, 0) if kept >= cut else (cut, 1)
            best_alone, state_alone = (kept_alone, 2) if kept_alone >= cut_alone else (cut_alone, 3)
            into, into_alone = kept - toll, kept_alone - toll
            if not is_bare:
                if best_alone > best:
                    best, state = best_alone, state_alone
                best_alone, state_alone = NEVER, 2
            if not may_go:
                cut = cut_alone = NEVER
                came((state, 1, state_alone, 3))
            else:
                came((state, 1 if cut >= into else 0, state_alone, 3 if cut_alone >= into_alone else 2))
                cut = into if into > cut else cut
                cut_alone = into_alone if into_alone > cut_alone else cut_alone
            kept, kept_alone = best + gain, best_alone + gain
        self._kept, self._cut, self._kept_alone, self._cut_alone = kept, cut, kept_alone, cut_alone

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

    def kept_rows(self, steps: Sequence[Step], line_count: int) -> list[bool]:
        keep = [False] * line_count
        state = KEPT if self._kept >= self._cut else CUT
        cut_whole: tuple[int, int] | None = None
        came = self._came
        for act, start, end, _ in reversed(steps):
            if cut_whole is not None:
                del came[-(end - start) if act == ROWS else -1 :]
                if act == ENTER and cut_whole == (start, end):
                    cut_whole = None
            elif act == ROWS:
                for row in range(end - 1, start - 1, -1):
                    keep[row] = not state & 1
                    state = came.pop()[state]
            else:
                if act not in (ENTER, LEAVE) and not state & 1:
                    keep[start:end] = [True] * (end - start)
                state = came.pop()[state]
                if state < 0:
                    state, cut_whole = -1 - state, (start, end)
        return keep

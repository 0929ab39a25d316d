"""Selection: the best set of whole-line gaps for the tokens that they save."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, groupby
from typing import NamedTuple, TypeAlias

import numpy as np

from kimi_proxy.features.pruning.frames import Act, Framing
from kimi_proxy.features.pruning.structure.blocks import nearness

PRICES = 2**16  # on the scale
MOST_TRIALS = 16  # after so many, which is rare, the rest of the scale is halved
MOST_OVER, MOST_BLOCKS_OVER = 1.6, 2.0  # times the floor; where whole blocks stay, more
LEAST_USED = 0.4  # of the lines that may go
NEVER = float("-inf")
CHEAPEST = 1e-7  # of the dearest price


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of each line, and of a marker in place of a gap."""

    lines: Sequence[int]
    marker: int

    def with_toll(self, share: float) -> "Costs":
        """Return the same prices, but with only this share of a marker for each gap."""
        return Costs(self.lines, round(share * self.marker))

    def of(self, keep: Sequence[bool]) -> int:
        """Return the remaining cost if only these lines stay."""
        return sum(compress(self.lines, keep)) + self.marker * len(gaps(keep))


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
    are any. The higher the price, the less is paid: the highest of the scale is taken that still keeps `floor` lines.
    """
    framed = framing if framing is not None and framing.frames else None
    enough, few = neighbours(worth, costs, Search(worth, costs, forced, framed), floor, check)
    kept = list(forced) if few is None else few.keep
    stays = [True] * len(worth) if enough is None else enough.keep
    most = MOST_OVER if framed is None else MOST_BLOCKS_OVER
    if not _is_flood(sum(stays), floor, len(worth), most):
        return stays
    grown = _grow(kept, stays, floor)
    return grown if framed is None else framed.close(grown)


class Trial(NamedTuple):
    """The lines that stay at a price, their total value, and their total cost."""

    keep: list[bool]
    worth: float
    tokens: int


def select_within(
    worth: Sequence[float],
    costs: Costs,
    forced: Sequence[bool],
    room: int,
    check: Callable[[], None] = lambda: None,
    framing: Framing | None = None,
) -> list[bool]:
    """Return which lines to keep: all that are forced, and the most worth that has `room` tokens with its markers.

    What is left between two prices goes to lines that the lower one keeps, those worth most per token first.
    """
    framed = framing if framing is not None and framing.frames else None
    search = Search(worth, costs, forced, framed)
    over, fits = neighbours(worth, costs, search, room + 1, check, size=lambda trial: trial.tokens)
    if over is not None and over.tokens <= room:
        return over.keep
    kept = list(forced) if fits is None else fits.keep
    stays = [True] * len(worth) if over is None else over.keep
    return _fill(kept, stays, worth, costs, room, framed)


def _fill(
    kept: list[bool],
    stays: Sequence[bool],
    worth: Sequence[float],
    costs: Costs,
    room: int,
    framing: Framing | None,
) -> list[bool]:
    """Return `kept` and runs of what `stays` beside it, those worth most per token first, while there is room."""
    out = list(kept)
    left = room - costs.of(out)
    wanted = [stay and not keep for stay, keep in zip(stays, kept, strict=True)]
    runs = [(start, end) for start, end in gaps([not want for want in wanted])]

    def value(run: tuple[int, int]) -> float:
        return sum(worth[run[0] : run[1]]) / max(1, sum(costs.lines[run[0] : run[1]]))

    for start, end in sorted(runs, key=lambda run: (-value(run), run)):
        # From the end that touches what stays: a run in the middle of a gap would cost a marker more.
        beside = (start == 0 or out[start - 1]) or not (end == len(out) or out[end])
        rows = range(start, end) if beside else range(end - 1, start - 1, -1)
        before = list(out)
        spent = 0
        for row in rows:
            spent += costs.lines[row]
            if spent > left - costs.marker:
                break
            out[row] = True
        if framing is not None:
            out = framing.close(out)
        if costs.of(out) > room:
            out = before
        left = room - costs.of(out)
        if left <= costs.marker:
            break
    return out


def neighbours(
    worth: Sequence[float],
    costs: Costs,
    search: "Search",
    floor: int,
    check: Callable[[], None] = lambda: None,
    size: Callable[[Trial], int] | None = None,
) -> tuple[Trial | None, Trial | None]:
    """Return the selections at two neighbouring prices, of which the first keeps `floor` lines and the second does not.

    With `size`, that is counted in place of the lines.

    None stands for an end of the scale. The next price tried is the one at which the two nearest selections are worth
    the same: either one of them is the best there, which proves that there is no other in between, or a better one is
    found. This takes half as many trials as bisection, and finds the same two prices unless a higher price keeps more
    lines somewhere, as in one of thousands of random texts: then it may find another such pair.
    """
    by_price = sorted((w / max(1, c) for w, c in zip(worth, costs.lines, strict=True)), reverse=True)
    scale = PriceScale(2 * (by_price[0] if by_price else 0.0) + 1e-9)  # at the highest price no line is worth keeping
    enough: Trial | None = None
    few: Trial | None = None
    per_line = 1.0 if size is None else max(1.0, sum(costs.lines) / max(1, len(worth)))
    low = 0
    high = PRICES
    wanted = floor / per_line
    trials = 0
    while high - low > 1:
        check()
        if trials >= MOST_TRIALS:
            step = (low + high) // 2
        elif enough and few:
            step = scale.step((enough.worth - few.worth) / max(1, enough.tokens - few.tokens))
        else:
            step = scale.step(by_price[min(max(int(wanted), 1), len(worth)) - 1]) if worth else 0
        step = min(max(step, low + 1), high - 1)
        keep = search.at(scale[step])
        trials = trials + 1
        trial = Trial(keep, math.fsum(compress(worth, keep)), costs.of(keep))
        kept = sum(keep) if size is None else size(trial)
        wanted = _overshot(floor, kept) / per_line
        if kept >= floor:
            enough = trial
            low = step
        else:
            few = trial
            high = step
    return enough, few


def _overshot(floor: int, kept: int) -> float:
    """Return as how many lines to aim at next, a little beyond the floor, after an aim that kept so many."""
    return floor * floor / max(kept, 1) * (0.93 if kept >= floor else 1.07)


class PriceScale:
    """Prices in equal steps on a log scale, because worth spans many orders of magnitude.

    They are made by square roots alone, which are the same on every machine; logarithms are not.
    """

    def __init__(self, dearest: float) -> None:
        self._ends = (dearest * CHEAPEST, dearest)

    def __getitem__(self, step: int) -> float:
        return self._bisect(lambda middle, _: middle <= step)[1]

    def step(self, price: float) -> int:
        """Return the last step whose price is not above `price`."""
        return self._bisect(lambda _, middle: middle <= price)[0]

    def _bisect(self, is_above: Callable[[int, float], bool]) -> tuple[int, float]:
        """Return the step, with its price, at which the scale ends when halved by `is_above`."""
        (low_price, high_price) = self._ends
        low = 0
        high = PRICES
        while high - low > 1:
            middle = (low + high) // 2
            price = math.sqrt(low_price * high_price)
            if is_above(middle, price):
                low = middle
                low_price = price
            else:
                high = middle
                high_price = price
        return low, low_price


def _is_flood(kept: int, floor: int, line_count: int, most: float) -> bool:
    """Return whether far more stays than has to: whole blocks are worth some lines more, a flood is not."""
    return kept > most * floor or line_count - kept < LEAST_USED * (line_count - floor)


def _grow(few: Sequence[bool], enough: Sequence[bool], floor: int) -> list[bool]:
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


def fill_small_gaps(keep: Sequence[bool], costs: Costs) -> list[bool]:
    """Return `keep` without the gaps that cost no more than their marker."""
    out = list(keep)
    for start, end in gaps(keep):
        if sum(costs.lines[start:end]) <= costs.marker:
            out[start:end] = [True] * (end - start)
    return out


def gaps(keep: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the runs of lines that go, 0-based, end exclusive."""
    found: list[tuple[int, int]] = []
    flags = bytes(keep)
    start = flags.find(0)
    while start >= 0:
        end = flags.find(1, start)
        end = len(flags) if end < 0 else end
        found.append((start, end))
        start = flags.find(0, end)
    return found


class Step(NamedTuple):
    """Rows `start` to `end`, end exclusive, with what happens there; `may_go` says whether none of them is forced."""

    act: int
    start: int
    end: int
    may_go: bool


# As plain numbers: to look up a member of an enumeration takes longer than a step.
ROWS, WHOLE, HEADER, ENTER, LEAVE = (int(act) for act in (Act.ROWS, Act.WHOLE, Act.HEADER, Act.ENTER, Act.LEAVE))


def _steps(framing: Framing | None, forced: Sequence[bool]) -> list[Step]:
    """Return the steps through a text; rows that stay or go one by one are apart from those of them that must stay."""
    steps = framing.steps if framing else ((ROWS, 0, len(forced)),)
    must = list(accumulate(forced, initial=0))
    out: list[Step] = []
    for act, start, end in steps:
        if act != ROWS or must[end] == must[start]:
            out.append(Step(int(act), start, end, must[end] == must[start]))
            continue
        for is_forced, rows in groupby(range(start, end), forced.__getitem__):
            first, *others = rows
            out.append(Step(ROWS, first, first + 1 + len(others), not is_forced))
    return out


class Search:
    """Finds the gaps that maximize the worth of kept lines minus the price of all tokens, markers included.

    It follows the rules of frames: no line without its headers, no header alone, some frames only as a whole. Opening a
    gap costs its marker, so a gap that saves less than its marker is never made.
    """

    def __init__(
        self, worth: Sequence[float], costs: Costs, forced: Sequence[bool], framing: Framing | None = None
    ) -> None:
        self._worth = np.asarray(worth)
        self._costs = np.asarray(costs.lines)
        self._marker = costs.marker
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
                states.rows((until[end] - until[start],), (all(self._bare[start:end]),), may_go)
            elif act == HEADER:
                states.rows((gains[start],), (True,), False)
            elif act == ENTER:
                states.enter()
            else:
                states.leave(may_go)
        return states.kept_rows(self._steps, len(gains))


KEPT, CUT, KEPT_ALONE, CUT_ALONE = range(4)  # in the even states a line is kept

Came: TypeAlias = tuple[int, int, int, int]


def _reached_from(kept: int, cut: int) -> tuple[Came, Came, Came]:
    """Return from where each state is reached, by how those alone are: from kept, one from each, or from cut."""
    return (
        (kept, cut, KEPT_ALONE, KEPT_ALONE),
        (kept, cut, KEPT_ALONE, CUT_ALONE),
        (kept, cut, CUT_ALONE, CUT_ALONE),
    )


# Built once: building them for every line takes as long as the rest of a step.
_FROM_KEPT = _reached_from(KEPT, KEPT)
_FROM_BOTH = _reached_from(KEPT, CUT)
_FROM_CUT = _reached_from(CUT, CUT)
_BY_KEPT_ALONE = {came: _reached_from(KEPT_ALONE, came[0][1]) for came in (_FROM_KEPT, _FROM_BOTH, _FROM_CUT)}
_BY_CUT_ALONE = {came: _reached_from(CUT_ALONE, came[0][1]) for came in (_FROM_KEPT, _FROM_BOTH, _FROM_CUT)}


class _States:
    """Viterbi over four states: the last line is kept or cut, and its frame holds more than headers or not yet.

    Each step appends from which state each of the four is reached best.
    """

    def __init__(self, toll: float) -> None:
        self._toll = toll
        self._kept = 0.0
        self._cut = NEVER
        self._kept_alone = NEVER
        self._cut_alone = NEVER
        self._came: list[Came] = []
        self._outer: list[tuple[float, float, float, float]] = []

    def rows(self, gains: Sequence[float], bare: Sequence[bool], may_go: bool) -> None:
        """Take lines that stay or go one by one. A bare one does not justify the headers above it."""
        if not may_go:
            self._forced_rows(gains, bare)
        elif self._outer:
            self._framed_rows(gains, bare)
        else:
            self._free_rows(gains)

    # Most of the time of a search is spent in these two, which is why each is one loop over local names.

    def _free_rows(self, gains: Sequence[float]) -> None:
        """Take lines outside of every frame."""
        kept = self._kept
        cut = self._cut
        toll = self._toll
        came = self._came.append
        from_kept = _FROM_KEPT[1]
        from_both = _FROM_BOTH[1]
        from_cut = _FROM_CUT[1]
        for gain in gains:
            if kept < cut:
                came(from_cut)
                kept = cut + gain
                continue
            into = kept - toll
            if into > cut:
                came(from_kept)
                cut = into
            else:
                came(from_both)
            kept += gain
        self._kept = kept
        self._cut = cut

    def _framed_rows(self, gains: Sequence[float], bare: Sequence[bool]) -> None:
        kept = self._kept
        cut = self._cut
        kept_alone = self._kept_alone
        cut_alone = self._cut_alone
        toll = self._toll
        came = self._came.append
        for gain, is_bare in zip(gains, bare, strict=True):
            if kept < cut:
                best = cut
                came_from = _FROM_CUT
            else:
                best = kept
                into = kept - toll
                if into > cut:
                    cut = into
                    came_from = _FROM_KEPT
                else:
                    came_from = _FROM_BOTH
            if kept_alone < cut_alone:
                best_alone = cut_alone
                alone = 2
            else:
                best_alone = kept_alone
                into = kept_alone - toll
                alone = 0 if into > cut_alone else 1
                cut_alone = into if alone == 0 else cut_alone
            if is_bare:
                kept_alone = best_alone + gain
            else:
                if best_alone > best:
                    best = best_alone
                    came_from = (_BY_CUT_ALONE if alone == 2 else _BY_KEPT_ALONE)[came_from]
                kept_alone = NEVER
            came(came_from[alone])
            kept = best + gain
        self._kept = kept
        self._cut = cut
        self._kept_alone = kept_alone
        self._cut_alone = cut_alone

    def _forced_rows(self, gains: Sequence[float], bare: Sequence[bool]) -> None:
        """Take lines that stay."""
        for gain, is_bare in zip(gains, bare, strict=True):
            best, state = (self._kept, KEPT) if self._kept >= self._cut else (self._cut, CUT)
            alone = (self._kept_alone, KEPT_ALONE)
            best_alone, state_alone = alone if self._kept_alone >= self._cut_alone else (self._cut_alone, CUT_ALONE)
            if not is_bare:
                if best_alone > best:
                    best = best_alone
                    state = state_alone
                best_alone = NEVER
                state_alone = KEPT_ALONE
            self._came.append((state, CUT, state_alone, CUT_ALONE))
            self._kept, self._kept_alone = best + gain, best_alone + gain
            self._cut = self._cut_alone = NEVER

    def enter(self) -> None:
        kept = self._kept
        cut = self._cut
        kept_alone = self._kept_alone
        cut_alone = self._cut_alone
        self._outer.append((kept, cut, kept_alone, cut_alone))
        self._came.append(
            (
                KEPT,
                CUT,
                KEPT if kept > kept_alone else KEPT_ALONE,
                CUT if cut > cut_alone else CUT_ALONE,
            )
        )
        self._kept_alone = kept if kept > kept_alone else kept_alone
        self._cut_alone = cut if cut > cut_alone else cut_alone
        self._kept = self._cut = NEVER

    def leave(self, may_go: bool) -> None:
        """Close a frame with its best result, or cut all of it; -1 - state then says where from."""
        kept, cut, kept_alone, cut_alone = self._outer.pop()
        self._kept_alone = NEVER
        if not may_go:
            self._cut_alone = NEVER
            self._came.append((KEPT, CUT, KEPT_ALONE, CUT_ALONE))
            return
        into, into_alone = kept - self._toll, kept_alone - self._toll
        whole, alone = (cut, CUT) if cut >= into else (into, KEPT)
        self._cut_alone, state_alone = (cut_alone, CUT_ALONE) if cut_alone >= into_alone else (into_alone, KEPT_ALONE)
        if self._cut >= whole:
            self._came.append((KEPT, CUT, KEPT_ALONE, -1 - state_alone))
        else:
            self._cut = whole
            self._came.append((KEPT, -1 - alone, KEPT_ALONE, -1 - state_alone))

    def kept_rows(self, steps: Sequence[Step], line_count: int) -> list[bool]:
        keep = [False] * line_count
        state = KEPT if self._kept >= self._cut else CUT
        cut_whole: tuple[int, int] | None = None
        came = self._came
        at = len(came)
        for act, start, end, _ in reversed(steps):
            if cut_whole is not None:
                at -= end - start if act == ROWS else 1
                if act == ENTER and cut_whole == (start, end):
                    cut_whole = None
            elif act == ROWS:
                for row in range(end - 1, start - 1, -1):
                    at -= 1
                    keep[row] = not state & 1
                    state = came[at][state]
            else:
                at -= 1
                if act not in (ENTER, LEAVE) and not state & 1:
                    keep[start:end] = [True] * (end - start)
                state = came[at][state]
                if state < 0:
                    state = -1 - state
                    cut_whole = (start, end)
        return keep

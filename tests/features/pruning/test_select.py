import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.features.pruning.select import (
    PRICES,
    Costs,
    PriceScale,
    Search,
    fill_small_gaps,
    gaps,
    neighbours,
    select,
)

MARKER = 40


def test_one_good_stretch_stays_and_the_rest_goes_in_two_gaps() -> None:
    worth = [0.0] * 50 + [1.0] * 10 + [0.0] * 50
    keep = select(worth, Costs([10] * 110, MARKER), [False] * 110, floor=10)

    assert [i for i, stays in enumerate(keep) if stays] == list(range(50, 60))


def test_a_gap_that_saves_less_than_its_marker_is_not_made() -> None:
    worth = [1.0] * 20 + [0.0] * 3 + [1.0] * 20
    keep = select(worth, Costs([10] * 43, MARKER), [False] * 43, floor=1)

    assert not any(keep[20:23]) or all(keep)
    assert Search(worth, Costs([10] * 43, MARKER), [False] * 43).at(0.01) == [True] * 43


def test_gaps_that_cost_no_more_than_a_marker_are_filled_and_others_are_not() -> None:
    keep = [True, False, False, False, False, True, False, False, False, False, False, True]

    assert fill_small_gaps(keep, Costs([10] * 12, MARKER)) == [True] * 6 + [False] * 5 + [True]
    assert gaps(keep) == [(1, 5), (6, 11)]


def test_forced_lines_stay_at_any_price() -> None:
    forced = [i == 7 for i in range(40)]

    assert Search([0.0] * 40, Costs([10] * 40, MARKER), forced).at(1e9)[7]


def test_no_lines_no_selection() -> None:
    assert select([], Costs([], MARKER), [], floor=0) == []


@pytest.mark.parametrize(
    ("lines", "good", "floor", "stay"),
    [(20, 16, 10, 16), (30, 16, 10, 16), (30, 17, 10, 10), (20, 17, 11, 11)],
)
def test_lines_of_equal_worth_stay_together_unless_far_more_would_stay_than_has_to(
    lines: int, good: int, floor: int, stay: int
) -> None:
    worth = [1.0] * good + [0.0] * (lines - good)

    assert sum(select(worth, Costs([100] * lines, MARKER), [False] * lines, floor)) == stay


@pytest.mark.parametrize("lines", [0, 1, 20])
def test_no_more_prices_are_tried_than_twice_what_halving_takes(lines: int) -> None:
    trials: list[None] = []
    worth, costs = [1.0] * lines, Costs([10] * lines, MARKER)
    neighbours(worth, costs, Search(worth, costs, [False] * lines), lines // 2, lambda: trials.append(None))

    assert len(trials) <= 2 * 16


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[float], list[int], list[bool], int]:
    n = draw(st.integers(0, 60))
    worth = draw(st.lists(st.floats(0, 1), min_size=n, max_size=n))
    costs = draw(st.lists(st.integers(0, 60), min_size=n, max_size=n))
    forced = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    return worth, costs, forced, draw(st.integers(0, n))


@given(problems())
def test_the_floor_and_forced_lines_always_hold(problem: tuple[list[float], list[int], list[bool], int]) -> None:
    worth, costs, forced, floor = problem
    keep = select(worth, Costs(costs, MARKER), forced, floor)

    assert sum(keep) >= floor
    assert all(stays for stays, must in zip(keep, forced, strict=True) if must)


@given(problems(), st.floats(1e-6, 1.0))
def test_no_other_set_of_gaps_is_better_at_the_same_price(
    problem: tuple[list[float], list[int], list[bool], int], price: float
) -> None:
    worth, costs, forced, _ = (part[:9] if isinstance(part, list) else part for part in problem)
    found = Search(worth, Costs(costs, MARKER), forced).at(price)

    def value(keep: list[bool]) -> float:
        return sum(w for w, stays in zip(worth, keep, strict=True) if stays) - price * Costs(costs, MARKER).of(keep)

    for bits in range(2 ** len(worth)):
        other = [bool(bits >> i & 1) or forced[i] for i in range(len(worth))]
        assert value(found) >= value(other) - 1e-9


@given(problems())
def test_the_limit_lies_between_two_neighbouring_prices(
    problem: tuple[list[float], list[int], list[bool], int],
) -> None:
    worth, costs, forced, floor = problem
    search = Search(worth, Costs(costs, MARKER), forced)
    kept: dict[float, int] = {}

    class Watched(Search):
        def at(self, price: float) -> list[bool]:
            keep = super().at(price)
            kept[price] = sum(keep)
            return keep

    enough, few = neighbours(worth, Costs(costs, MARKER), Watched(worth, Costs(costs, MARKER), forced), floor)

    scale = PriceScale(2 * max((w / max(1, c) for w, c in zip(worth, costs, strict=True)), default=0.0) + 1e-9)
    last = max((price for price, count in kept.items() if count >= floor), default=scale[0])
    step = scale.step(last)
    assert enough is None or (enough.keep == search.at(scale[step]) and sum(enough.keep) >= floor)
    assert few is None or (few.keep == search.at(scale[step + 1]) and sum(few.keep) < floor)
    assert few is not None or step == PRICES - 1

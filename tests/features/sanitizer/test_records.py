"""Which of many records are worth reading."""

import random
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest

from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.sanitizer.records import oddness, relevance

Record: TypeAlias = dict[str, JsonValue]


def never() -> None:
    pass


def some_records(seed: int) -> list[Record]:
    rng = random.Random(seed)
    return [
        {
            "id": i,
            "name": f"item {i}",
            "price": round(rng.uniform(5, 90), 2),
            "stock": rng.randrange(500),
            "active": True,
            "tags": ["a", "b"],
            "size": {"width": rng.randrange(10, 20)},
            "updated": f"2026-05-{1 + i % 28:02}",
        }
        for i in range(400)
    ]


@pytest.mark.parametrize(
    "odd",
    [
        {"price": -12.5},
        {"stock": 1400},
        {"stock": None},
        {"price": "12,50"},
        {"active": False},
        {"note": "recalled"},
        {"size": {"width": 4000}},
        {"name": ""},
        {"name": "long " * 60},
        {"name": "cannot be read: error 7"},
        {"updated": "1970-01-01"},
        {"tags": ["a"] * 40},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_a_record_that_differs_in_one_value_is_odder_than_most(odd: Record, seed: int):
    records = some_records(seed)
    records[200] |= odd
    scores = oddness(records, never)

    assert scores[200] > 0
    assert (scores >= scores[200]).sum() <= 20


def test_a_record_that_lacks_a_field_is_odd():
    records = some_records(1)
    del records[77]["name"]

    assert np.flatnonzero(oddness(records, never)).tolist() == [77]


@pytest.mark.parametrize("value", [1, "x", None, [], {}, [1, 2], True, 1.5, {"a": {"b": {"c": {"d": {"e": 1}}}}}])
def test_equal_values_of_any_kind_are_not_odd(value: JsonValue):
    assert not oddness([value] * 50, never).any()


def test_numbers_without_end_are_no_trouble():
    records: list[JsonValue] = [{"n": n} for n in (1, 2, 3, 4, 5, 6, 7, 8, float("inf"), float("-inf"), 10**400, 1e308)]

    assert len(oddness(records, never)) == len(records)


def test_few_and_no_records_are_no_trouble():
    assert oddness([], never).tolist() == []
    assert len(oddness([{"a": 1}, {"b": 2}], never)) == 2


def test_the_goal_picks_the_records_that_speak_of_it():
    texts = [f'{{"city": "{city}", "n": {i}}}' for i, city in enumerate(["Lyon", "Paris", "Nantes", "Lille"] * 5)]

    found: Callable[[str], list[int]] = lambda goal: np.flatnonzero(relevance(texts, goal, never)).tolist()  # noqa: E731
    assert found("what happened in Nantes?") == [2, 6, 10, 14, 18]
    assert found("") == []

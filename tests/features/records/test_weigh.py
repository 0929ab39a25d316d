"""Which of many records are worth reading."""

import json
import random
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pytest

from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.records.choose import weigh, weights
from kimi_proxy.features.records.formats import read_json
from kimi_proxy.features.records.read import read
from kimi_proxy.features.records.tree import descend, units

Record: TypeAlias = dict[str, JsonValue]


def never() -> None:
    pass


def oddness(records: Sequence[JsonValue]) -> "np.ndarray":
    root = read_json(json.dumps(records))
    assert root is not None
    weigh(root, never)
    return np.array([sum(node.odd for node in descend(record)) for record in root.children])


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
    scores = oddness(records)

    assert scores[200] > 0
    assert (scores >= scores[200]).sum() <= 20


def test_a_record_that_lacks_a_field_is_odd():
    records = some_records(1)
    del records[77]["name"]

    assert np.flatnonzero(oddness(records)).tolist() == [77]


@pytest.mark.parametrize("value", [1, "x", None, [], {}, [1, 2], True, 1.5, {"a": {"b": {"c": {"d": {"e": 1}}}}}])
def test_equal_values_of_any_kind_are_not_odd(value: JsonValue):
    assert not oddness([value] * 50).any()


def test_numbers_without_end_are_no_trouble():
    numbers = "1,2,3,4,5,6,7,8,1e400,-1e400,1" + "0" * 400
    whole = read_json("[" + ",".join(f'{{"n": {n}}}' for n in numbers.split(",")) + "]")
    assert whole is not None

    weigh(whole, never)


def test_few_and_no_records_are_no_trouble():
    assert oddness([]).tolist() == []
    assert len(oddness([{"a": 1}, {"b": 2}])) == 2


def test_flags_and_codes_of_a_single_record_are_judged_by_their_own_words():
    state = {"Running": False, "Paused": False, "Restarting": False, "OOMKilled": True, "Dead": False, "ExitCode": 137}
    root = read_json(json.dumps([{"State": state, "Name": "/web"}]))
    assert root is not None
    weigh(root, never)

    assert {node.key for node in descend(root) if node.odd} == {"OOMKilled", "ExitCode"}


def test_of_failures_written_alike_the_first_ones_count_most():
    records = [{"n": n, "msg": f"GET /{n} failed with {n}" if n % 20 == 7 else f"GET /{n} done"} for n in range(400)]
    scores = oddness(records)

    assert min(scores[7], scores[27]) > max(scores[28:])


def test_the_goal_picks_the_records_that_speak_of_it():
    cities = ["Lyon", "Paris", "Nantes", "Lille"] * 5
    text = json.dumps([{"city": city, "n": n} for n, city in enumerate(cities)])
    root = read_json(text)
    assert root is not None

    def found(goal: str) -> list[int]:
        return np.flatnonzero(weights(text, units(root), goal, never).goal > 0.1).tolist()

    assert found("what happened in Nantes?") == [2, 6, 10, 14, 18]
    assert found("") == []


def oddest(text: str) -> str:
    """Return the record that is least like the others."""
    root = read(text)
    assert root is not None
    weigh(root, never)
    while len(root.children) < 10:
        root = next(child for child in root.children if child.children)
    worst = max(root.children, key=lambda record: sum(node.odd for node in descend(record)))
    return text[worst.start : worst.end]


def test_members_of_a_yaml_mapping_that_are_alike_are_compared():
    services = [f"service{n}:\n  image: shop/{n}\n  memory: 256Mi\n  replicas: 2\n" for n in range(60)]
    services[41] = "service41:\n  image: shop/41\n  memory: 256Mi\n  replicas: 0\n"

    assert "replicas: 0" in oddest("".join(services))


def test_cells_of_rows_are_compared_by_their_column():
    rows = [f"<tr><td>item {n}</td><td>{10 + n % 7}</td><td>in stock</td></tr>\n" for n in range(80)]
    rows[33] = "<tr><td>kettle</td><td>12</td><td>recalled</td></tr>\n"

    assert "recalled" in oddest(f"<html><body><table>\n{''.join(rows)}</table></body></html>\n")
    cells = [["item", n, "in stock"] for n in range(80)]
    cells[33][2] = "recalled"
    assert "recalled" in oddest(json.dumps(cells))

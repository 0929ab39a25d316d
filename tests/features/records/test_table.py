"""Records as a table: nothing is lost, and nothing is taken for another type."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.markers import quoted_id
from kimi_proxy.features.records.table import read_table, write_table

ID = "msk_0123456789abcdef"
ORDERS = [{"id": n, "state": "paid", "total": n * 1.5, "currency": "EUR", "customer": f"c{n % 7}"} for n in range(40)]
KINDS = [None, "", "1", 1, 1.0, True, False, 0, "null", [], {}, "\u0000", 10**30]


def table_of(value: JsonValue, indent: int | None = 2) -> str | None:
    table = write_table(json.dumps(value, indent=indent))
    return table and table(ID)


def exact(text: str) -> JsonValue:
    return json.loads(text, parse_int=lambda n: f"int {n}", parse_float=lambda n: f"float {n}")


@pytest.mark.parametrize("value", [ORDERS, {"data": ORDERS, "page": 1}, [[ORDERS]]], ids=["list", "member", "nested"])
def test_equal_records_become_rows_and_what_is_equal_in_them_stands_once(value: JsonValue):
    table = table_of(value)

    assert table is not None
    assert len(table) <= 0.8 * len(json.dumps(value, indent=2))
    assert table.count('"EUR"') == 1 and table.count('"customer"') == 1
    ((marker, shown),) = json.loads(table).items()
    assert quoted_id(marker) == ID
    assert quoted_id(table.split("\n")[0]) == ID
    assert read_table(shown) == value


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)), min_size=8, max_size=20))
def test_each_value_comes_back_as_its_own_type(pairs: list[tuple[JsonValue, JsonValue]]):
    wide = [{"a": one, "b": other, "and a field with a long name": "the same in each"} for one, other in pairs]
    table = table_of(wide)

    assert table is not None
    ((_, shown),) = exact(table).items()  # type: ignore[union-attr]
    assert read_table(shown) == exact(json.dumps(wide))


@pytest.mark.parametrize(
    "value",
    [
        [{"a": 1}, {"b": 2}],
        ORDERS[:2],
        {"constants": {}, "columns": ["a"], "rows": [[1]] * 50},
        ["a word"] * 50,
        "no container",
    ],
    ids=["fields differ", "few", "a table already", "no records", "a string"],
)
def test_what_is_not_made_of_equal_records_or_saves_too_little_is_no_table(value: JsonValue):
    assert table_of(value, indent=None) is None


def test_pretty_json_without_records_may_be_minified():
    value = {f"key {n}": {"deep": [n, {"x": None}]} for n in range(30)}
    table = table_of(value, indent=4)

    assert table is not None
    ((_, shown),) = json.loads(table).items()
    assert shown == value

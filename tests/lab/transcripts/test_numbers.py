import pytest

from kimi_proxy.core.json import JsonValue
from kimi_proxy.lab.transcripts.transcript import number


@pytest.mark.parametrize(
    ("value", "count"), [(12, 12), (2.9, 2), (-1, 0), (float("inf"), 0), (float("nan"), 0), ("7", 0)]
)
def test_what_is_no_count_counts_as_none(value: JsonValue, count: int):
    assert number(value) == count

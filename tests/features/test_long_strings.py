"""Whether a long string may be in JSON that is not read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.masking import may_hold_long

texts = st.text(st.sampled_from('ab"\\\u00e9\u2028\n'), max_size=12)
values = st.recursive(texts | st.integers() | st.none(), lambda v: st.lists(v) | st.dictionaries(texts, v))


def longest(value: JsonValue) -> int:
    match value:
        case str():
            return len(value)
        case dict():
            return max((longest(one) for pair in value.items() for one in pair), default=0)
        case list():
            return max(map(longest, value), default=0)
    return 0


@given(st.lists(values) | st.dictionaries(texts, values), st.integers(0, 12), st.integers(1, 40), st.booleans())
def test_no_long_string_is_missed_however_it_is_sliced(
    value: JsonValue, max_chars: int, slice_bytes: int, is_ascii: bool
):
    view = Raw(json.dumps(value, ensure_ascii=is_ascii).encode())
    assert may_hold_long(view, max_chars, slice_bytes) or longest(value) <= max_chars


@pytest.mark.parametrize(
    ("value", "may"),
    [
        ([1] * 100, False),
        (["abcd", "abcd", 12345678], False),
        ([{"abcd": '"cd'}] * 50, False),
        ({"a": ["abcde"]}, True),
    ],
)
@pytest.mark.parametrize("slice_bytes", [1, 7, 1000])
def test_many_short_members_are_known_to_hold_none(value: JsonValue, may: bool, slice_bytes: int):
    assert may_hold_long(Raw(json.dumps(value).encode()), 4, slice_bytes) is may


def test_a_string_that_ends_with_a_backslash_ends_there():
    assert may_hold_long(Raw(b'["\\\\","abcde"]'), 4)

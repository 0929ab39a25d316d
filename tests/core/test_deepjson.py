"""JSON of any depth, as servers answer it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_proxy.core import json as deepjson
from kimi_proxy.core.errors import ParseError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
DEEP = 6000  # times two levels: the parsers in C give up at 1,000 or 10,000, by the version of Python
FEW = settings(max_examples=30)  # each of them is thousands of levels deep


def nested(inner: str, depth: int = DEEP) -> str:
    return '{"a": [' * depth + inner + "]}" * depth


@FEW
@given(VALUES, st.sampled_from([None, 1]))
def test_what_is_too_deep_for_the_fast_parser_means_the_same(value: object, indent: int | None):
    read = deepjson.decode_deep(nested(json.dumps(value, indent=indent)))
    for _ in range(DEEP):
        read = read["a"][0]  # type: ignore[index,call-overload]

    assert read == value


@FEW
@given(VALUES)
def test_a_deep_value_is_written_so_that_it_reads_the_same(value: object):
    written = deepjson.encode_deep(deepjson.decode_deep(nested(json.dumps(value))))

    around = nested("|").replace(" ", "").encode().split(b"|")
    assert [written[: len(around[0])], written[-len(around[1]) :]] == around
    assert json.loads(written[len(around[0]) : -len(around[1])]) == value


@pytest.mark.parametrize("depth", [10_000, 100_000])
def test_no_depth_is_too_deep(depth: int):
    text = "[" * depth + "]" * depth

    assert deepjson.encode_deep(deepjson.decode_deep(text)) == text.encode()


@pytest.mark.parametrize("raw", [b'"\\ud800"', b'["caf\\u00e9 \\udfff"]', b"[1e400]", b"[-0.0]"])
def test_unusual_values_are_read(raw: bytes):
    assert deepjson.decode_deep(raw) == json.loads(raw)


def test_lone_surrogates_leave_as_escapes():
    assert deepjson.encode_deep(["\ud800é"]) == b'["\\ud800\\u00e9"]'


@pytest.mark.parametrize(
    "inner",
    ["1,", "[1", "tru", "01", '"a', '"a\nb"', "{1:2}", '{"a" 1}', '{"a":}', '{"a":1,}', "]", "}", "1 2", "NaN", "[}"],
)
@pytest.mark.parametrize("depth", [0, DEEP])
def test_what_is_not_json_is_refused_at_every_depth(inner: str, depth: int):
    text = f"{'[' * (depth + 1)}{inner}{']' * (depth + 1)}"

    assert not deepjson.is_json(text)
    with pytest.raises(ParseError):
        deepjson.decode_deep(text)


@pytest.mark.parametrize("raw", [b"", b" ", b"\xff", b"[1] x", b"Infinity"])
def test_what_is_no_value_at_all_is_refused(raw: bytes):
    with pytest.raises(ParseError):
        deepjson.decode_deep(raw)


@FEW
@given(VALUES)
def test_json_is_known_without_reading_it(value: object):
    assert deepjson.is_json(json.dumps(value))
    assert deepjson.is_json(nested(json.dumps(value)))


def test_members_are_counted_without_reading_them():
    assert [bytes(m) for m in deepjson.members_deep('{"a": [1, 2], "b": "c"}')] == [b"[1, 2]", b'"c"']
    assert [bytes(m) for m in deepjson.members_deep("[1, {}]")] == [b"1", b"{}"]
    assert list(deepjson.members_deep("12")) == []

"""JSON from strangers: strict, bounded, and no character lost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import MAX_DEPTH, MAX_VALUES, JsonValue, decode, encode

ANY_CHARACTER = st.text(st.characters(exclude_categories=()))
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_CHARACTER,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_CHARACTER, inner),
)


@given(VALUES)
def test_what_is_written_is_read_again(value: JsonValue):
    assert decode(encode(value)) == value


@given(VALUES)
def test_the_standard_library_agrees(value: JsonValue):
    assert decode(json.dumps(value).encode()) == value
    assert json.loads(encode(value)) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_a_parse_error(raw: bytes):
    try:
        decode(raw)
    except ParseError as e:
        assert str(e)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_has_a_limit(opening: bytes, closing: bytes):
    def nested(depth: int) -> bytes:
        return opening * depth + b"1" + closing * depth

    decode(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 5000, 100_000):
        with pytest.raises(ParseError, match="nested"):
            decode(nested(depth))


@pytest.mark.parametrize("piece", [b"1,", b"[],", b"{},", b'"",', b'{"a":1},', b'"\\"",', b'"\\\\",', b'"[",'])
def test_a_crowd_of_values_is_refused(piece: bytes):
    decode(b"[" + piece * (MAX_VALUES // 3) + b"1]")
    with pytest.raises(ParseError, match="more than 200000 values"):
        decode(b"[" + piece * (MAX_VALUES + 1) + b"1]")


@pytest.mark.parametrize("piece", ["1,2,", "[[{", '","', '\\",', "\\\\,", ',"\\', "[\n"])
def test_a_long_string_is_no_crowd_whatever_it_holds(piece: str):
    text = piece * MAX_VALUES

    assert decode(encode({"text": text, "goal": "x"})) == {"text": text, "goal": "x"}

"""JSON of clients is strict and bounded, what is too deep in that of servers passes unread, no character is lost."""

import json
import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kimi_proxy.core.errors import ParseError, UpstreamUnreadable
from kimi_proxy.core.json import (
    MAX_DEPTH,
    MAX_NESTING,
    MAX_READ_BYTES,
    MAX_VALUES,
    JsonValue,
    UnreadObject,
    children,
    decode,
    decode_deep,
    decode_members,
    decode_string,
    encode,
    encode_in_pieces,
    has_many_values,
    is_container,
    is_json,
    view,
)

ANY_CHARACTER = st.text(st.characters(exclude_categories=()))
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_CHARACTER,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_CHARACTER, inner),
)

PLAIN_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
DEEP = 5900  # times two levels: the parsers in C give up at 1,000 or 10,000, by the version of Python
FEW = settings(max_examples=max(10, settings.default.max_examples // 200))  # each is thousands of levels deep


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
def test_too_many_values_are_refused(piece: bytes):
    decode(b"[" + piece * (MAX_VALUES // 3) + b"1]")
    with pytest.raises(ParseError, match="more than 200000 values"):
        decode(b"[" + piece * (MAX_VALUES + 1) + b"1]")


@pytest.mark.parametrize("piece", ["1,2,", "[[{", '","', '\\",', "\\\\,", ',"\\', "[\n"])
def test_a_long_string_is_one_value_whatever_it_holds(piece: str):
    text = piece * MAX_VALUES

    assert decode(encode({"text": text, "goal": "x"})) == {"text": text, "goal": "x"}


def nested(inner: str, depth: int = DEEP) -> str:
    return '{"a": [' * depth + inner + "]}" * depth


@FEW
@given(PLAIN_VALUES)
def test_what_is_too_deep_is_refused_unless_it_is_a_member_that_passes_as_it_came(value: object):
    deep = nested(json.dumps(value, indent=1)).encode()
    with pytest.raises(ParseError, match="nested too deep"):
        decode_deep(deep)
    message = decode_members(b'{"id": 7, "result": %b, "_meta": {"a": [1]}, "id": "x"}' % deep)

    assert isinstance(message, dict)
    assert (message["id"], message["_meta"]) == ("x", {"a": [1]})
    assert encode(message) == b'{"id":"x","result":%b,"_meta":{"a":[1]}}' % deep.replace(b"\n", b" ")
    assert b"".join(encode_in_pieces(message)) == b'{"id":"x","result":%b,"_meta":{"a":[1]}}' % deep
    assert encode(decode_members(b"[%b]" % encode(message))) == b"[%b]" % encode(message)


def test_what_was_not_read_because_it_is_too_deep_cannot_be_looked_into():
    message = decode_members(b'{"result": %b}' % nested("1").encode())

    assert isinstance(message, dict)
    with pytest.raises(UpstreamUnreadable, match="nested too deep"):
        len(message["result"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "broken", ['{"id" 7, "r": %s}', '{"r": %s', '{"r": %s,}', '{"r": %s} x', '[1, {"r": %s}', "%s]"]
)
def test_a_message_around_what_is_too_deep_has_to_be_json(broken: str):
    with pytest.raises(ParseError):
        decode_members((broken % nested("1")).encode())


def test_nothing_is_passed_on_that_nests_without_end():
    with pytest.raises(ParseError, match=f"deeper than {MAX_NESTING}"):
        decode_members(b'{"r": %b}' % (b"[" * 500_000))


@pytest.mark.parametrize("depth", [500, 900, 950, 990])
@pytest.mark.parametrize("inner", ["1", r'"\ud800"', r'["\ud800",1e400]'])
def test_what_could_be_read_can_be_written_from_any_place(depth: int, inner: str):
    raw = "[" * depth + inner + "]" * depth

    def write(frames: int, value: JsonValue) -> bytes:
        return encode(value) if not frames else write(frames - 1, value)

    try:
        value = decode_deep(raw)
    except ParseError:
        return
    assert write(100, value).decode() == raw.replace("1e400", "null")


@pytest.mark.parametrize("raw", [b'"\\ud800"', b'["caf\\u00e9 \\udfff"]', b"[1e400]", b"[-0.0]"])
def test_unusual_values_are_read(raw: bytes):
    assert decode_deep(raw) == json.loads(raw)


def test_lone_surrogates_leave_as_escapes():
    assert encode(["\ud800é"]) == b'["\\ud800\\u00e9"]'


@pytest.mark.parametrize(
    "inner",
    ["1,", "[1", "tru", "01", '"a', '"a\nb"', "{1:2}", '{"a" 1}', '{"a":}', '{"a":1,}', "]", "}", "1 2", "NaN", "[}"],
)
def test_what_is_not_json_is_refused(inner: str):
    assert not is_json(f"[{inner}]")
    with pytest.raises(ParseError):
        decode_deep(f"[{inner}]")


@pytest.mark.parametrize("raw", [b"", b" ", b"\xff", b"[1] x", b"Infinity"])
def test_what_is_no_value_at_all_is_refused(raw: bytes):
    with pytest.raises(ParseError):
        decode_deep(raw)


@FEW
@given(PLAIN_VALUES)
def test_json_is_known_without_reading_it(value: object):
    assert is_json(json.dumps(value))
    assert is_json(nested(json.dumps(value)))


@pytest.mark.parametrize(
    ("text", "expected"), [("[1]", True), ('\n\t {"a": 1}' + "\n" * 90, True), ("[1", False), ("[}", False)]
)
def test_a_container_is_an_array_or_an_object_with_any_space_around_it(text: str, expected: bool):
    assert is_container(text) is expected
    assert not any(map(is_container, ("", " ", "1", '"[]"', "x[1]")))


def test_members_are_found_without_reading_them():
    assert {k: bytes(v) for k, v in children('{"a": [1, 2], "b": "c"}').items()} == {"a": b"[1, 2]", "b": b'"c"'}
    assert [bytes(m) for m in children("[1, {}]")] == [b"1", b"{}"]
    assert children("12") == []


def _values(text: str) -> int:
    """Count what opens or separates values outside of strings, one character after the other."""
    found, in_string, escaped = 0, False, False
    for character in text:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == '"':
            in_string = not in_string
        else:
            found += not in_string and character in ",[{"
    return found


@given(
    st.lists(st.sampled_from([",", "[", "{", "a", " "]) | st.text('ab,[{\\"', max_size=9), max_size=40),
    st.integers(1, 9),
)
def test_values_are_counted_the_same_wherever_a_text_is_sliced(pieces: list[str], slice_bytes: int):
    text = "".join(piece if piece in ",[{ " else json.dumps(piece) for piece in pieces)
    assume(text.count('"') <= 12 and len(text) > 6)
    assert has_many_values(text.encode(), max_values=3, slice_bytes=slice_bytes) == (_values(text) > 3)


ODD_TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\\"u0d8é中😀\n'), max_size=60)


@given(ODD_TEXT, st.booleans(), st.integers(1, 20))
def test_a_long_string_reads_the_same_wherever_it_is_divided(text: str, is_ascii: bool, slice_bytes: int):
    raw = view(json.dumps(text, ensure_ascii=is_ascii).encode())
    assert raw is not None
    assert decode_string(raw, slice_bytes) == text


@pytest.mark.parametrize("text", ["\n" * 50_000, "\\" * 50_000, "中" * 50_000, "😀" * 20_000, "a\\n" * 20_000])
def test_a_long_string_of_nothing_but_escapes_takes_no_time(text: str):
    raw = view(json.dumps(text).encode())
    assert raw is not None
    began = time.process_time()
    assert decode_string(raw, 1000) == text
    assert time.process_time() - began < 5


LONG_MEMBER = b'{"a": "' + b"x" * MAX_READ_BYTES + b'"}'


def test_a_long_member_is_not_read_and_leaves_as_it_came():
    message = decode_members(b'{"id": 7,  "result": %b}' % LONG_MEMBER)

    assert isinstance(message, dict)
    assert isinstance(message["result"], UnreadObject)
    assert encode(message) == b'{"id":7,"result":%b}' % LONG_MEMBER
    assert encode({**message, "id": "\ud800"}) == b'{"id":"\\ud800","result":%b}' % LONG_MEMBER
    assert message == {"id": 7, "result": json.loads(LONG_MEMBER)}


def test_a_short_message_is_read_whole():
    assert type(decode_members(b'{"result": {"a": 1}}')["result"]) is dict  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    "broken", [b'{"id": 1, "result": \xff%b}', b'{"id": 1, "result": %b', b'{"a": "\xff", "r": %b}']
)
def test_a_long_message_that_is_no_json_is_refused(broken: bytes):
    with pytest.raises(ParseError):
        decode_members(broken % LONG_MEMBER)


def test_a_long_message_with_half_a_character_is_read_whole():
    assert decode_members(b'{"a": "\\ud800", "r": %b}' % LONG_MEMBER) == {"a": "\ud800", "r": json.loads(LONG_MEMBER)}


rows = st.recursive(
    st.text(st.sampled_from('a",]}[{\\\u00e9'), max_size=6) | st.integers() | st.none(),
    lambda inside: st.lists(inside, max_size=5) | st.dictionaries(st.text(max_size=3), inside, max_size=4),
    max_leaves=20,
)


def read(raw: bytes, slice_bytes: int) -> JsonValue:
    """Return the value of `raw`, however it is read; None if that is refused."""
    try:
        return decode_members(raw, 0, slice_bytes) if slice_bytes else decode_deep(raw)
    except ParseError:
        return None


@given(st.lists(rows, max_size=30), st.integers(1, 40), st.booleans(), st.data())
def test_an_array_that_is_checked_in_slices_is_read_and_refused_as_in_one_go(
    value: list[JsonValue], slice_bytes: int, is_spaced: bool, data: st.DataObject
):
    whole = {"id": 1, "result": {"a": [], "rows": value}}
    raw = json.dumps(whole, ensure_ascii=False, separators=(", ", ": ") if is_spaced else (",", ":")).encode()
    at, length = data.draw(st.integers(0, len(raw))), data.draw(st.integers(0, 3))
    broken = raw[:at] + data.draw(st.sampled_from((b"", b",", b"]", b"[", b'"', b"\xff", b"}"))) + raw[at + length :]

    assert read(raw, slice_bytes) == whole
    assert read(broken, slice_bytes) == read(broken, 0)


def test_slices_are_cut_between_the_members_of_a_long_array():
    raw = b'{"id":7,"result":{"rows":[%b],"more":{}}}' % b",".join(b'{"n":[%d,{"a":"},{"}]}' % n for n in range(2000))
    message = decode_members(raw, 100, 1000)

    assert isinstance(message, dict)
    assert encode(message) == raw
    assert message == json.loads(raw)

"""JSON of any depth: what a server answered has to pass, however it nests.

The parsers in C call themselves for each level and give up at about a thousand; these loops take
over then. They are slow, and meant for the rare answer that needs them."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec import Raw

from kimi_proxy.core.errors import ParseError

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, "JsonValue"]

MAX_DEPTH = 128
MAX_VALUES = 200_000


def decode(raw: bytes, max_depth: int = MAX_DEPTH) -> JsonValue:
    """Read one JSON value; anything that isn't strict JSON, or nests too deep, is a ParseError."""
    refuse_crowd(raw)
    try:
        value: JsonValue = msgspec.json.decode(raw)
    except RecursionError as e:
        raise ParseError(f"JSON is nested deeper than {max_depth} levels") from e
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = _decode_surrogates(raw)
    if _deeper_than(value, max_depth):
        raise ParseError(f"JSON is nested deeper than {max_depth} levels")
    return value


def members(raw: bytes, names: Collection[str]) -> dict[str, JsonValue]:
    """The members of a JSON object that have these names; the others are passed over, not built."""
    try:
        found = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise ParseError(f"not a JSON object: {e}") from e
    return {name: decode(bytes(found[name])) for name in names if name in found}


def encode(value: object) -> bytes:
    """Write `value` as compact UTF-8 JSON; lone surrogates leave as `\\ud800` escapes."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")


def has_halves(value: object) -> bool:
    """Whether a text in it has half of a surrogate pair: no UTF-8 can say that, and providers refuse its escape."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return True
    return False


def refuse_crowd(raw: bytes) -> None:
    """32 MB of `[],[],…` take 900 MB and 4 s to read; 32 MB of one string take what they weigh."""
    if len(raw) <= 2 * MAX_VALUES or _openings(raw) <= MAX_VALUES:
        return
    bare = raw.replace(rb"\\", b"").replace(rb"\"", b"")  # what quotes are left begin or end a string
    if bare.count(b'"') > 4 * MAX_VALUES or _openings(b"".join(bare.split(b'"')[::2])) > MAX_VALUES:
        raise ParseError(f"JSON holds more than {MAX_VALUES} values")


def _openings(raw: bytes) -> int:
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def _decode_surrogates(raw: bytes) -> JsonValue:
    """The standard library accepts lone surrogate escapes, which a file read by an agent may hold."""
    try:
        text = raw.decode("utf-8")
        value: JsonValue = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as e:
        raise ParseError("JSON is nested too deep") from e
    except ValueError as e:
        raise ParseError(f"not valid JSON: {e}") from e
    return value


def _refuse_constant(name: str) -> float:
    raise ParseError(f"not valid JSON: {name} is not a JSON number")


def _deeper_than(value: JsonValue, limit: int) -> bool:
    level: list[JsonValue] = [value]
    for _ in range(limit + 1):
        below: list[JsonValue] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return False
        level = below
    return True


# JSON of any depth: what a server answered has to pass, however it nests.
#
# The parsers in C call themselves for each level and give up at about a thousand; these loops take
# over then. They are slow, and meant for the rare answer that needs them.

# Deeper than this nobody builds by accident.
MAX_NESTING = 1_000_000

_SPACE = re.compile(r"[ \t\n\r]*")
_ENDLESS = (float("inf"), float("-inf"))  # what a number such as 1e400 is read as


_Members: TypeAlias = list[msgspec.Raw] | dict[str, msgspec.Raw]


def decode_deep(raw: bytes | str) -> JsonValue:
    """Read one JSON value, of any depth and with lone surrogates; anything else is a ParseError."""
    try:
        value: JsonValue = msgspec.json.decode(raw)
        return value
    except RecursionError:
        return _decode(_text(raw))
    except (msgspec.DecodeError, UnicodeError):
        return _deepjson_decode_surrogates(_text(raw))


def is_json(text: str) -> bool:
    """Whether `text` is one JSON value; many times faster than reading it."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (RecursionError, UnicodeError, msgspec.DecodeError):
        return _is_unusual_json(text)
    return True


def members_deep(text: str | msgspec.Raw) -> Sequence[msgspec.Raw]:
    """The members of the array, or the values of the object, that `text` is; none if it is neither."""
    try:
        found: _Members = msgspec.json.decode(text, type=_Members)
    except (RecursionError, UnicodeError, msgspec.DecodeError):
        return ()
    return tuple(found.values()) if isinstance(found, dict) else found


def encode_deep(value: JsonValue) -> bytes:
    """Write `value` as compact UTF-8 JSON; lone surrogates leave as `\\ud800` escapes."""
    try:
        return msgspec.json.encode(value)
    except (RecursionError, UnicodeEncodeError):
        return "".join(_pieces(value)).encode("utf-8")


def _is_unusual_json(text: str) -> bool:
    try:
        _deepjson_decode_surrogates(text)
    except ParseError:
        return False
    return True


def _text(raw: bytes | str) -> str:
    try:
        return raw if isinstance(raw, str) else raw.decode("utf-8")
    except UnicodeDecodeError as e:
        raise ParseError(f"not UTF-8: {e.reason} at byte {e.start}") from e


def _deepjson_decode_surrogates(text: str) -> JsonValue:
    """The standard library accepts what the fast parser refuses: lone surrogates and huge numbers."""
    try:
        value: JsonValue = json.loads(text, parse_constant=_refuse)
        return value
    except RecursionError:
        return _decode(text)
    except ValueError as e:
        raise ParseError(f"not valid JSON: {e}") from e


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


_SCALARS = json.JSONDecoder(parse_constant=_refuse)


def _decode(text: str) -> JsonValue:
    try:
        value, end = _value(text)
    except (ValueError, IndexError) as e:
        raise ParseError(f"not valid JSON: {e}") from e
    if _after_space(text, end) != len(text):
        raise ParseError(f"not valid JSON: something follows the value at character {end}")
    return value


def _value(text: str) -> tuple[JsonValue, int]:
    """The value that `text` begins with, and where it ends."""
    # The containers around the place, outermost first, and the keys that wait for their value.
    open_: list[dict[str, JsonValue] | list[JsonValue]] = []
    keys: list[str] = []
    at = _after_space(text, 0)
    while True:
        value: JsonValue
        character = text[at]
        if character in "[{":
            if len(open_) >= MAX_NESTING:
                raise ValueError(f"nested deeper than {MAX_NESTING} levels")
            at = _after_space(text, at + 1)
            if text[at] not in "]}":
                open_.append([] if character == "[" else {})
                if character == "{":
                    at = _key(text, at, keys)
                continue
            value, at = ([] if character == "[" else {}), _closed(text, at, character)
        else:
            value, at = _scalar(text, at)
        # A value has ended: put it where it belongs, and close what it closes.
        while open_:
            around = open_[-1]
            if isinstance(around, dict):
                around[keys.pop()] = value
            else:
                around.append(value)
            at = _after_space(text, at)
            if text[at] == ",":
                at = _after_space(text, at + 1)
                if isinstance(around, dict):
                    at = _key(text, at, keys)
                break
            at = _closed(text, at, "{" if isinstance(around, dict) else "[")
            value = open_.pop()
        else:
            return value, at


def _closed(text: str, at: int, opening: str) -> int:
    if text[at] != ("]" if opening == "[" else "}"):
        raise ValueError(f"expected ',' or the end of a {opening} at character {at}")
    return at + 1


def _key(text: str, at: int, keys: list[str]) -> int:
    """Read a key and its colon; return where the value begins."""
    key, at = _scalar(text, at) if text[at] == '"' else (None, at)
    if not isinstance(key, str):
        raise ValueError(f"expected a key at character {at}")
    at = _after_space(text, at)
    if text[at] != ":":
        raise ValueError(f"expected ':' at character {at}")
    keys.append(key)
    return _after_space(text, at + 1)


def _scalar(text: str, at: int) -> tuple[JsonValue, int]:
    value: JsonValue
    value, end = _SCALARS.raw_decode(text, at)
    return value, end


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _pieces(value: JsonValue) -> Iterator[str]:
    """The text of `value`, piece by piece."""
    # What is still to be written, innermost last: a comma if one is due, the members, the bracket.
    rest: list[tuple[str, Iterator[tuple[str, JsonValue]], str]] = []
    lead, item = "", value
    while True:
        if isinstance(item, dict):
            yield f"{lead}{{"
            rest.append(("", ((f"{json.dumps(k)}:", v) for k, v in item.items()), "}"))
        elif isinstance(item, list | tuple):
            yield f"{lead}["
            rest.append(("", (("", v) for v in item), "]"))
        else:
            yield lead + (json.dumps(item) if item not in _ENDLESS else "null")
        while rest:
            comma, items, end = rest[-1]
            following = next(items, None)
            if following is not None:
                rest[-1] = (",", items, end)
                lead, item = comma + following[0], following[1]
                break
            rest.pop()
            yield end
        else:
            return


Container: TypeAlias = list[Raw] | dict[str, Raw]

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_CONTAINER: msgspec.json.Decoder[Container] = msgspec.json.Decoder(list[Raw] | dict[str, Raw])


def view(raw: bytes) -> Raw | None:
    """The value that a JSON text is; None if it is none, nests too deep or holds half of a surrogate pair."""
    try:
        return msgspec.json.decode(raw, type=Raw)
    except _UNREADABLE:
        return None


def container(raw: Raw) -> Container:
    """The members of an array or an object as views into `raw`; none if it is neither."""
    try:
        return _CONTAINER.decode(raw)
    except _UNREADABLE:
        return []


def start(view: Raw, of: bytes) -> int:
    """Where a view begins in the text that it looks into."""
    return _address(view) - _address(of)


def size(view: Raw) -> int:
    return len(memoryview(view))


def _address(view: bytes | Raw) -> int:
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address

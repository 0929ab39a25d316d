"""JSON as it comes from strangers: decoded strictly, encoded without losing a character."""

import json
from collections.abc import Collection

import msgspec

from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.types import JsonValue

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

"""Reads JSON that may be anything: what is not of the type that is asked for is read as empty."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
from msgspec import Raw

from kimi_proxy.core import json
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue

RawObject: TypeAlias = dict[str, Raw]

OBJECT = msgspec.json.Decoder(RawObject)
STRING = msgspec.json.Decoder(str)
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_ARRAY = msgspec.json.Decoder(list[Raw])

MAX_SMALL_BYTES = 64 * 1024


# Views into a body


class _SmallMembers(msgspec.Struct):
    """The members by which a request finds its model, its provider and its session; all others are skipped."""

    model: Raw = Raw()
    stream: Raw = Raw()
    store: Raw = Raw()
    n: Raw = Raw()
    conversation: Raw = Raw()
    previous_response_id: Raw = Raw()
    external_session_id: Raw = Raw()
    prompt_cache_key: Raw = Raw()
    metadata: Raw = Raw()


_SMALL = msgspec.json.Decoder(_SmallMembers)


def few_members(body: bytes) -> RawObject:
    """Return the small members of an object, in the memory that they take alone. Raise DecodeError if it is none."""
    found = msgspec.structs.asdict(_SMALL.decode(body))
    return {name: raw for name, raw in found.items() if 0 < len(memoryview(raw)) <= MAX_SMALL_BYTES}


def members(raw: Raw | None) -> RawObject:
    try:
        return {} if raw is None else OBJECT.decode(raw)
    except UNREADABLE:
        return {}


def array(raw: Raw | None) -> list[Raw]:
    try:
        return [] if raw is None else _ARRAY.decode(raw)
    except UNREADABLE:
        return []


def string(raw: Raw | None) -> str:
    try:
        return "" if raw is None else STRING.decode(raw)
    except UNREADABLE:
        return ""


def value(raw: Raw | None) -> JsonValue:
    try:
        read: JsonValue = None if raw is None else msgspec.json.decode(raw)
        return read
    except UNREADABLE:
        return None


def value_of(data: bytes) -> JsonValue:
    """Return the value of JSON that a provider sent; None if it is none."""
    try:
        return json.decode(data)
    except ParseError:
        return None


def json_object(data: bytes) -> RawObject | None:
    """Return the members of the JSON object that a provider sent; None if it is none."""
    try:
        json.refuse_many_values(data)
        return OBJECT.decode(data)
    except (*UNREADABLE, ParseError):
        return None


def is_string(raw: Raw) -> bool:
    return memoryview(raw)[0] == ord('"')


def is_array(raw: Raw) -> bool:
    return memoryview(raw)[0] == ord("[")


def is_true(raw: Raw | None) -> bool:
    return raw is not None and bytes(raw) == b"true"


# Values


def as_object(value: JsonValue) -> JsonObject:
    return dict(value) if isinstance(value, Mapping) else {}


def as_objects(value: JsonValue) -> list[JsonObject]:
    return [dict(item) for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def as_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def as_index(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None

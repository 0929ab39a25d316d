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


# Views into a body


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

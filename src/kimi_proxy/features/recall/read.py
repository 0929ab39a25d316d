"""JSON of providers, read without trust: what is not there, or is something else, is nothing."""

from collections.abc import Mapping

from kimi_proxy.core.types import JsonObject, JsonValue


def object_of(value: JsonValue) -> JsonObject:
    return dict(value) if isinstance(value, Mapping) else {}


def objects(value: JsonValue) -> list[JsonObject]:
    return [dict(item) for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def text_of(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def index_of(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None

"""A recorded conversation: JSON Lines of its requests as a client sent them, and what their answers cost.

A request repeats most of the one before it, so its line holds only what is between the characters that both begin with
and those that both end with."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kimi_proxy.core import json
from kimi_proxy.core.chat.wires import BY_NAME, Wire
from kimi_proxy.core.chat.wires.protocol import Usage
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.lines import common_head
from kimi_proxy.features.accounting import Prices

VERSION = 1


@dataclass(frozen=True, slots=True)
class Head:
    """What the settings knew of the model."""

    model: str
    max_context: int | None = None
    prices: Prices | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A request as it came, and what became of it."""

    at: float
    wire: Wire
    body: str
    status: int
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Recording:
    head: Head
    requests: tuple[Taken, ...]


def head_line(head: Head) -> bytes:
    prices = head.prices
    told = None
    if prices is not None:
        told = {
            "input": prices.input,
            "cached": prices.cached,
            "cache_write": prices.cache_write,
            "output": prices.output,
        }
    return _line({"recording": VERSION, "model": head.model, "max_context": head.max_context, "prices": told})


def line(taken: Taken, before: str) -> bytes:
    """`before` is the body of the line before; empty if this is the first, or nobody knows."""
    head = common_head(before, taken.body)
    tail = _common_tail(before[head:], taken.body[head:])
    usage = taken.usage
    told: JsonObject | None = None
    if usage is not None:
        told = {
            "input_tokens": usage.input_tokens,
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "output_tokens": usage.output_tokens,
        }
    return _line(
        {
            "at": taken.at,
            "api": taken.wire.format.name,
            "status": taken.status,
            "usage": told,
            "same_head": head,
            "same_tail": tail,
            "body": taken.body[head : len(taken.body) - tail],
        }
    )


def read(lines: Iterable[bytes]) -> Recording:
    """ParseError, with the number of the line, where this is no recording."""
    head: Head | None = None
    requests: list[Taken] = []
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        told = _object(raw, number)
        if "recording" in told:
            head = head or _head(told, number)
        else:
            requests.append(_taken(told, requests[-1].body if requests else "", number))
    if head is None or not requests:
        raise ParseError("this is no recording: it holds no line that begins one, or no request")
    return Recording(head, tuple(requests))


def _line(told: JsonObject) -> bytes:
    return json.encode(told) + b"\n"


def _object(raw: bytes, number: int) -> Mapping[str, JsonValue]:
    try:
        told = json.decode(raw)
    except ParseError as e:
        raise ParseError(f"line {number} is not JSON: {e}") from e
    if not isinstance(told, Mapping):
        raise ParseError(f"line {number} is no JSON object")
    return told


def _head(told: Mapping[str, JsonValue], number: int) -> Head:
    if told["recording"] != VERSION:
        raise ParseError(f"line {number}: this kimi-proxy reads recordings of version {VERSION}")
    window = told.get("max_context")
    size = window if isinstance(window, int) and window > 0 else None
    return Head(str(told.get("model", "")), size, _prices(told.get("prices")))


def _prices(told: JsonValue) -> Prices | None:
    names = ("input", "cached", "cache_write", "output")
    if not isinstance(told, Mapping) or not all(name in told for name in names):
        return None
    return Prices(*(_price(told[name]) for name in names))


def _price(value: JsonValue) -> float:
    return float(value) if isinstance(value, int | float) and value >= 0 else 0.0


def _taken(told: Mapping[str, JsonValue], before: str, number: int) -> Taken:
    match told:
        case {
            "at": int() | float() as at,
            "api": str(api),
            "status": int(status),
            "same_head": int(head),
            "same_tail": int(tail),
            "body": str(body),
        } if head >= 0 and tail >= 0 and head + tail <= len(before) and api in BY_NAME:
            whole = before[:head] + body + before[len(before) - tail :]
            return Taken(float(at), BY_NAME[api], whole, status, _usage(told.get("usage")))
    raise ParseError(f"line {number} is no request of a recording")


def _usage(told: JsonValue) -> Usage | None:
    if not isinstance(told, Mapping):
        return None
    names = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")
    return Usage(*(count if isinstance(count := told.get(name), int) and count >= 0 else 0 for name in names))


def _common_tail(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low

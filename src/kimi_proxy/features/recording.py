"""A recorded conversation: JSON Lines with its requests as sent by the client, and the token counts of the responses.

A request repeats most of the previous one, so its line contains only the part between their common beginning and their
common end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from kimi_proxy.core import json
from kimi_proxy.core.chat.wires import BY_NAME, Wire
from kimi_proxy.core.chat.wires.protocol import Usage
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.lines import common_head
from kimi_proxy.features.accounting import Prices

VERSION = 1
_PRICES = ("input", "cached", "cache_write", "output")
_USAGE = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")


class RecordedPrices(TypedDict):
    """USD for a million tokens."""

    input: float
    cached: float
    cache_write: float
    output: float


class RecordingHeadLine(TypedDict):
    """The line that begins a recording."""

    recording: int
    model: str
    max_context: int | None
    prices: RecordedPrices | None


class RecordedUsage(TypedDict):
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int


class RecordedLine(TypedDict):
    """A request: `body` goes between the first `same_head` and the last `same_tail` characters of the previous one."""

    at: float
    api: str
    status: int
    usage: RecordedUsage | None
    same_head: int
    same_tail: int
    body: str


@dataclass(frozen=True, slots=True)
class RecordingHead:
    """The model's facts from the settings."""

    model: str
    max_context: int | None = None
    prices: Prices | None = None


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as received, and its outcome."""

    at: float
    wire: Wire
    body: str
    status: int
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Recording:
    head: RecordingHead
    requests: tuple[RecordedRequest, ...]


def head_line(head: RecordingHead) -> bytes:
    # A recording counts all cache writes together, so it has one price for them.
    prices = None if head.prices is None else {name: getattr(head.prices, name) for name in _PRICES}
    return _line({"recording": VERSION, "model": head.model, "max_context": head.max_context, "prices": prices})


def line(taken: RecordedRequest, before: str) -> bytes:
    """Return the line of a request; `before` is the body of the line before, empty if that is not known."""
    head = common_head(before, taken.body)
    tail = _common_tail(before[head:], taken.body[head:])
    return _line(
        {
            "at": taken.at,
            "api": taken.wire.format.name,
            "status": taken.status,
            "usage": None if taken.usage is None else {name: getattr(taken.usage, name) for name in _USAGE},
            "same_head": head,
            "same_tail": tail,
            "body": taken.body[head : len(taken.body) - tail],
        }
    )


def _line(value: JsonObject) -> bytes:
    return json.encode(value) + b"\n"


def read(lines: Iterable[bytes]) -> Recording:
    """Return a recording; raise ParseError, with the number of the line, where this is none."""
    head: RecordingHead | None = None
    requests: list[RecordedRequest] = []
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        value = _object(raw, number)
        if "recording" in value:
            head = head or _head(value, number)
        else:
            requests.append(_read_request(value, requests[-1].body if requests else "", number))
    if head is None or not requests:
        raise ParseError("this is not a recording: its first line or all requests are missing")
    return Recording(head, tuple(requests))


def _object(raw: bytes, number: int) -> Mapping[str, JsonValue]:
    try:
        value = json.decode(raw)
    except ParseError as e:
        raise ParseError(f"line {number} is not JSON: {e}") from e
    if not isinstance(value, Mapping):
        raise ParseError(f"line {number} is not a JSON object")
    return value


def _head(value: Mapping[str, JsonValue], number: int) -> RecordingHead:
    if value["recording"] != VERSION:
        raise ParseError(f"line {number}: unsupported version; this kimi-proxy reads version {VERSION}")
    window = value.get("max_context")
    prices = None
    match value.get("prices"):
        case {"input": plain, "cached": cached, "cache_write": written, "output": output}:
            prices = Prices(_price(plain), _price(cached), _price(written), _price(output))
    return RecordingHead(
        str(value.get("model", "")), window if isinstance(window, int) and window > 0 else None, prices
    )


def _price(value: JsonValue) -> float:
    return float(value) if isinstance(value, int | float) and value >= 0 else 0.0


def _read_request(value: Mapping[str, JsonValue], before: str, number: int) -> RecordedRequest:
    match value:
        case {
            "at": int() | float() as at,
            "api": str(api),
            "status": int(status),
            "same_head": int(head),
            "same_tail": int(tail),
            "body": str(body),
        } if head >= 0 and tail >= 0 and head + tail <= len(before) and api in BY_NAME:
            whole = before[:head] + body + before[len(before) - tail :]
            return RecordedRequest(float(at), BY_NAME[api], whole, status, _usage(value.get("usage")))
    raise ParseError(f"line {number} is not a request of a recording")


def _usage(value: JsonValue) -> Usage | None:
    if not isinstance(value, Mapping):
        return None
    return Usage(**{name: count for name in _USAGE if isinstance(count := value.get(name), int) and count >= 0})


def _common_tail(one: str, other: str) -> int:
    low = 0
    high = min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low

"""Calls of tools that a request left out: the model calls a wrapper of ours, the client reads a call of its tool."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec import Raw

from kimi_proxy.core import json
from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.read import Edit, JsonBody
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseEvent, SseParser


@dataclass(frozen=True, slots=True)
class UnwrappedCall:
    name: str
    arguments: str  # JSON


# Returns the call that the arguments of our wrapper stand for; None if they name no tool that was left out.
Unwrap = Callable[[str], UnwrappedCall | None]


@dataclass(frozen=True, slots=True)
class CallPlace:
    """Where a call of a conversation has its name and its arguments; a result that repeats the name has none."""

    name: Raw
    arguments: Raw | None = None


class CallStream(ABC):
    """Rewrites the calls of our wrapper in one answer; every other event, and every other call, stays as it came."""

    def __init__(self, wrapper: str, unwrap: Unwrap) -> None:
        self._wrapper = wrapper
        self._unwrap = unwrap

    def feed(self, raw: bytes) -> Sequence[bytes]:
        """Return the events that take the place of this one; none while a call is incomplete."""
        if not self._is_open and self._wrapper.encode() not in raw:
            return (raw,)
        event = next(iter(SseParser().feed(raw + b"\n\n")), None)
        value = read.value_of(event.data) if event is not None else None
        if event is None or not isinstance(value, dict | None):
            return (raw,)
        return self._feed(event, dict(value or {}), raw)

    @property
    @abstractmethod
    def _is_open(self) -> bool:
        """Whether a call of ours is being held back."""

    @abstractmethod
    def _feed(self, event: SseEvent, value: JsonObject, raw: bytes) -> Sequence[bytes]: ...

    @abstractmethod
    def rewrite_body(self, body: JsonObject) -> JsonObject:
        """Return a whole answer with its calls rewritten; the same object if there are none."""

    def _rewrite_each(self, items: Iterable[JsonObject]) -> list[JsonObject] | None:
        """Return `items` with the calls among them rewritten; None if there are none."""
        before = list(items)
        after = [self._rewrite(item) for item in before]
        return after if any(one is not other for one, other in zip(before, after, strict=True)) else None

    @abstractmethod
    def _rewrite(self, item: JsonObject) -> JsonObject:
        """Return an item of an answer as the client reads it; the same object if it is no call of ours."""


def wrap_call(body: JsonBody, place: CallPlace, name: str, wrapper: str) -> list[Edit]:
    """Return the edits by which a call of the client's tool becomes a call of our wrapper again."""
    renamed = (*body.span(place.name), json.encode(wrapper))
    if place.arguments is None:
        return [renamed]
    start, end = body.span(place.arguments)
    given = body.body[start:end]
    is_text = read.is_string(place.arguments)
    inner = _object_text(given) if is_text else given
    wrapped = b'{"name":' + json.encode(name) + b',"arguments":' + inner + b"}"
    return [renamed, (start, end, json.encode(wrapped.decode("utf-8", "surrogatepass")) if is_text else wrapped)]


def _object_text(string: bytes) -> bytes:
    """Return the JSON object in a JSON string, in the same bytes; `{}` if it holds none."""
    text = json.decode(string)
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else b""
    try:
        return raw if isinstance(json.decode(raw), dict) else b"{}"
    except ParseError:
        return b"{}"


def object_or_empty(arguments: str) -> JsonValue:
    """Return the arguments of a call as an object."""
    value = read.value_of(arguments.encode("utf-8", "surrogatepass"))
    return value if isinstance(value, dict) else {}

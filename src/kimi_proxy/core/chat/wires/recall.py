"""Tools of ours in an answer: their calls are hidden, and the rounds that follow on them become one answer.

The model calls such a tool in the middle of an answer; the provider is asked again with its result, and its answer
goes on where the first one stopped. What all wire formats share of that is here."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from kimi_proxy.core import json
from kimi_proxy.core.chat.read import PARAGRAPH
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseEvent, SseParser


@dataclass(frozen=True, slots=True)
class RecallCall:
    id: str
    arguments: str  # JSON, as the model wrote it
    name: str = ""  # of the tool of ours


@dataclass(frozen=True, slots=True)
class RoundCalls:
    """The tool calls of a round: ours, and the ids of those that are the client's."""

    own: tuple[RecallCall, ...] = ()
    others: tuple[str, ...] = ()


class RecallRounds(ABC):
    """The rounds of one answer; `own` are the names of our tools."""

    id = ""  # of the answer for the client, where the API lets it continue from there
    real_id = ""  # what the provider calls the last round of it

    def __init__(self, own: Collection[str], sums_usage: bool = False) -> None:
        self._own = own
        self._sums_usage = sums_usage  # for a client that finds the size of its context in the last of `iterations`
        self._usage: JsonValue = None  # of this round
        self._is_over = False  # this round
        self._usages_before: tuple[JsonValue, ...] = ()  # of the rounds that are over

    @property
    def usages(self) -> tuple[JsonValue, ...]:
        """Return the provider's counts so far, round by round.

        Most clients are given the last one alone: they take a count for the size of their context window, and compact
        it by that.
        """
        return (*self._usages_before, *((self._usage,) if self._usage else ()))

    @property
    def _is_later(self) -> bool:
        """Return whether this is not the first round."""
        return bool(self._usages_before)

    @property
    def calls(self) -> RoundCalls:
        """The calls of this round; none before it is over."""
        calls = list(self._calls()) if self._is_over else []
        own = tuple(RecallCall(id, arguments, name) for id, name, arguments in calls if name in self._own)
        return RoundCalls(own, tuple(id for id, name, _ in calls if name not in self._own))

    def next_round(self) -> list[JsonObject]:
        """Begin the next round; return what the model said in this one, to be sent back with our results."""
        said = self._said_items()
        self._usages_before += (self._usage,)
        self._begin()
        return said

    @abstractmethod
    def _calls(self) -> Iterator[tuple[str, str, str]]:
        """The tool calls of this round: their ids, names and arguments."""

    @abstractmethod
    def _said_items(self) -> list[JsonObject]:
        """Return the model's output of this round, as items of a conversation."""

    @abstractmethod
    def _begin(self) -> None:
        """Forget this round, except for what the client has seen of it."""


class RecallBody(RecallRounds):
    """Rounds that come in one piece each."""

    def __init__(self, own: Collection[str], sums_usage: bool = False) -> None:
        super().__init__(own, sums_usage)
        self._body: JsonObject = {}

    def take(self, body: JsonObject) -> RoundCalls:
        """Read a round; return its calls."""
        self._body, self._usage, self._is_over = body, body.get("usage"), True
        return self.calls

    @abstractmethod
    def join_rounds(self) -> JsonObject:
        """Return all rounds as one answer, without our calls."""


class RecallStream(RecallRounds):
    """Rounds that come event by event; the end of one is held back until it is known whether another follows."""

    def __init__(self, own: Collection[str], sums_usage: bool = False) -> None:
        super().__init__(own, sums_usage)
        self._held: list[tuple[SseEvent, JsonObject | None]] = []
        self._begin()

    def feed(self, raw: bytes) -> bytes:
        """Return what the client may see once this event has come."""
        event = next(iter(SseParser().feed(raw + b"\n\n")), None)
        if event is None:  # a comment
            return raw
        try:
            value = json.decode(event.data)
        except ParseError:
            value = None
        return self._feed(event, dict(value), raw) if isinstance(value, dict) else self._feed_text(event, raw)

    def ending(self) -> bytes:
        """Return what was held back of the last round."""
        return b"".join(
            b"data: " + event.data + b"\n\n" if value is None else event_bytes(event, self._finish_event(value))
            for event, value in self._held
        )

    @abstractmethod
    def _feed(self, event: SseEvent, value: JsonObject, raw: bytes) -> bytes: ...

    def _feed_text(self, event: SseEvent, raw: bytes) -> bytes:
        """Return what the client may see of an event that is no JSON object."""
        return raw

    def _finish_event(self, value: JsonObject) -> JsonObject:
        """Return a held event as it is sent."""
        return value


def event_bytes(event: SseEvent, value: JsonValue) -> bytes:
    """Return the event with other data."""
    name = f"event: {event.name}\n".encode() if event.name else b""
    return name + b"data: " + json.encode(value) + b"\n\n"


def valid_arguments(arguments: str) -> str:
    """Return what the model wrote, or `{}`: some providers refuse a whole conversation for what is no JSON object."""
    try:
        value = json.decode(arguments.encode("utf-8", "replace"))
    except ParseError:
        return "{}"
    return arguments if isinstance(value, Mapping) else "{}"


def gap(before: str, after: str) -> str:
    """Return what separates the texts of two rounds: neither was written to follow on the other at once."""
    return PARAGRAPH if before and not before[-1].isspace() and not after[0].isspace() else ""

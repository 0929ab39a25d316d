"""A tool call as an answer makes it, and what the rounds of an answer have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from kimi_proxy.core import json
from kimi_proxy.core.chat import Request, edit
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue


def object_of(value: JsonValue) -> JsonObject:
    return dict(value) if isinstance(value, Mapping) else {}


def objects(value: JsonValue) -> list[JsonObject]:
    return [dict(item) for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def text_of(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def index_of(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    arguments: str  # JSON, as the model wrote it


@dataclass(frozen=True, slots=True)
class Turn:
    """The tool calls of a round: ours, and the ids of those that are the client's."""

    own: tuple[Call, ...] = ()
    others: tuple[str, ...] = ()


class Rounds(Protocol):
    """An answer in the making, fed event by event and round by round."""

    spent: JsonValue  # what the provider counted for the rounds that are over

    def feed(self, raw: bytes) -> bytes:
        """What the client may see once this event has come."""

    @property
    def turn(self) -> Turn:
        """The calls of this round; none before it is over."""

    @property
    def id(self) -> str:
        """What the answer is called for the client, where somebody may go on from it by that; else empty."""

    @property
    def renamed(self) -> tuple[str, str] | None:
        """What an answer is called for the client, and what the provider calls it, where somebody may ask by that."""

    def follow_up(self, request: Request, answers: Sequence[str]) -> Request:
        """The request that asks again, with an answer to each of our calls; the next round begins."""

    def ending(self) -> bytes:
        """What was held back of the last round."""


def sound(arguments: str) -> str:
    """What the model wrote, to be sent back: some providers refuse a whole conversation for what is no JSON object."""
    try:
        value = json.decode(arguments.encode("utf-8", "replace"))
    except ParseError:
        return "{}"
    return arguments if isinstance(value, Mapping) else "{}"


def summed(before: JsonValue, after: JsonValue) -> JsonValue:
    """Counts of two rounds added up, member by member; what is no count is the later one's."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return {key: summed(before.get(key), after.get(key)) for key in {**before, **after}}
    if _is_count(before) and _is_count(after):
        return before + after
    return before if after is None else after


def _is_count(value: JsonValue) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


SHORT_CHARS = 2_000  # hardly the reason why a request is too long
OWED_CHARS = 32_000  # what is told beside another result stays in the conversation for good


def fitting(text: str, max_chars: int) -> str:
    """The text, or how to ask for some of it."""
    if len(text) <= max_chars:
        return text
    lines = text.count("\n") + 1
    return (
        f"too_long: all of it does not fit in here. It has {lines} lines and {len(text)} characters: ask for some of "
        "them by start_line and end_line, or by start_char and end_char."
    )


def with_results(request: Request, texts: Sequence[str]) -> Request:
    """A request that ends with as many results, with other texts in them."""
    places = [
        (at, index)
        for at, message in enumerate(request.messages)
        for index, part in enumerate(message.parts)
        if part.kind == "tool_result"
    ]
    return edit.with_texts(request, dict(zip(places[-len(texts) :], texts, strict=True)))


class Told:
    """The model's own calls are no part of it, nor is what we say of ids that it should not know."""

    def __init__(self, request: Request) -> None:
        self._knows_all = request.is_continued  # only the end of it passes here
        self._texts = [request.body]

    def add(self, text: str) -> None:
        self._texts.append(text.encode("utf-8", "surrogatepass"))

    def names(self, id: str) -> bool:
        return self._knows_all or any(id.encode() in text for text in self._texts)

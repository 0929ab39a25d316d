"""A tool call as an answer makes it, and what the rounds of an answer have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from kimi_proxy.core import jsontext
from kimi_proxy.core.chat import Request
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.types import JsonValue


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
        value = jsontext.decode(arguments.encode("utf-8", "replace"))
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

"""What can be told of an answer, read from its events one by one or from its whole body."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec
from msgspec import Raw

from kimi_proxy.core import jsontext
from kimi_proxy.core.chat import usage
from kimi_proxy.core.chat.page import Object, array_of, object_of, string_of
from kimi_proxy.core.chat.usage import Usage, merged
from kimi_proxy.core.chat.wire import Wire
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.types import JsonValue

DONE = b"[DONE]"
RESPONSE_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})

_OBJECT = msgspec.json.Decoder(Object)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ParseError)

# What an event holds that tells more than the next words of an answer.
_NEWS = {
    Wire.CHAT: re.compile(rb'"(?:usage|finish_reason)"\s*:\s*[{"]'),
    Wire.MESSAGES: re.compile(rb'"type"\s*:\s*"message_'),
    Wire.RESPONSES: re.compile(rb'"response"\s*:\s*\{'),
}


@dataclass(frozen=True, slots=True)
class Seen:
    model: str = ""  # as the provider names it
    finish: str = ""  # why the answer ended, in the provider's word
    usage: Usage | None = None
    is_complete: bool = False  # the provider said that this was all
    unreadable: int = 0  # events that mean nothing


def after_event(wire: Wire, seen: Seen, data: bytes) -> Seen:
    """What is known once an event with this data has passed."""
    if data == DONE:
        return replace(seen, is_complete=True)
    if seen.model and data.startswith(b"{") and data.endswith(b"}") and not _NEWS[wire].search(data):
        return seen
    members = _members(data)
    return replace(seen, unreadable=seen.unreadable + 1) if members is None else _EVENTS[wire](seen, members)


def of_body(wire: Wire, body: bytes) -> Seen:
    """What a whole answer tells."""
    members = _members(body)
    return Seen(unreadable=1) if members is None else replace(_BODIES[wire](Seen(), members), is_complete=True)


def is_usage_alone(data: bytes) -> bool:
    """Whether a chunk of a chat completion holds the usage and no choice: a client that did not ask trips over it."""
    members = _members(data) or {}
    choices = members.get("choices")
    return (
        choices is not None and bytes(choices).strip(b"[ \t\r\n]") == b"" and _value(members.get("usage")) is not None
    )


def _members(data: bytes) -> Object | None:
    try:
        jsontext.refuse_crowd(data)
        return _OBJECT.decode(data)
    except _UNREADABLE:
        return None


def _completion(seen: Seen, members: Object) -> Seen:
    """A chunk, or all of a completion. Kimi counts inside of the choice, Groq in a corner of its own."""
    choice = next((object_of(raw) for raw in array_of(members.get("choices"))[:1]), {})
    finish = string_of(choice.get("finish_reason"))
    counted = members.get("usage") or choice.get("usage") or object_of(members.get("x_groq")).get("usage")
    return _with(seen, members, finish, usage.openai(_value(counted)))


def _message_event(seen: Seen, members: Object) -> Seen:
    match string_of(members.get("type")):
        case "message_start":
            return _message(seen, object_of(members.get("message")))
        case "message_delta":
            finish = string_of(object_of(members.get("delta")).get("stop_reason"))
            return _with(seen, {}, finish, usage.anthropic(_value(members.get("usage"))))
        case "message_stop":
            return replace(seen, is_complete=True)
        case _:
            return seen


def _message(seen: Seen, members: Object) -> Seen:
    return _with(seen, members, string_of(members.get("stop_reason")), usage.anthropic(_value(members.get("usage"))))


def _response_event(seen: Seen, members: Object) -> Seen:
    if "response" not in members:
        return seen
    seen = _response(seen, object_of(members["response"]))
    return replace(seen, is_complete=True) if string_of(members.get("type")) in RESPONSE_ENDS else seen


def _response(seen: Seen, members: Object) -> Seen:
    status = string_of(members.get("status"))
    finish = "" if status in ("in_progress", "queued") else status
    return _with(seen, members, finish, usage.responses(_value(members.get("usage"))))


def _with(seen: Seen, members: Object, finish: str, counted: Usage | None) -> Seen:
    """The same object if nothing is new: most events only carry text."""
    model = seen.model or string_of(members.get("model"))
    if model == seen.model and not finish and counted is None:
        return seen
    return replace(seen, model=model, finish=finish or seen.finish, usage=merged(seen.usage, counted))


def _value(raw: Raw | None) -> JsonValue:
    try:
        value: JsonValue = None if raw is None else msgspec.json.decode(raw)
        return value
    except _UNREADABLE:
        return None


_EVENTS: Mapping[Wire, Callable[[Seen, Object], Seen]] = {
    Wire.CHAT: _completion,
    Wire.MESSAGES: _message_event,
    Wire.RESPONSES: _response_event,
}
_BODIES: Mapping[Wire, Callable[[Seen, Object], Seen]] = {
    Wire.CHAT: _completion,
    Wire.MESSAGES: _message,
    Wire.RESPONSES: _response,
}

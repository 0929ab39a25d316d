"""What an agent hears: the words and the tool calls of an answer that was streamed."""

from collections.abc import Iterable
from dataclasses import dataclass

from kimi_proxy.core import jsontext
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.sse import Events
from kimi_proxy.core.types import JsonObject, JsonValue


@dataclass(slots=True)
class Asked:
    """A tool call, as far as it has come."""

    id: str
    tool: str
    arguments: str = ""

    @property
    def given(self) -> JsonObject:
        value = jsontext.decode(self.arguments.encode() or b"{}")
        if not isinstance(value, dict):
            raise ParseError("arguments of a tool are an object")
        return value


@dataclass(frozen=True, slots=True)
class Heard:
    text: str
    calls: tuple[Asked, ...]


def heard(wire: Wire, pieces: Iterable[bytes]) -> Heard:
    words: list[str] = []
    calls: list[Asked] = []
    events = Events()
    hear = _hear_message if wire is Wire.MESSAGES else _hear_chunk
    for piece in pieces:
        for event in events.feed(piece):
            if event.data != b"[DONE]":
                hear(jsontext.decode(event.data), words, calls)
    return Heard("".join(words), tuple(calls))


def _hear_chunk(value: JsonValue, words: list[str], calls: list[Asked]) -> None:
    match value:
        case {"choices": [{"delta": {"tool_calls": [dict(call)]}}, *_]}:
            _hear_call(call, calls)
        case {"choices": [{"delta": {"content": str(text)}}, *_]}:
            words.append(text)


def _hear_call(call: JsonObject, calls: list[Asked]) -> None:
    match call:
        case {"id": str(id), "function": {"name": str(tool)}}:
            calls.append(Asked(id, tool))
        case {"function": {"arguments": str(more)}}:
            calls[-1].arguments += more


def _hear_message(value: JsonValue, words: list[str], calls: list[Asked]) -> None:
    match value:
        case {"content_block": {"type": "tool_use", "id": str(id), "name": str(tool)}}:
            calls.append(Asked(id, tool))
        case {"delta": {"type": "text_delta", "text": str(text)}}:
            words.append(text)
        case {"delta": {"type": "input_json_delta", "partial_json": str(more)}}:
            calls[-1].arguments += more

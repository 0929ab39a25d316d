"""Our tool in answers that come in one piece: the rounds of each API put together."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kimi_proxy.core import json
from kimi_proxy.core.chat import Request, Wire, edit
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.recall import chat, messages, responses
from kimi_proxy.features.recall.calls import Call, Rounds, Turn, object_of, objects, sound, summed, text_of
from kimi_proxy.features.recall.chat import ChatRounds
from kimi_proxy.features.recall.messages import MessagesRounds
from kimi_proxy.features.recall.responses import ResponsesRounds


class WholeRounds(Protocol):
    spent: JsonValue  # what the provider counted for the rounds that are over

    @property
    def id(self) -> str:
        """What the answer is called, where somebody may go on from it by that; else empty."""

    def take(self, body: JsonObject) -> Turn:
        """The calls of a round."""

    def follow_up(self, request: Request, answers: Sequence[str]) -> Request:
        """The request that asks again, with an answer to each of our calls."""

    def shown(self) -> JsonObject:
        """All rounds as one answer, without our calls."""


class WholeChat:
    def __init__(self, own: str) -> None:
        self._own = own
        self._body: JsonObject = {}
        self._said: JsonValue = None
        self.spent: JsonValue = None

    @property
    def id(self) -> str:
        return ""

    def take(self, body: JsonObject) -> Turn:
        self._body = body
        calls = objects(self._message.get("tool_calls"))
        own = [call for call in calls if self._is_own(call)]
        return Turn(
            tuple(Call(text_of(call.get("id")), _arguments(call)) for call in own),
            tuple(text_of(call.get("id")) for call in calls if not self._is_own(call)),
        )

    def follow_up(self, request: Request, answers: Sequence[str]) -> Request:
        calls = objects(self._message.get("tool_calls"))
        results = [chat.result(text_of(call.get("id")), text) for call, text in zip(calls, answers, strict=True)]
        said = {**self._message, "tool_calls": [_sent_back(call) for call in calls]}
        self._said = _both(self._said, self._message.get("content"))
        self.spent = summed(self.spent, self._body.get("usage"))
        return edit.with_items(request, [said, *results])

    def shown(self) -> JsonObject:
        message, choice = self._message, self._choice
        others = [call for call in objects(message.get("tool_calls")) if not self._is_own(call)]
        finish = choice.get("finish_reason") if others or not message.get("tool_calls") else "stop"
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        content: JsonObject = {"content": _both(self._said, message.get("content"))} if self._said else {}
        calls: JsonObject = {"tool_calls": others} if others else {}
        choice = {**choice, "message": {**rest, **content, **calls}, "finish_reason": finish}
        return {**self._body, "choices": [choice], "usage": summed(self.spent, self._body.get("usage"))}

    @property
    def _choice(self) -> JsonObject:
        return (objects(self._body.get("choices")) or [{}])[0]

    @property
    def _message(self) -> JsonObject:
        return object_of(self._choice.get("message"))

    def _is_own(self, call: JsonObject) -> bool:
        return object_of(call.get("function")).get("name") == self._own


class WholeMessages:
    def __init__(self, own: str) -> None:
        self._own = own
        self._body: JsonObject = {}
        self._said: list[JsonObject] = []
        self.spent: JsonValue = None

    @property
    def id(self) -> str:
        return ""

    def take(self, body: JsonObject) -> Turn:
        self._body = body
        calls = [block for block in self._content if block.get("type") == "tool_use"]
        own = [block for block in calls if self._is_own(block)]
        return Turn(
            tuple(Call(text_of(c.get("id")), json.encode(c.get("input") or {}).decode()) for c in own),
            tuple(text_of(block.get("id")) for block in calls if not self._is_own(block)),
        )

    def follow_up(self, request: Request, answers: Sequence[str]) -> Request:
        calls = [block for block in self._content if self._is_own(block)]
        results = [messages.result(text_of(call.get("id")), text) for call, text in zip(calls, answers, strict=True)]
        said: JsonObject = {"role": "assistant", "content": self._content}
        self._said += self._others
        self.spent = summed(self.spent, self._body.get("usage"))
        return edit.with_items(request, [said, {"role": "user", "content": results}])

    def shown(self) -> JsonObject:
        is_stop = len(self._others) < len(self._content) and not any(b.get("type") == "tool_use" for b in self._others)
        stop: JsonObject = {"stop_reason": "end_turn"} if is_stop else {}
        usage = summed(self.spent, self._body.get("usage"))
        return {**self._body, "content": [*self._said, *self._others], **stop, "usage": usage}

    @property
    def _content(self) -> list[JsonObject]:
        return objects(self._body.get("content"))

    @property
    def _others(self) -> list[JsonObject]:
        return [block for block in self._content if not self._is_own(block)]

    def _is_own(self, block: JsonObject) -> bool:
        return block.get("type") == "tool_use" and block.get("name") == self._own


class WholeResponses:
    def __init__(self, own: str) -> None:
        self._own = own
        self._body: JsonObject = {}
        self._said: list[JsonObject] = []
        self.spent: JsonValue = None

    @property
    def id(self) -> str:
        return text_of(self._body.get("id"))

    def take(self, body: JsonObject) -> Turn:
        self._body = body
        return responses.turn_of(self._output, self._own)

    def follow_up(self, request: Request, answers: Sequence[str]) -> Request:
        own = responses.turn_of(self._output, self._own).own
        results = [responses.result(call.id, text) for call, text in zip(own, answers, strict=True)]
        items = [*map(responses.sent_back, self._output), *results]
        self._said += self._others
        self.spent = summed(self.spent, self._body.get("usage"))
        return edit.with_items(request, items)

    def shown(self) -> JsonObject:
        usage = summed(self.spent, self._body.get("usage"))
        return {**self._body, "output": [*self._said, *self._others], "usage": usage}

    @property
    def _output(self) -> list[JsonObject]:
        return objects(self._body.get("output"))

    @property
    def _others(self) -> list[JsonObject]:
        return [item for item in self._output if not self._is_own(item)]

    def _is_own(self, item: JsonObject) -> bool:
        return responses.is_own(item, self._own)


def _both(first: JsonValue, second: JsonValue) -> JsonValue:
    """What was said in one round after the other: a text, or blocks where one of them is told in blocks."""
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return first + second
    return [*_blocks(first), *_blocks(second)]


def _blocks(said: JsonValue) -> list[JsonObject]:
    return [{"type": "text", "text": said}] if isinstance(said, str) else objects(said)


def _arguments(call: JsonObject) -> str:
    return text_of(object_of(call.get("function")).get("arguments"))


def _sent_back(call: JsonObject) -> JsonObject:
    return {**call, "function": {**object_of(call.get("function")), "arguments": sound(_arguments(call))}}


WHOLE: Mapping[Wire, type[WholeChat] | type[WholeMessages] | type[WholeResponses]] = {
    Wire.CHAT: WholeChat,
    Wire.MESSAGES: WholeMessages,
    Wire.RESPONSES: WholeResponses,
}


STREAMS: Mapping[Wire, Callable[[str], Rounds]] = {
    Wire.CHAT: ChatRounds,
    Wire.MESSAGES: MessagesRounds,
    Wire.RESPONSES: ResponsesRounds,
}

"""Our tool in answers that come in one piece: the rounds of each API put together."""

from collections.abc import Mapping
from typing import Protocol

from kimi_proxy.core import jsontext
from kimi_proxy.core.chat import Request, Wire, edit
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.features.recall import chat, messages, responses
from kimi_proxy.features.recall.call import Call, Turn, summed
from kimi_proxy.features.recall.read import object_of, objects, text_of


class WholeRounds(Protocol):
    spent: JsonValue  # what the provider counted for the rounds that are over

    def take(self, body: JsonObject) -> Turn:
        """The calls of a round."""

    def follow_up(self, request: Request, answers: Mapping[str, str]) -> Request:
        """The request that asks again, with the answers to our calls by their ids."""

    def shown(self) -> JsonObject:
        """All rounds as one answer, without our calls."""


class WholeChat:
    def __init__(self, own: str) -> None:
        self._own = own
        self._body: JsonObject = {}
        self._said = ""
        self.spent: JsonValue = None

    def take(self, body: JsonObject) -> Turn:
        self._body = body
        calls = objects(self._message.get("tool_calls"))
        own = [call for call in calls if self._is_own(call)]
        return Turn(
            tuple(Call(text_of(call.get("id")), _arguments(call)) for call in own),
            tuple(text_of(call.get("id")) for call in calls if not self._is_own(call)),
        )

    def follow_up(self, request: Request, answers: Mapping[str, str]) -> Request:
        results = [chat.result(call_id, text) for call_id, text in answers.items()]
        self._said += text_of(self._message.get("content"))
        self.spent = summed(self.spent, self._body.get("usage"))
        return edit.with_items(request, [self._message, *results])

    def shown(self) -> JsonObject:
        message, choice = self._message, self._choice
        others = [call for call in objects(message.get("tool_calls")) if not self._is_own(call)]
        finish = choice.get("finish_reason") if others or not message.get("tool_calls") else "stop"
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        content = {"content": self._said + text_of(message.get("content"))} if self._said else {}
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

    def take(self, body: JsonObject) -> Turn:
        self._body = body
        calls = [block for block in self._content if block.get("type") == "tool_use"]
        own = [block for block in calls if self._is_own(block)]
        return Turn(
            tuple(Call(text_of(c.get("id")), jsontext.encode(c.get("input") or {}).decode()) for c in own),
            tuple(text_of(block.get("id")) for block in calls if not self._is_own(block)),
        )

    def follow_up(self, request: Request, answers: Mapping[str, str]) -> Request:
        results = [messages.result(call_id, text) for call_id, text in answers.items()]
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

    def take(self, body: JsonObject) -> Turn:
        self._body = body
        calls = [item for item in self._output if text_of(item.get("type")).endswith("_call")]
        own = [item for item in calls if self._is_own(item)]
        return Turn(
            tuple(Call(text_of(item.get("call_id")), text_of(item.get("arguments"))) for item in own),
            tuple(text_of(item.get("call_id")) for item in calls if not self._is_own(item)),
        )

    def follow_up(self, request: Request, answers: Mapping[str, str]) -> Request:
        results = [responses.result(call_id, text) for call_id, text in answers.items()]
        items: list[JsonValue] = [*self._output, *results]
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
        return item.get("type") == "function_call" and item.get("name") == self._own


def _arguments(call: JsonObject) -> str:
    return text_of(object_of(call.get("function")).get("arguments"))


WHOLE: Mapping[Wire, type[WholeChat] | type[WholeMessages] | type[WholeResponses]] = {
    Wire.CHAT: WholeChat,
    Wire.MESSAGES: WholeMessages,
    Wire.RESPONSES: WholeResponses,
}

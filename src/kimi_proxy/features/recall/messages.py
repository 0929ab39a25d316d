"""Our tool in Anthropic's messages: a call is a block among blocks, told by its index."""

from collections.abc import Sequence

from kimi_proxy.core import json
from kimi_proxy.core.chat import Request, edit
from kimi_proxy.core.chat.reply import bytes_of, event_of, object_in
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseEvent
from kimi_proxy.features.recall.calls import Call, Turn, index_of, object_of, summed, text_of

# What each kind of delta adds to, in the block that it belongs to.
_GROWS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
_ARGUMENTS = "partial_json"


class MessagesRounds:
    def __init__(self, own: str) -> None:
        self._own = own
        self._is_later = False
        self.spent: JsonValue = None
        self._shown = 0  # blocks that the client has seen begin
        self._begin()

    def _begin(self) -> None:
        self._blocks: dict[int, JsonObject] = {}
        self._arguments: dict[int, str] = {}
        self._places: dict[int, int] = {}  # of shown blocks, for the client
        self._usage: JsonValue = None
        self._is_over = False
        self._held: list[tuple[SseEvent, JsonObject]] = []

    def feed(self, raw: bytes) -> bytes:
        event = event_of(raw)
        told = object_in(event) if event is not None else None
        if event is None or told is None:
            return raw
        match told.get("type"):
            case "message_start":
                self._usage = object_of(told.get("message")).get("usage")
                return b"" if self._is_later else raw
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                return self._block(event, told, raw)
            case "message_delta":
                self._usage = {**object_of(self._usage), **object_of(told.get("usage"))}
                self._is_over = True
                return self._end(event, self._with_usage(told), raw)
            case "message_stop":
                return self._end(event, told, raw)
        return raw

    @property
    def turn(self) -> Turn:
        if not self._is_over:
            return Turn()
        calls = [(index, block) for index, block in self._blocks.items() if block.get("type") == "tool_use"]
        own = (Call(text_of(block.get("id")), self._input(index)) for index, block in calls if self._is_own(block))
        return Turn(tuple(own), tuple(text_of(block.get("id")) for _, block in calls if not self._is_own(block)))

    @property
    def id(self) -> str:
        """Nobody asks for an answer of this API by its id."""
        return ""

    @property
    def renamed(self) -> None:
        """Nor by another."""

    def follow_up(self, request: Request, answers: Sequence[str]) -> Request:
        content = [self._complete(index, block) for index, block in self._blocks.items()]
        said = [block for block in content if block.get("type") != "text" or block.get("text")]
        results = [result(call.id, text) for call, text in zip(self.turn.own, answers, strict=True)]
        self.spent = summed(self.spent, self._usage)
        self._is_later = True
        self._begin()
        turns: list[JsonValue] = [{"role": "assistant", "content": said}, {"role": "user", "content": results}]
        return edit.with_items(request, turns)

    def ending(self) -> bytes:
        is_stop = bool(self.turn.own) and not self.turn.others
        return b"".join(bytes_of(event, _stopped(told) if is_stop else told) for event, told in self._held)

    def _is_own(self, block: JsonObject) -> bool:
        return block.get("type") == "tool_use" and block.get("name") == self._own

    def _block(self, event: SseEvent, told: JsonObject, raw: bytes) -> bytes:
        index = index_of(told.get("index"))
        if index is None:
            return raw
        if told.get("type") == "content_block_start":
            block = self._blocks[index] = object_of(told.get("content_block"))
            if not self._is_own(block):
                self._places[index] = self._shown
                self._shown += 1
        self._grow(index, object_of(told.get("delta")))
        if self._is_own(self._blocks.get(index, {})):
            return b""
        place = self._places.get(index, index)
        return raw if place == index else bytes_of(event, {**told, "index": place})

    def _grow(self, index: int, delta: JsonObject) -> None:
        block = self._blocks.get(index)
        name = _GROWS.get(text_of(delta.get("type")))
        if block is not None and name is not None:
            block[name] = text_of(block.get(name)) + text_of(delta.get(name))
        self._arguments[index] = self._arguments.get(index, "") + text_of(delta.get(_ARGUMENTS))

    def _input(self, index: int) -> str:
        told = self._arguments.get(index) or ""
        return told or json.encode(self._blocks[index].get("input") or {}).decode()

    def _complete(self, index: int, block: JsonObject) -> JsonObject:
        if "input" not in block:
            return block
        try:
            return {**block, "input": json.decode(self._input(index).encode("utf-8", "replace"))}
        except ParseError:
            return {**block, "input": {}}

    def _with_usage(self, told: JsonObject) -> JsonObject:
        return {**told, "usage": summed(self.spent, self._usage)} if self._is_later else told

    def _end(self, event: SseEvent, told: JsonObject, raw: bytes) -> bytes:
        if self.turn.own:
            self._held.append((event, told))
            return b""
        return bytes_of(event, told) if self._is_later else raw


def result(call_id: str, text: str) -> JsonObject:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text}


def _stopped(told: JsonObject) -> JsonObject:
    if told.get("type") != "message_delta":
        return told
    return {**told, "delta": {**object_of(told.get("delta")), "stop_reason": "end_turn"}}

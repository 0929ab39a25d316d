"""Our tool in chat completions: calls stand beside the text, and are told in pieces by their index."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kimi_proxy.core.chat import Request, edit
from kimi_proxy.core.chat.reply import DONE, bytes_of, event_of, object_in
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseEvent
from kimi_proxy.features.recall.calls import Call, Turn, index_of, object_of, objects, sound, summed, text_of

_PIECE = frozenset({"index", "id", "type", "function"})
# What a model thought before it called goes back with the call, under the name that it came by.
_THOUGHTS = ("reasoning_content", "reasoning")


@dataclass(slots=True)
class _Called:
    id: str = ""
    name: str = ""
    arguments: str = ""
    more: JsonObject = field(default_factory=dict)  # what a provider wants to have back, such as a signature


class ChatRounds:
    def __init__(self, own: str) -> None:
        self._own = own
        self._id: JsonValue = None  # of the first round; for the client all rounds are that one
        self._is_later = False
        self.spent: JsonValue = None
        self._begin()

    def _begin(self) -> None:
        self._content = ""
        self._thoughts: dict[str, str] = {}
        self._calls: list[_Called] = []
        self._at: dict[int, _Called] = {}
        self._usage: JsonValue = None
        self._held: list[tuple[SseEvent, JsonObject | None]] = []  # not empty once a round with a call of ours is over

    def feed(self, raw: bytes) -> bytes:
        event = event_of(raw)
        if event is None:
            return raw
        chunk = object_in(event)
        if chunk is None:
            return self._after_all(event, raw)
        if chunk.get("error") and not chunk.get("choices"):
            return raw
        self._id = self._id or chunk.get("id")
        choice = (objects(chunk.get("choices")) or [{}])[0]
        delta = object_of(choice.get("delta"))
        pieces = self._take(delta)
        self._usage = chunk.get("usage") or choice.get("usage") or self._usage
        if not self._has_own and not self._is_later:
            return raw
        return self._rewritten(event, chunk, choice, self._without_own(delta, pieces))

    @property
    def turn(self) -> Turn:
        if not self._held:
            return Turn()
        own = tuple(Call(call.id, call.arguments) for call in self._calls if call.name == self._own)
        return Turn(own, tuple(call.id for call in self._calls if call.name != self._own))

    @property
    def id(self) -> str:
        """Nobody asks for an answer of this API by its id."""
        return ""

    @property
    def renamed(self) -> None:
        """Nor by another."""

    def follow_up(self, request: Request, answers: Sequence[str]) -> Request:
        said: JsonObject = {
            "role": "assistant",
            "content": self._content or None,
            **self._thoughts,
            "tool_calls": [_call(call) for call in self._calls],
        }
        results = [result(call.id, text) for call, text in zip(self._calls, answers, strict=True)]
        self.spent = summed(self.spent, self._usage)
        self._is_later = True
        self._begin()
        return edit.with_items(request, [said, *results])

    def ending(self) -> bytes:
        """Where only ours was called and is not answered any more, there is nothing that the client should do."""
        is_stop = self._has_own and not self.turn.others
        told = (_stopped(chunk) if is_stop and chunk is not None else chunk for _, chunk in self._held)
        return b"".join(
            b"data: " + event.data + b"\n\n" if chunk is None else bytes_of(event, chunk)
            for (event, _), chunk in zip(self._held, told, strict=True)
        )

    @property
    def _has_own(self) -> bool:
        return any(call.name == self._own for call in self._calls)

    def _take(self, delta: JsonObject) -> list[tuple[JsonObject, _Called]]:
        """Add what a chunk says to what was said; gives the pieces of calls in it, each with its call."""
        self._content += text_of(delta.get("content"))
        for name in _THOUGHTS:
            if thought := text_of(delta.get(name)):
                self._thoughts[name] = self._thoughts.get(name, "") + thought
        pieces = [(piece, self._called(piece)) for piece in objects(delta.get("tool_calls"))]
        for piece, call in pieces:
            function = object_of(piece.get("function"))
            name = text_of(function.get("name"))
            call.name += name if name != call.name else ""  # some providers repeat it with every piece
            call.arguments += text_of(function.get("arguments"))
            call.more |= {key: value for key, value in piece.items() if key not in _PIECE}
        return pieces

    def _called(self, piece: JsonObject) -> _Called:
        """The call that a piece belongs to: some providers give every call the same index, or none."""
        index, id = index_of(piece.get("index")), text_of(piece.get("id"))
        known = self._at.get(index or 0)
        is_named = index is None and bool(object_of(piece.get("function")).get("name"))
        if known is None or is_named or (id and known.id and id != known.id):
            known = self._at[index or 0] = _Called()
            self._calls.append(known)
        known.id = known.id or id
        return known

    def _rewritten(self, event: SseEvent, chunk: JsonObject, choice: JsonObject, shown: JsonObject) -> bytes:
        """The chunk without our calls, as a part of the first round; its end is held back until ours is known."""
        chunk, choice, finish = self._as_first(chunk), self._counted(choice), choice.get("finish_reason")
        if self._has_own and (finish or not choice):
            self._held.append((event, _with(chunk, choice, {}, finish)))
            chunk, finish = {**chunk, "usage": None}, None
        if not any(shown.values()) and not finish and not chunk.get("usage"):
            return b""
        return bytes_of(event, _with(chunk, choice, shown, finish))

    def _after_all(self, event: SseEvent, raw: bytes) -> bytes:
        if not self._has_own or event.data != DONE:
            return raw
        self._held.append((event, None))
        return b""

    def _as_first(self, chunk: JsonObject) -> JsonObject:
        if not self._is_later:
            return chunk
        return {**self._counted(chunk), "id": self._id}

    def _counted(self, told: JsonObject) -> JsonObject:
        """With the counts of all rounds, where a chunk or its choice has those of one."""
        return {**told, "usage": summed(self.spent, told["usage"])} if self._is_later and told.get("usage") else told

    def _without_own(self, delta: JsonObject, pieces: Sequence[tuple[JsonObject, _Called]]) -> JsonObject:
        # Whoever puts the pieces together expects the first call to have the first index.
        moved = [{**piece, "index": self._nth(call)} for piece, call in pieces if call.name != self._own]
        hidden = {"tool_calls", "role"} if self._is_later else {"tool_calls"}
        rest = {key: value for key, value in delta.items() if key not in hidden}
        return {**rest, "tool_calls": moved} if moved else rest

    def _nth(self, called: _Called) -> int:
        return [call for call in self._calls if call.name != self._own].index(called)


def result(call_id: str, text: str) -> JsonObject:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _call(call: _Called) -> JsonObject:
    function: JsonObject = {"name": call.name, "arguments": sound(call.arguments)}
    return {"id": call.id, "type": "function", "function": function, **call.more}


def _with(chunk: JsonObject, choice: JsonObject, delta: JsonObject, finish: JsonValue) -> JsonObject:
    return {**chunk, "choices": [{**choice, "delta": delta, "finish_reason": finish}]} if choice else chunk


def _stopped(chunk: JsonObject) -> JsonObject:
    choices = [{**choice, "finish_reason": "stop"} for choice in objects(chunk.get("choices"))]
    return {**chunk, "choices": choices}

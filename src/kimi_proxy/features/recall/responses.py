"""Our tool in OpenAI's responses: a call is an item of the output, told by its index."""

from collections.abc import Iterable, Sequence

from kimi_proxy.core.chat import Request, edit
from kimi_proxy.core.chat.reply import RESPONSE_ENDS, bytes_of, event_of, object_in
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseEvent
from kimi_proxy.features.recall.calls import Call, Turn, index_of, object_of, objects, sound, summed, text_of

_BEGINS = frozenset({"response.created", "response.in_progress", "response.queued"})


class ResponsesRounds:
    def __init__(self, own: str) -> None:
        self._own = own
        self._is_later = False
        self.spent: JsonValue = None
        self._id = ""  # of the first round; for the client all rounds are that one
        self._last_id = ""
        self._said: list[JsonValue] = []  # items of the rounds before that the client has seen
        self._is_moved = False  # something was hidden: what follows has another place for the client
        self._number = -1  # of the last event that it has seen
        self._begin()

    def _begin(self) -> None:
        self._items: dict[int, JsonObject] = {}
        self._usage: JsonValue = None
        self._is_over = False
        self._held: list[tuple[SseEvent, JsonObject]] = []

    def feed(self, raw: bytes) -> bytes:
        event = event_of(raw)
        told = object_in(event) if event is not None else None
        if event is None or told is None:
            return raw
        self._last_id = text_of(object_of(told.get("response")).get("id")) or self._last_id
        self._id = self._id or self._last_id
        kind, index = text_of(told.get("type")), index_of(told.get("output_index"))
        if index is not None and (item := object_of(told.get("item"))):
            self._items[index] = item
        if kind in RESPONSE_ENDS:
            return self._end(event, told, raw)
        if (self._is_later and kind in _BEGINS) or (index is not None and self._is_own(self._items.get(index, {}))):
            self._is_moved = True
            return b""
        return self._moved(event, told, index, raw)

    @property
    def turn(self) -> Turn:
        if not self._is_over:
            return Turn()
        return turn_of(self._items.values(), self._own)

    @property
    def id(self) -> str:
        return self._id

    @property
    def renamed(self) -> tuple[str, str] | None:
        return (self._id, self._last_id) if self._id != self._last_id else None

    def follow_up(self, request: Request, answers: Sequence[str]) -> Request:
        items = [sent_back(item) for item in self._items.values()]
        results = [result(call.id, text) for call, text in zip(self.turn.own, answers, strict=True)]
        self._said += self._others()
        self.spent = summed(self.spent, self._usage)
        self._is_later = True
        self._begin()
        return edit.with_items(request, [*items, *results])

    def ending(self) -> bytes:
        return b"".join(bytes_of(event, self._numbered(told)) for event, told in self._held)

    def _is_own(self, item: JsonObject) -> bool:
        return is_own(item, self._own)

    def _others(self) -> list[JsonObject]:
        return [item for item in self._items.values() if not self._is_own(item)]

    def _moved(self, event: SseEvent, told: JsonObject, index: int | None, raw: bytes) -> bytes:
        """The event in its place among those that the client sees."""
        if not self._is_moved:
            number = index_of(told.get("sequence_number"))
            self._number = self._number if number is None else number
            return raw
        told = self._numbered(told)
        if index is not None:
            before = sum(1 for at, item in self._items.items() if at < index and not self._is_own(item))
            told["output_index"] = len(self._said) + before
        return bytes_of(event, told)

    def _numbered(self, told: JsonObject) -> JsonObject:
        if "sequence_number" not in told:
            return dict(told)
        self._number += 1
        return {**told, "sequence_number": self._number}

    def _end(self, event: SseEvent, told: JsonObject, raw: bytes) -> bytes:
        response = object_of(told.get("response"))
        for index, item in enumerate(objects(response.get("output"))):
            self._items.setdefault(index, item)
        self._usage = response.get("usage")
        self._is_over = True
        if not self._is_moved and not self.turn.own:
            return raw
        usage = summed(self.spent, self._usage) if self._is_later else self._usage
        whole = {**response, "id": self._id, "output": [*self._said, *self._others()], "usage": usage}
        self._held.append((event, {**told, "response": whole}))
        return b""


def is_own(item: JsonObject, own: str) -> bool:
    return item.get("type") == "function_call" and item.get("name") == own


def turn_of(items: Iterable[JsonObject], own: str) -> Turn:
    """The calls among the items of a round. What the provider does by itself, such as a search, has no id to answer."""
    calls = [item for item in items if text_of(item.get("type")).endswith("_call")]
    ours = (Call(text_of(item.get("call_id")), text_of(item.get("arguments"))) for item in calls if is_own(item, own))
    others = (text_of(item.get("call_id")) for item in calls if not is_own(item, own))
    return Turn(tuple(ours), tuple(id for id in others if id))


def sent_back(item: JsonObject) -> JsonObject:
    is_call = item.get("type") == "function_call"
    return {**item, "arguments": sound(text_of(item.get("arguments")))} if is_call else item


def result(call_id: str, text: str) -> JsonObject:
    return {"type": "function_call_output", "call_id": call_id, "output": text}

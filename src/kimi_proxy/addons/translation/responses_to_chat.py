"""OpenAI's responses in front of a provider that speaks chat completions only."""

from collections.abc import Iterable, Sequence

from kimi_proxy.addons.translation.response_items import ResponseItems
from kimi_proxy.addons.translation.response_tools import ResponseTools
from kimi_proxy.core.chat import Wire, read
from kimi_proxy.core.chat.wires.openai_chat import ChatToolCall
from kimi_proxy.core.chat.wires.protocol import Usage
from kimi_proxy.core.errors import UpstreamUnreadable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features import completions as chat
from kimi_proxy.features.completions import (
    SUMMARY,
    ChatAnswer,
    ChatDialect,
    Dropped,
    EventTranslator,
    StreamedBlock,
    Translation,
    refuse,
)

# Every member of a request that is carried; those that are not here are left out, and named.
_CARRIED = frozenset(
    (
        *("model", "input", "instructions", "max_output_tokens", "temperature", "top_p", "stream"),
        *("tools", "tool_choice", "parallel_tool_calls", "text", "reasoning", "include", "prompt_cache_key"),
    )
)
# Without what they name the model could not know what it is asked.
_REFUSED = {
    "previous_response_id": "its provider keeps no answers to go on from, send the whole conversation",
    "conversation": "its provider keeps no conversations, send the whole of it",
    "prompt": "OpenAI's own servers have its text",
    "background": "its provider answers at once or not at all",
}
_AS_ASKED = {"store": False, "truncation": "disabled", "service_tier": "auto", "background": False}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesTranslation(Translation):
    wire = Wire.RESPONSES

    def __init__(self, body: JsonObject, dialect: ChatDialect) -> None:
        """Raise InvalidParams for a field that cannot be carried and must not be left out."""
        dropped = Dropped()
        self._tools = ResponseTools(dropped)
        items = ResponseItems(self._tools, dropped)
        self.request = _request(body, dialect, self._tools, items, dropped)
        self._is_compaction = items.is_compaction
        self.dropped = dropped.names
        self._asked: JsonObject = {
            "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
            "tool_choice": body.get("tool_choice") or "auto",
        }

    def answer(self, body: JsonObject) -> JsonObject:
        answer = ChatAnswer()
        said: list[StreamedBlock] = []
        called: dict[ChatToolCall, StreamedBlock] = {}
        for delta in answer.take_body(body):
            if delta.call is None:
                said.append(StreamedBlock(delta, [delta.text]))
            else:
                called.setdefault(delta.call, StreamedBlock(delta))
        blocks = (*said, *called.values())
        if self._is_compaction:
            return _response(answer, self._asked, "completed", [_compaction(answer, said)])
        output = [_item(answer, self._tools, block, at) for at, block in enumerate(blocks)]
        return _response(answer, self._asked, _status(answer), output)

    def events(self) -> EventTranslator:
        return (_CompactionEvents if self._is_compaction else _ResponseEvents)(self._tools, self._asked)


# Requests


def _request(
    body: JsonObject, dialect: ChatDialect, tools: ResponseTools, items: ResponseItems, dropped: Dropped
) -> JsonObject:
    for name, why in _REFUSED.items():
        if body.get(name):
            raise refuse(name, why)
    asked = (name for name, value in body.items() if value is not None and _AS_ASKED.get(name) != value)
    dropped.all_but(asked, _CARRIED)
    tools.add(read.as_objects(body.get("tools")))
    messages = items.messages(body.get("instructions"), body.get("input"))
    request: JsonObject = {"model": body.get("model"), **_tool_fields(body, tools, dropped), "messages": messages}
    if items.is_compaction and tools.functions:
        request["tool_choice"] = "none"  # the tools stay: without them the prompt cache would not fit
    request |= chat.sampling(body, "max_output_tokens", dialect)
    request |= _cache_key(body, dialect, dropped) | _response_format(body, dropped)
    # What a model thought comes back with every answer, since its provider does not keep it.
    dropped.add(*(f"include.{each}" for each in _texts(body.get("include")) if each != "reasoning.encrypted_content"))
    dropped.add(*(f"reasoning.{name}" for name, value in read.as_object(body.get("reasoning")).items() if value))
    return request | chat.streaming(body, dialect)


def _tool_fields(body: JsonObject, tools: ResponseTools, dropped: Dropped) -> JsonObject:
    choice = tools.choice(body.get("tool_choice") or "auto")
    if not tools.functions:
        dropped.add(*(["tool_choice"] if choice == "required" else []))
        return {}
    chosen: JsonObject = {"tool_choice": choice} if body.get("tool_choice") else {}
    parallel = body.get("parallel_tool_calls")
    side_by_side: JsonObject = {} if parallel is None else {"parallel_tool_calls": parallel}
    return {"tools": tools.functions, **chosen, **side_by_side}


def _cache_key(body: JsonObject, dialect: ChatDialect, dropped: Dropped) -> JsonObject:
    key = body.get("prompt_cache_key")
    if key and not dialect.takes_cache_key:
        dropped.add("prompt_cache_key")
    return {"prompt_cache_key": key} if key and dialect.takes_cache_key else {}


def _response_format(body: JsonObject, dropped: Dropped) -> JsonObject:
    text = read.as_object(body.get("text"))
    dropped.all_but((name for name, value in text.items() if value is not None), ("format",), "text.")
    wanted = read.as_object(text.get("format"))
    match wanted.get("type"):
        case None | "text":
            return {}
        case "json_object":
            return {"response_format": {"type": "json_object"}}
        case "json_schema":
            dropped.all_but(wanted, ("type", "name", "schema", "strict"), "text.format.")
            name = read.as_text(wanted.get("name")) or "answer"
            return {"response_format": chat.json_schema(name, wanted.get("schema"), bool(wanted.get("strict")))}
        case other:
            raise refuse("text.format", f"an answer of type {str(other)[:40]!r}")


def _texts(value: JsonValue) -> Iterable[str]:
    return (each for each in value if isinstance(each, str)) if isinstance(value, list | tuple) else ()


# Answers


def _response(answer: ChatAnswer, asked: JsonObject, status: str, output: Sequence[JsonObject]) -> JsonObject:
    reason = _INCOMPLETE.get(answer.finish) if status == "incomplete" else None
    return {
        "id": _id(answer),
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": answer.model,
        "output": list(output),
        **asked,
        "tools": [],
        "store": False,
        "usage": None if status == "in_progress" or answer.usage == Usage() else _usage(answer.usage),
    }


def _id(answer: ChatAnswer) -> str:
    return answer.id if answer.id.startswith("resp") else f"resp_{answer.id}"


def _status(answer: ChatAnswer) -> str:
    return "incomplete" if answer.finish in _INCOMPLETE else "completed"


def _usage(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _item(
    answer: ChatAnswer, tools: ResponseTools, block: StreamedBlock, index: int, is_whole: bool = True
) -> JsonObject:
    """Return a block as an item; without what it says if that has not come yet."""
    delta = block.first
    id = f"{answer.id}_{index}"
    call = block.first.call
    if call is not None:
        return tools.item(call, answer.call_id(call), id, is_whole)
    parts = [_part(block)] if is_whole else []
    if delta.kind == "thinking":
        # A client may keep this member alone of what a model thought: all of it is in there.
        kept = chat.seal_text(delta.name, block.text) if is_whole else None
        thought: JsonObject = {"type": "reasoning", "id": f"rs_{id}", "summary": [], "content": parts}
        return thought | {"encrypted_content": kept}
    status = "completed" if is_whole else "in_progress"
    return {"type": "message", "id": f"msg_{id}", "status": status, "role": "assistant", "content": parts}


def _compaction(answer: ChatAnswer, blocks: Iterable[StreamedBlock]) -> JsonObject:
    """Return the item that stands for a conversation from now on. Raise UpstreamUnreadable if there is no summary."""
    summary = "".join(block.text for block in blocks if block.first.kind == "text").strip()
    if not summary or answer.finish in _INCOMPLETE:
        raise UpstreamUnreadable("the model returned no summary of the conversation")
    return {"type": "compaction", "id": f"cmp_{answer.id}", "encrypted_content": chat.seal_text(SUMMARY, summary)}


def _part(block: StreamedBlock, is_whole: bool = True) -> JsonObject:
    text = block.text if is_whole else ""
    if block.first.kind == "thinking":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class _ResponseEvents(EventTranslator):
    def __init__(self, tools: ResponseTools, asked: JsonObject) -> None:
        super().__init__()
        self._tools = tools
        self._asked = asked
        self._output: list[JsonObject] = []
        self._number = -1

    def _begin(self) -> bytes:
        begun = _response(self._answer, self._asked, "in_progress", ())
        return self._event("response.created", response=begun) + self._event("response.in_progress", response=begun)

    def _start(self, block: StreamedBlock) -> bytes:
        item = _item(self._answer, self._tools, block, self._index, is_whole=False)
        added = self._event("response.output_item.added", output_index=self._index, item=item)
        if block.first.call is not None:
            return added
        part = _part(block, is_whole=False)
        return added + self._event("response.content_part.added", **self._place(item, 0), part=part)

    def _delta(self, block: StreamedBlock, text: str) -> bytes:
        item = _item(self._answer, self._tools, block, self._index, is_whole=False)
        call = block.first.call
        if call is None:
            kind = "reasoning_text" if block.first.kind == "thinking" else "output_text"
            logged: JsonObject = {} if kind == "reasoning_text" else {"logprobs": []}
            return self._event(f"response.{kind}.delta", **self._place(item, 0), delta=text, **logged)
        if self._tools.tool(call.name).call != "function_call":
            return b""
        return self._event("response.function_call_arguments.delta", **self._place(item), delta=text)

    def _stop(self, block: StreamedBlock) -> bytes:
        item = _item(self._answer, self._tools, block, self._index)
        self._output.append(item)
        done = self._message_events(block, item) if block.first.call is None else self._call_events(item)
        return done + self._event("response.output_item.done", output_index=self._index, item=item)

    def _completion_events(self) -> bytes:
        status = _status(self._answer)
        return self._event(f"response.{status}", response=_response(self._answer, self._asked, status, self._output))

    def _error_event(self, error: JsonObject) -> bytes:
        """Codex reads why an answer failed in this event alone."""
        _, code, message = chat.event_error(error)
        failed = _response(self._answer, self._asked, "failed", self._output)
        failed |= {"error": {"code": code, "message": message}}
        return self._begin_if_needed() + self._event("response.failed", response=failed)

    def _message_events(self, block: StreamedBlock, item: JsonObject) -> bytes:
        kind = "reasoning_text" if block.first.kind == "thinking" else "output_text"
        logged: JsonObject = {} if kind == "reasoning_text" else {"logprobs": []}
        place = self._place(item, 0)
        done = self._event(f"response.{kind}.done", **place, text=block.text, **logged)
        return done + self._event("response.content_part.done", **place, part=_part(block))

    def _call_events(self, item: JsonObject) -> bytes:
        place = self._place(item)
        if item["type"] == "function_call":
            named = {"arguments": item["arguments"], "name": item["name"]}
            return self._event("response.function_call_arguments.done", **place, **named)
        if item["type"] == "custom_tool_call":
            # The text stands in JSON that is not complete before now.
            text = item["input"]
            delta = self._event("response.custom_tool_call_input.delta", **place, delta=text)
            return delta + self._event("response.custom_tool_call_input.done", **place, input=text)
        return b""

    def _place(self, item: JsonObject, content_index: int | None = None) -> JsonObject:
        place: JsonObject = {"item_id": item["id"], "output_index": self._index}
        return place if content_index is None else place | {"content_index": content_index}

    def _event(self, kind: str, **fields: JsonValue) -> bytes:
        self._number += 1
        return chat.event(kind, {"sequence_number": self._number, **fields})


class _CompactionEvents(_ResponseEvents):
    """The client is sent one item, once the summary is complete."""

    def __init__(self, tools: ResponseTools, asked: JsonObject) -> None:
        super().__init__(tools, asked)
        self._parts: list[StreamedBlock] = []

    def _start(self, block: StreamedBlock) -> bytes:
        return b""

    def _delta(self, block: StreamedBlock, text: str) -> bytes:
        return b""

    def _stop(self, block: StreamedBlock) -> bytes:
        self._parts.append(block)
        return b""

    def _completion_events(self) -> bytes:
        item = _compaction(self._answer, self._parts)
        whole = _response(self._answer, self._asked, "completed", [item])
        added = self._event("response.output_item.added", output_index=0, item=item)
        done = self._event("response.output_item.done", output_index=0, item=item)
        return added + done + self._event("response.completed", response=whole)

"""A model that says what it is told to, in the words of each API: as a stream of events, or in one piece."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.json import JsonObject, JsonValue


@dataclass(frozen=True, slots=True)
class Call:
    """`script` is what a tool that takes free text is called with, which Responses alone have."""

    id: str
    name: str
    arguments: JsonObject = field(default_factory=dict)
    script: str = ""
    namespace: str = ""

    @property
    def written(self) -> str:
        return json.dumps(self.arguments, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Says:
    """One answer; `tokens` are those that it read and wrote, as the provider counts."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thought: str = ""
    tokens: tuple[int, int] = (10, 2)
    id: str = "answer-1"


def body(wire: Wire, says: Says) -> bytes:
    match wire:
        case Wire.CHAT:
            return json.dumps(_completion(says)).encode()
        case Wire.MESSAGES:
            return json.dumps(_message(says)).encode()
        case Wire.RESPONSES:
            return json.dumps(_response(says)).encode()
        case Wire.GEMINI:
            return json.dumps(_generated(says, _generated_parts(says), is_last=True)).encode()


def events(wire: Wire, says: Says) -> list[bytes]:
    match wire:
        case Wire.CHAT:
            return [b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in _chunks(says)] + [b"data: [DONE]\n\n"]
        case Wire.MESSAGES:
            return [_event(value) for value in _message_events(says)]
        case Wire.RESPONSES:
            return [_event({**value, "sequence_number": i}) for i, value in enumerate(_response_events(says))]
        case Wire.GEMINI:
            return [b"data: %s\r\n\r\n" % json.dumps(value).encode() for value in _generated_events(says)]


def _event(value: JsonObject) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (str(value["type"]).encode(), json.dumps(value).encode())


# Chat completions


def _usage(says: Says) -> JsonObject:
    read, written = says.tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _completion(says: Says) -> JsonObject:
    calls: list[JsonValue] = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.written}} for c in says.calls
    ]
    message: JsonObject = {"role": "assistant", "content": says.text or None}
    message |= {"tool_calls": calls} if calls else {}
    message |= {"reasoning_content": says.thought} if says.thought else {}
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    head: JsonObject = {"id": says.id, "object": "chat.completion", "created": 1, "model": "m"}
    return {**head, "choices": [choice], "usage": _usage(says)}


def _chunks(says: Says) -> Iterator[JsonObject]:
    def chunk(delta: JsonObject, finish: str | None = None) -> JsonObject:
        choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": finish}
        head: JsonObject = {"id": says.id, "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return {**head, "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    if says.thought:
        yield chunk({"reasoning_content": says.thought})
    for word in _words(says.text):
        yield chunk({"content": word})
    for index, call in enumerate(says.calls):
        function: JsonObject = {"name": call.name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
        for piece in _words(call.written):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if says.calls else "stop")
    yield {
        "id": says.id,
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [],
        "usage": _usage(says),
    }


# Anthropic's messages


def _content(says: Says) -> list[JsonObject]:
    thought: list[JsonObject] = [{"type": "thinking", "thinking": says.thought, "signature": "sig"}]
    text: list[JsonObject] = [{"type": "text", "text": says.text}]
    calls: list[JsonObject] = [
        {"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in says.calls
    ]
    return (thought if says.thought else []) + (text if says.text else []) + calls


def _message(says: Says) -> JsonObject:
    read, written = says.tokens
    return {
        "id": says.id,
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": _content(says),
        "stop_reason": "tool_use" if says.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": read, "output_tokens": written},
    }


def _message_events(says: Says) -> Iterator[JsonObject]:
    whole = _message(says)
    usage: JsonObject = {"input_tokens": says.tokens[0], "output_tokens": 1}
    yield {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None, "usage": usage}}
    for index, block in enumerate(_content(says)):
        yield from _block_events(index, block)
    delta: JsonObject = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": says.tokens[1]}}
    yield {"type": "message_stop"}


def _block_events(index: int, block: JsonObject) -> Iterator[JsonObject]:
    def delta(**fields: JsonValue) -> JsonObject:
        return {"type": "content_block_delta", "index": index, "delta": fields}

    def start(**emptied: JsonValue) -> JsonObject:
        return {"type": "content_block_start", "index": index, "content_block": {**block, **emptied}}

    match block["type"]:
        case "text":
            yield start(text="")
            yield from (delta(type="text_delta", text=word) for word in _words(str(block["text"])))
        case "thinking":
            yield start(thinking="", signature="")
            yield from (delta(type="thinking_delta", thinking=word) for word in _words(str(block["thinking"])))
            yield delta(type="signature_delta", signature="sig")
        case _:
            yield start(input={})
            pieces = _words(json.dumps(block["input"], separators=(",", ":")))
            yield from (delta(type="input_json_delta", partial_json=piece) for piece in pieces)
    yield {"type": "content_block_stop", "index": index}


# Google's generateContent


def _generated_parts(says: Says) -> list[JsonObject]:
    thought: list[JsonObject] = [{"text": says.thought, "thought": True}] if says.thought else []
    text: list[JsonObject] = [{"text": says.text}] if says.text else []
    calls: list[JsonObject] = [
        {"functionCall": {"id": c.id, "name": c.name, "args": c.arguments}, "thoughtSignature": "sig"}
        for c in says.calls
    ]
    return thought + text + calls


def _generated(says: Says, parts: list[JsonObject], is_last: bool) -> JsonObject:
    read, written = says.tokens
    candidate: JsonObject = {"content": {"role": "model", "parts": parts}, "index": 0}
    candidate |= {"finishReason": "STOP"} if is_last else {}
    counts: JsonObject = {"promptTokenCount": read, "candidatesTokenCount": written, "totalTokenCount": read + written}
    return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": "m", "responseId": says.id}


def _generated_events(says: Says) -> Iterator[JsonObject]:
    *before, last = _generated_parts(says) or [{"text": ""}]
    pieces = [*before, last]
    for part in pieces:
        words = _words(str(part["text"])) if "text" in part else []
        for word in words:
            yield _generated(says, [{**part, "text": word}], is_last=False)
        if not words:
            yield _generated(says, [part], is_last=False)
    yield _generated(says, [{"text": ""}], is_last=True)


# OpenAI's responses


def _output(says: Says) -> list[JsonObject]:
    thought: JsonObject = {"id": f"rs_{says.id}", "type": "reasoning", "summary": [], "encrypted_content": says.thought}
    part: JsonObject = {"type": "output_text", "text": says.text, "annotations": []}
    text: JsonObject = {
        "id": f"msg_{says.id}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    return ([thought] if says.thought else []) + ([text] if says.text else []) + [_call_item(c) for c in says.calls]


def _call_item(call: Call) -> JsonObject:
    space: JsonObject = {"namespace": call.namespace} if call.namespace else {}
    head: JsonObject = {"call_id": call.id, "name": call.name, **space, "status": "completed"}
    if call.script:
        return {"id": f"ctc_{call.id}", "type": "custom_tool_call", **head, "input": call.script}
    return {"id": f"fc_{call.id}", "type": "function_call", **head, "arguments": call.written}


def _response(says: Says) -> JsonObject:
    read, written = says.tokens
    counts: JsonObject = {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }
    head: JsonObject = {"id": says.id, "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    return {
        **head,
        "output": _output(says),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": counts,
    }


def _response_events(says: Says) -> Iterator[JsonObject]:
    whole = _response(says)
    begun: JsonObject = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(_output(says)):
        yield from _item_events(index, item)
    yield {"type": "response.completed", "response": whole}


def _item_events(index: int, item: JsonObject) -> Iterator[JsonObject]:
    place: JsonObject = {"output_index": index, "item_id": item["id"]}
    emptied: JsonObject = (
        {"content": []} if item["type"] == "message" else {name: "" for name in ("arguments", "input") if name in item}
    )
    yield {"type": "response.output_item.added", "output_index": index, "item": {**item, **emptied}}
    if item["type"] == "message":
        text = item["content"][0]["text"]  # type: ignore[index,call-overload]
        part: JsonObject = {"type": "output_text", "text": "", "annotations": []}
        yield {"type": "response.content_part.added", **place, "content_index": 0, "part": part}
        for word in _words(str(text)):
            yield {"type": "response.output_text.delta", **place, "content_index": 0, "delta": word, "logprobs": []}
        yield {"type": "response.output_text.done", **place, "content_index": 0, "text": text, "logprobs": []}
        yield {"type": "response.content_part.done", **place, "content_index": 0, "part": {**part, "text": text}}
    if item["type"] == "function_call":
        for piece in _words(str(item["arguments"])):
            yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        yield {
            "type": "response.function_call_arguments.done",
            **place,
            "arguments": item["arguments"],
            "name": item["name"],
        }
    if item["type"] == "custom_tool_call":
        for piece in _words(str(item["input"])):
            yield {"type": "response.custom_tool_call_input.delta", **place, "delta": piece}
        yield {"type": "response.custom_tool_call_input.done", **place, "input": item["input"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _words(text: str) -> list[str]:
    return [text[at : at + 7] for at in range(0, len(text), 7)]

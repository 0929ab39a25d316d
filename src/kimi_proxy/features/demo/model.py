"""The scripted model: what it answers to a request, in the words of OpenAI's and of Anthropic's API."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kimi_proxy.core import jsontext
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.features.demo.script import RECOVER, Script, Spoken

SUMMARY = """\
Goal: mend the VAT of invoices, which is a cent off from three lines on (invoice 1147, ticket 1130).
Done: found vat_of in shop/invoices.py, which rounds each line; it now rounds the sum once. The failing test passes.
Known: booking refuses an invoice that is off by 0.01. Exports and returns call gross_of, which calls vat_of.
Open: the same rounding in returns, a note for the release, invoices of February that were already sent."""

_MARKER = re.compile(r"prune_id=(prn_[0-9a-z]{16}) lignes (\d+)-(\d+)")
RECOVER_LINES = 30
PIECE = 14  # characters in a delta


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens as this provider counts them."""

    read: int
    cached: int
    written: int


def answer(request: Request, script: Script) -> Spoken:
    """What the script has for the newest message that it knows; to a stranger, a summary."""
    spoken = _known(request, script)
    if not any(call.tool == RECOVER for _, call in spoken.calls):
        return spoken
    found = _newest_marker(request) if RECOVER in request.tool_names else None
    if found is None:
        return script.after_call[spoken.calls[0][0]]
    id, call = spoken.calls[0]
    return Spoken(spoken.text, ((id, replace(call, arguments=found)),))


def _known(request: Request, script: Script) -> Spoken:
    for message in reversed(request.messages):
        for part in reversed(message.parts):
            if part.kind == "tool_result" and part.call_id in script.after_call:
                return script.after_call[part.call_id]
            if part.kind == "text" and message.role == "user" and part.text in script.after_text:
                return script.after_text[part.text]
    return Spoken(SUMMARY, ())


def _newest_marker(request: Request) -> JsonObject | None:
    """What the newest marker hides, as far as a model would want to read it at once."""
    for message in reversed(request.messages):
        for part in message.parts:
            if found := _MARKER.search(part.text):
                start, end = int(found[2]), int(found[3])
                return {"id": found[1], "start_line": start, "end_line": min(end, start + RECOVER_LINES)}
    return None


def frames(wire: Wire, spoken: Spoken, counts: Counts, id: str, model: str) -> Iterator[bytes]:
    """The answer as a stream of events."""
    if wire is Wire.MESSAGES:
        for value in _message_events(spoken, counts, id, model):
            yield b"event: %s\ndata: %s\n\n" % (str(value["type"]).encode(), jsontext.encode(value))
        return
    for chunk in _chunks(spoken, counts, id, model):
        yield b"data: %s\n\n" % jsontext.encode(chunk)
    yield b"data: [DONE]\n\n"


def whole(wire: Wire, spoken: Spoken, counts: Counts, id: str, model: str) -> JsonObject:
    """The answer in one piece."""
    if wire is Wire.MESSAGES:
        return _message(spoken, counts, id, model)
    calls: list[JsonValue] = [
        {"id": call_id, "type": "function", "function": {"name": call.tool, "arguments": _written(call.arguments)}}
        for call_id, call in spoken.calls
    ]
    message: JsonObject = {"role": "assistant", "content": spoken.text} | ({"tool_calls": calls} if calls else {})
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": _finish(spoken)}
    head: JsonObject = {"id": id, "object": "chat.completion", "created": 1, "model": model}
    return {**head, "choices": [choice], "usage": _usage(counts)}


def _chunks(spoken: Spoken, counts: Counts, id: str, model: str) -> Iterator[JsonObject]:
    head: JsonObject = {"id": id, "object": "chat.completion.chunk", "created": 1, "model": model}

    def chunk(delta: JsonObject, finish: str | None = None) -> JsonObject:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    yield from (chunk({"content": piece}) for piece in _pieces(spoken.text))
    for index, (call_id, call) in enumerate(spoken.calls):
        begun: JsonObject = {"name": call.tool, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": begun}]})
        for piece in _pieces(_written(call.arguments)):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _finish(spoken))
    yield {**head, "choices": [], "usage": _usage(counts)}


def _usage(counts: Counts) -> JsonObject:
    return {
        "prompt_tokens": counts.read,
        "completion_tokens": counts.written,
        "total_tokens": counts.read + counts.written,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
    }


def _message(spoken: Spoken, counts: Counts, id: str, model: str) -> JsonObject:
    content: list[JsonValue] = [{"type": "text", "text": spoken.text}] if spoken.text else []
    content += [
        {"type": "tool_use", "id": call_id, "name": call.tool, "input": call.arguments}
        for call_id, call in spoken.calls
    ]
    usage: JsonObject = {
        "input_tokens": counts.read - counts.cached,
        "cache_read_input_tokens": counts.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": counts.written,
    }
    head: JsonObject = {"id": id, "type": "message", "role": "assistant", "model": model, "content": content}
    return {**head, "stop_reason": "tool_use" if spoken.calls else "end_turn", "stop_sequence": None, "usage": usage}


def _message_events(spoken: Spoken, counts: Counts, id: str, model: str) -> Iterator[JsonObject]:
    message = _message(spoken, counts, id, model)
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    index = 0
    if spoken.text:
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        for piece in _pieces(spoken.text):
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        yield {"type": "content_block_stop", "index": 0}
        index = 1
    for call_id, call in spoken.calls:
        block: JsonObject = {"type": "tool_use", "id": call_id, "name": call.tool, "input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        delta: JsonObject = {"type": "input_json_delta", "partial_json": _written(call.arguments)}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
        index += 1
    ended: JsonObject = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": counts.written}}
    yield {"type": "message_stop"}


def _finish(spoken: Spoken) -> str:
    return "tool_calls" if spoken.calls else "stop"


def _written(arguments: JsonObject) -> str:
    return jsontext.encode(arguments).decode()


def _pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]

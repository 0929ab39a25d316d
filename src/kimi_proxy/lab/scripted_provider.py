"""A provider for the demo and for tests: a scripted model in two APIs."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import count

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kimi_proxy.api.routing import json_answer
from kimi_proxy.core import chat, json, tokens
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.lab.demo_day import RECOVER, ModelReply, Script

PATHS = {wire.format.paths[0]: wire for wire in (Wire.CHAT, Wire.MESSAGES)}
MESSAGE_TOKENS = 7  # every provider counts a little differently than we do
MAX_CONVERSATIONS = 64
RECOVER_LINES = 30
PIECE_CHARS = 14  # in a delta
SUMMARY = """\
Goal: mend the VAT of invoices, which is a cent off from three lines on (invoice 1147, ticket 1130).
Done: found vat_of in shop/invoices.py, which rounds each line; it now rounds the sum once. The failing test passes.
Known: booking refuses an invoice that is off by 0.01. Exports and returns call gross_of, which calls vat_of.
Open: the same rounding in returns, a note for the release, invoices of February that were already sent."""

_MARKER = re.compile(r"prune_id=(prn_[0-9a-z]{16}) lignes (\d+)-(\d+)")


class ScriptedModel:
    """Answers at the pace of a model; `pause_s` is the time between two pieces."""

    def __init__(self, script: Script, pause_s: float) -> None:
        self.script = script  # may be replaced: each day has its own
        self._pause_s = pause_s
        self._ids = count(1)
        self._read: dict[str, bytes] = {}  # by conversation, the last prompt read: its beginning is cached

    def app(self) -> Starlette:
        return Starlette(routes=[Route(path, self._endpoint(wire), methods=["POST"]) for path, wire in PATHS.items()])

    def _endpoint(self, wire: Wire) -> Callable[[Request], Awaitable[Response]]:
        async def complete(request: Request) -> Response:
            body = chat.parse(await request.body(), wire)
            reply = answer(body, self.script)
            usage = await asyncio.to_thread(self._usage, body, reply)
            id = f"answer-{next(self._ids)}"
            model = body.model
            if not body.is_stream:
                return json_answer(complete_body(wire, reply, usage, id, model))
            return StreamingResponse(self._pace(frames(wire, reply, usage, id, model)), media_type="text/event-stream")

        return complete

    async def _pace(self, frames: Iterator[bytes]) -> AsyncIterator[bytes]:
        for frame in frames:
            await asyncio.sleep(self._pause_s)
            yield frame

    def _usage(self, body: chat.Request, reply: ModelReply) -> Usage:
        parts = [part for message in body.messages for part in message.parts]
        texts = [part.text for part in (*parts, *body.apart)]
        texts.append(bytes(body.members.get("tools", b"")).decode())
        read = sum(map(tokens.count, texts)) + MESSAGE_TOKENS * len(body.messages)
        written = tokens.count(reply.text) + 20 * len(reply.calls)
        return Usage(read, max(1, written), round(read * self._cached_share(body)))

    def _cached_share(self, body: chat.Request) -> float:
        """Return the share of the conversation that begins as it did the last time."""
        place = next((part.text for message in body.messages for part in message.parts if message.role == "user"), "")
        before = self._read.get(place, b"")
        now = body.body
        self._read[place] = now
        if len(self._read) > MAX_CONVERSATIONS:
            self._read.pop(next(iter(self._read)))
        same = next(
            (at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
        )
        return same / len(now)


def answer(request: chat.Request, script: Script) -> ModelReply:
    """Return the scripted answer to the newest known message; otherwise a summary."""
    reply = _scripted_reply(request, script)
    if not any(call.tool == RECOVER for _, call in reply.calls):
        return reply
    id, call = reply.calls[0]
    hidden = _newest_hidden(request) if RECOVER in request.tool_names else None
    if hidden is None:
        return script.after_call[id]
    return ModelReply(reply.text, ((id, replace(call, arguments=hidden)),))


def _scripted_reply(request: chat.Request, script: Script) -> ModelReply:
    for message in reversed(request.messages):
        for part in reversed(message.parts):
            if part.kind == "tool_result" and part.call_id in script.after_call:
                return script.after_call[part.call_id]
            if part.kind == "text" and message.role == "user" and part.text in script.after_text:
                return script.after_text[part.text]
    return ModelReply(SUMMARY, ())


def _newest_hidden(request: chat.Request) -> JsonObject | None:
    """Return the range hidden by the newest marker, up to the length that a model would read at once."""
    for message in reversed(request.messages):
        for part in message.parts:
            if found := _MARKER.search(part.text):
                start = int(found[2])
                end = int(found[3])
                return {"id": found[1], "start_line": start, "end_line": min(end, start + RECOVER_LINES)}
    return None


def frames(wire: Wire, reply: ModelReply, usage: Usage, id: str, model: str) -> Iterator[bytes]:
    """Yield the answer as a stream of events."""
    if wire is Wire.MESSAGES:
        for value in _message_events(reply, usage, id, model):
            yield b"event: %s\ndata: %s\n\n" % (str(value["type"]).encode(), json.encode(value))
        return
    for chunk in _chunks(reply, usage, id, model):
        yield b"data: %s\n\n" % json.encode(chunk)
    yield b"data: [DONE]\n\n"


def complete_body(wire: Wire, reply: ModelReply, usage: Usage, id: str, model: str) -> JsonObject:
    """Return the answer in one piece."""
    return _message(reply, usage, id, model) if wire is Wire.MESSAGES else _completion(reply, usage, id, model)


def _completion(reply: ModelReply, usage: Usage, id: str, model: str) -> JsonObject:
    calls: list[JsonValue] = [
        {"id": call_id, "type": "function", "function": {"name": call.tool, "arguments": _written(call.arguments)}}
        for call_id, call in reply.calls
    ]
    message: JsonObject = {"role": "assistant", "content": reply.text} | ({"tool_calls": calls} if calls else {})
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    head: JsonObject = {"id": id, "object": "chat.completion", "created": 1, "model": model}
    return {**head, "choices": [choice], "usage": _completion_usage(usage)}


def _chunks(reply: ModelReply, usage: Usage, id: str, model: str) -> Iterator[JsonObject]:
    head: JsonObject = {"id": id, "object": "chat.completion.chunk", "created": 1, "model": model}

    def chunk(delta: JsonObject, finish: str | None = None) -> JsonObject:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    yield from (chunk({"content": piece}) for piece in _pieces(reply.text))
    for index, (call_id, call) in enumerate(reply.calls):
        begun: JsonObject = {"name": call.tool, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": begun}]})
        for piece in _pieces(_written(call.arguments)):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _finish(reply))
    yield {**head, "choices": [], "usage": _completion_usage(usage)}


def _completion_usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _finish(reply: ModelReply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _message(reply: ModelReply, usage: Usage, id: str, model: str) -> JsonObject:
    content: list[JsonValue] = [{"type": "text", "text": reply.text}] if reply.text else []
    content += [
        {"type": "tool_use", "id": call_id, "name": call.tool, "input": call.arguments} for call_id, call in reply.calls
    ]
    counts: JsonObject = {
        "input_tokens": usage.input_tokens - usage.cached_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.output_tokens,
    }
    head: JsonObject = {"id": id, "type": "message", "role": "assistant", "model": model, "content": content}
    return {**head, "stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None, "usage": counts}


def _message_events(reply: ModelReply, usage: Usage, id: str, model: str) -> Iterator[JsonObject]:
    message = _message(reply, usage, id, model)
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    blocks: list[tuple[JsonObject, str, list[str]]] = []
    if reply.text:
        blocks.append(({"type": "text", "text": ""}, "text", _pieces(reply.text)))
    for call_id, call in reply.calls:
        block: JsonObject = {"type": "tool_use", "id": call_id, "name": call.tool, "input": {}}
        blocks.append((block, "partial_json", [_written(call.arguments)]))
    for index, (block, member, pieces) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for piece in pieces:
            delta: JsonObject = {"type": "text_delta" if member == "text" else "input_json_delta", member: piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended: JsonObject = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": usage.output_tokens}}
    yield {"type": "message_stop"}


def _written(arguments: JsonObject) -> str:
    return json.encode(arguments).decode()


def _pieces(text: str) -> list[str]:
    return [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]

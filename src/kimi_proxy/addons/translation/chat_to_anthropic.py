"""Chat completions in front of a provider that speaks Anthropic's messages only."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from kimi_proxy.core import json
from kimi_proxy.core.chat import Wire, read
from kimi_proxy.core.chat.wires.protocol import DONE, Usage
from kimi_proxy.core.errors import InvalidParams, ParseError, UpstreamDisconnected, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.lines import encode_text
from kimi_proxy.core.sse import SseParser
from kimi_proxy.features import completions as chat
from kimi_proxy.features.completions import MAX_EVENT_BYTES, ChatDialect, Dropped, Translation

DEFAULT_MAX_TOKENS = 8192  # a limit is required there; every model since Claude 3.5 takes this one

_CARRIED = frozenset(
    (
        *("model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "stream"),
        *("stream_options", "tools", "tool_choice", "parallel_tool_calls", "response_format", "user", "n"),
    )
)
_FINISHES = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_MARK: JsonObject = {"cache_control": {"type": "ephemeral"}}  # without one, nothing would be read from the cache
_NO_SCHEMA: JsonObject = {"type": "object", "properties": {}}


def _refuse(field: str, what: str) -> InvalidParams:
    return InvalidParams(field, f"{what}: this model's provider speaks Anthropic's messages, which cannot carry it")


class ChatTranslation(Translation):
    wire = Wire.CHAT

    def __init__(self, body: JsonObject, dialect: ChatDialect) -> None:
        """Raise InvalidParams for a field that cannot be carried and must not be left out."""
        dropped = Dropped()
        self.request = _request(body, dropped)
        self.dropped = dropped.names
        self._shows_usage = bool(read.as_object(body.get("stream_options")).get("include_usage"))

    def answer(self, body: JsonObject) -> JsonObject:
        if body.get("type") != "message":
            raise UpstreamUnreadable("the provider's response is not a message")
        said = list[str]()
        thought = list[str]()
        calls = list[JsonObject]()
        for block in read.as_objects(body.get("content")):
            match block.get("type"):
                case "text":
                    said.append(read.as_text(block.get("text")))
                case "thinking":
                    thought.append(read.as_text(block.get("thinking")))
                case "tool_use":
                    function = chat.function(read.as_text(block.get("name")), block.get("input"))
                    calls.append({"id": block.get("id"), "type": "function", "function": function})
        message: JsonObject = {"role": "assistant", "content": "".join(said) or None}
        message |= {"reasoning_content": "".join(thought)} if thought else {}
        message |= {"tool_calls": calls} if calls else {}
        choice: JsonObject = {"index": 0, "message": message, "finish_reason": _finish(body.get("stop_reason"))}
        head: JsonObject = {"id": body.get("id"), "object": "chat.completion", "created": 0, "model": body.get("model")}
        return {**head, "choices": [choice], "usage": _usage(Wire.MESSAGES.format.usage(body.get("usage")) or Usage())}

    def events(self) -> "ChatEvents":
        return ChatEvents(self._shows_usage)


# Requests


def _request(body: JsonObject, dropped: Dropped) -> JsonObject:
    if body.get("n") not in (None, 1):
        raise _refuse("n", "several answers to one request")
    dropped.all_but((name for name, value in body.items() if value is not None), _CARRIED)
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_MAX_TOKENS
    request: JsonObject = {"model": body.get("model"), "max_tokens": limit, **_tools(body, dropped)}
    system, messages = _messages(body.get("messages"), dropped)
    if system:
        request["system"] = [*system[:-1], {**system[-1], **_MARK}]
    request["messages"] = _mark_end(messages)
    for name in ("temperature", "top_p"):
        value = body.get(name)
        if isinstance(value, int | float):
            request[name] = min(value, 1)  # it may be 2 there, and 1 here
    if stop := body.get("stop"):
        request["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if body.get("user"):
        request["metadata"] = {"user_id": body["user"]}
    return request | _format(body, dropped) | ({"stream": True} if body.get("stream") else {})


def _format(body: JsonObject, dropped: Dropped) -> JsonObject:
    wanted = read.as_object(body.get("response_format"))
    match wanted.get("type"):
        case None | "text":
            return {}
        case "json_schema":
            schema = read.as_object(wanted.get("json_schema")).get("schema")
            return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    dropped.add("response_format")
    return {}


def _tools(body: JsonObject, dropped: Dropped) -> JsonObject:
    tools: list[JsonObject] = []
    for tool in read.as_objects(body.get("tools")):
        if tool.get("type") != "function":
            raise _refuse("tools", f"a tool of type {str(tool.get('type'))[:40]!r}")
        function = read.as_object(tool.get("function"))
        dropped.all_but(function, ("name", "description", "parameters", "strict"), "tools.")
        described: JsonObject = {"description": function["description"]} if function.get("description") else {}
        schema = function.get("parameters") or _NO_SCHEMA
        tools.append({"name": function.get("name"), **described, "input_schema": schema})
    if not tools:
        return {}
    choice = _choice(body.get("tool_choice"))
    if body.get("parallel_tool_calls") is False:
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    return {"tools": tools, **({"tool_choice": choice} if choice else {})}


def _choice(choice: JsonValue) -> JsonObject:
    match choice:
        case None:
            return {}
        case str() if choice in _CHOICES:
            return {"type": _CHOICES[choice]}
        case {"type": "function", "function": {"name": str(name)}}:
            return {"type": "tool", "name": name}
    raise _refuse("tool_choice", f"the choice {str(choice)[:40]!r}")


def _messages(messages: JsonValue, dropped: Dropped) -> tuple[list[JsonObject], list[JsonObject]]:
    """Return what the system says first, and the messages, in which roles take turns."""
    system: list[JsonObject] = []
    turns: list[tuple[str, list[JsonObject]]] = []
    for at, message in enumerate(read.as_objects(messages)):
        where = f"messages.{at}"
        role = read.as_text(message.get("role"))
        blocks = list(_blocks(message, role, where, dropped))
        if role in ("system", "developer") and not turns:
            system += blocks
            continue
        speaker = "assistant" if role == "assistant" else "user"
        if blocks and turns and turns[-1][0] == speaker:
            turns[-1][1].extend(blocks)
        elif blocks:
            turns.append((speaker, blocks))
    return system, [{"role": speaker, "content": blocks} for speaker, blocks in turns]


def _blocks(message: JsonObject, role: str, where: str, dropped: Dropped) -> Iterator[JsonObject]:
    content = message.get("content")
    parts = [chat.text_part(content)] if isinstance(content, str) else read.as_objects(content)
    said = [block for part in parts if (block := _block(part, where))]
    match role:
        case "tool":
            yield {"type": "tool_result", "tool_use_id": _tool_id(message.get("tool_call_id")), "content": said}
        case "assistant":
            dropped.all_but(message, ("role", "content", "tool_calls", "name", "refusal"), "messages.")
            yield from said
            for call in read.as_objects(message.get("tool_calls")):
                function = read.as_object(call.get("function"))
                given = _arguments(read.as_text(function.get("arguments")))
                yield {"type": "tool_use", "id": _tool_id(call.get("id")), "name": function.get("name"), "input": given}
        case "user" | "system" | "developer":
            yield from said
        case _:
            raise _refuse(f"{where}.role", f"the role {role[:40]!r}")


_TOOL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)


def _tool_id(given: JsonValue) -> str:
    """Return the id of a tool call as Anthropic takes it; another spelling gets the same one in every request."""
    text = given if isinstance(given, str) else json.encode(given).decode()
    return text if _TOOL_ID.fullmatch(text) else f"toolu_{sha256(encode_text(text)).hexdigest()[:24]}"


def _block(part: JsonObject, where: str) -> JsonObject | None:
    """Return a part of a message; None for a text that is empty, which is refused there."""
    match part:
        case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            return {"type": "text", "text": text} if text.strip() else None
        case {"type": "refusal", "refusal": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return {"type": "image", "source": _source(url)}
        case {"type": "file", "file": {"file_data": str(data)}}:
            return {"type": "document", "source": _source(data)}
    raise _refuse(f"{where}.content", f"a part of type {str(part.get('type'))[:40]!r}")


def _source(url: str) -> JsonObject:
    """Return where an image or a file is: in the address itself, or behind it."""
    head, comma, data = url.partition(",")
    if not url.startswith("data:") or not comma:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": head.removeprefix("data:").partition(";")[0], "data": data}


def _arguments(written: str) -> JsonObject:
    """Return the arguments of an earlier call; a model may have written what is no JSON object."""
    try:
        value = json.decode(written.encode("utf-8", "surrogatepass") or b"{}")
    except ParseError:
        return {}
    return dict(value) if isinstance(value, Mapping) else {}


def _mark_end(messages: list[JsonObject]) -> list[JsonObject]:
    """Return the messages with a mark at their end, up to which the provider caches."""
    if not messages:
        return []
    *before, last = messages
    *blocks, end = read.as_objects(last.get("content"))
    return [*before, {**last, "content": [*blocks, {**end, **_MARK}]}]


# Answers


def _finish(reason: JsonValue) -> str:
    return _FINISHES.get(read.as_text(reason), "stop")


def _usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


@dataclass(slots=True)
class ChatEvents:
    """Is fed the bytes of a stream of messages in slices of any size; returns the bytes of a chat stream."""

    shows_usage: bool
    _parser: SseParser = field(default_factory=SseParser)
    _head: JsonObject = field(default_factory=dict)
    _usage: Usage = field(default_factory=Usage)
    _finish: str = ""
    _calls: dict[int, int] = field(default_factory=dict)  # places of calls, by those of their blocks
    _is_over: bool = False

    def feed(self, piece: bytes) -> bytes:
        """Return what the client is sent upon `piece`. Raise UpstreamUnreadable for an event without an end."""
        shown = b"".join(self._event(event.data) for event in self._parser.feed(piece) if event.data)
        if self._parser.waiting_bytes > MAX_EVENT_BYTES:
            raise UpstreamUnreadable("the provider sent an event of more than 16 MiB")
        return shown

    def end(self) -> bytes:
        """Return the end of the stream. Raise UpstreamDisconnected if the answer is not complete."""
        shown = self.feed(b"\n\n")
        if not self._is_over:
            raise UpstreamDisconnected("the provider ended its response before it was complete")
        return shown

    def _event(self, data: bytes) -> bytes:
        try:
            event = read.as_object(json.decode(data))
        except ParseError:
            return b""
        if self._is_over:
            return b""
        match event.get("type"):
            case "message_start":
                return self._begin(read.as_object(event.get("message")))
            case "content_block_start":
                return self._start(event, read.as_object(event.get("content_block")))
            case "content_block_delta":
                return self._delta(event, read.as_object(event.get("delta")))
            case "message_delta":
                self._finish = _finish(read.as_object(event.get("delta")).get("stop_reason"))
                self._count(event.get("usage"))
            case "message_stop":
                return self._completion_events()
            case "error":
                self._is_over = True
                error = read.as_object(event.get("error"))
                status, code, message = chat.event_error({**error, "code": error.get("type")})
                return Wire.CHAT.format.error_event(status, code, message)
        return b""

    def _begin(self, message: JsonObject) -> bytes:
        head: JsonObject = {"id": message.get("id"), "object": "chat.completion.chunk", "created": 0}
        self._head = head | {"model": message.get("model")}
        self._count(message.get("usage"))
        return self._chunk({"role": "assistant", "content": ""})

    def _start(self, event: JsonObject, block: JsonObject) -> bytes:
        if block.get("type") != "tool_use":
            return b""
        at = self._calls[read.as_index(event.get("index")) or 0] = len(self._calls)
        function: JsonObject = {"name": block.get("name"), "arguments": ""}
        call: JsonObject = {"index": at, "id": block.get("id"), "type": "function", "function": function}
        return self._chunk({"tool_calls": [call]})

    def _delta(self, event: JsonObject, delta: JsonObject) -> bytes:
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                return self._chunk({"content": text})
            case {"type": "thinking_delta", "thinking": str(text)}:
                return self._chunk({"reasoning_content": text})
            case {"type": "input_json_delta", "partial_json": str(text)}:
                at = self._calls.get(read.as_index(event.get("index")) or 0, 0)
                return self._chunk({"tool_calls": [{"index": at, "function": {"arguments": text}}]})
        return b""

    def _completion_events(self) -> bytes:
        self._is_over = True
        counted = {**self._head, "choices": [], "usage": _usage(self._usage)}
        usage = b"data: " + json.encode(counted) + b"\n\n" if self.shows_usage else b""
        return self._chunk({}, self._finish or "stop") + usage + b"data: " + DONE + b"\n\n"

    def _chunk(self, delta: JsonObject, finish: str | None = None) -> bytes:
        choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: " + json.encode({**self._head, "choices": [choice]}) + b"\n\n"

    def _count(self, usage: JsonValue) -> None:
        if counted := Wire.MESSAGES.format.usage(usage):
            self._usage = self._usage.merge(counted)

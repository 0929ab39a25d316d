"""Anthropic's messages in front of a provider that speaks chat completions only."""

from collections.abc import Iterator, Sequence

from kimi_proxy.core.chat import Wire, read
from kimi_proxy.core.chat.wires.openai_chat import ChatToolCall
from kimi_proxy.core.chat.wires.protocol import Usage
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features import completions as chat
from kimi_proxy.features.completions import (
    THOUGHT_MARK,
    ChatAnswer,
    ChatDelta,
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
        *("model", "messages", "system", "max_tokens", "temperature", "top_p", "stop_sequences", "stream"),
        *("tools", "tool_choice", "output_config", "output_format"),
    )
)
_REFUSED = ("mcp_servers", "container")  # without them the model could not do what it is asked for
_TOOL = frozenset({"type", "name", "description", "input_schema", "strict"})
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_FINISHES = {
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_DELTAS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}


class MessagesTranslation(Translation):
    wire = Wire.MESSAGES

    def __init__(self, body: JsonObject, dialect: ChatDialect) -> None:
        """Raise InvalidParams for a field that cannot be carried and must not be left out."""
        dropped = Dropped()
        self.request = _request(body, dialect, dropped)
        self.dropped = dropped.names

    def answer(self, body: JsonObject) -> JsonObject:
        answer = ChatAnswer()
        blocks: list[JsonObject] = []
        calls: dict[ChatToolCall, None] = {}
        for delta in answer.take_body(body):
            if delta.call is None:
                blocks.append(_block(delta) | {_DELTAS[delta.kind][1]: delta.text} | _signature(delta))
            else:
                calls[delta.call] = None
        blocks += [_tool_use(answer, call) | {"input": chat.arguments_of(call)} for call in calls]
        return _message(answer) | {"content": blocks, **_ending(answer), "usage": _usage(answer.usage)}

    def events(self) -> EventTranslator:
        return _MessageEvents()


# Requests


def _request(body: JsonObject, dialect: ChatDialect, dropped: Dropped) -> JsonObject:
    for name in _REFUSED:
        if body.get(name):
            raise refuse(name, "it runs on Anthropic's own servers")
    dropped.all_but((name for name, value in body.items() if value is not None), (*_CARRIED, *_REFUSED))
    request: JsonObject = {"model": body.get("model")}
    request |= _tools(body, dropped)
    request["messages"] = [*_system(body.get("system"), dropped), *_messages(body.get("messages"), dropped)]
    request |= chat.sampling(body, "max_tokens", dialect)
    if body.get("stop_sequences"):
        request["stop"] = body["stop_sequences"]
    return request | _response_format(body, dropped) | chat.streaming(body, dialect)


def _response_format(body: JsonObject, dropped: Dropped) -> JsonObject:
    config = read.as_object(body.get("output_config"))
    dropped.all_but(config, ("format",), "output_config.")
    wanted = read.as_object(config.get("format") or body.get("output_format"))
    if not wanted:
        return {}
    if wanted.get("type") != "json_schema":
        raise refuse("output_config.format", f"an answer of type {str(wanted.get('type'))[:40]!r}")
    return {"response_format": chat.json_schema("answer", wanted.get("schema"), strict=True)}


def _tools(body: JsonObject, dropped: Dropped) -> JsonObject:
    tools = read.as_objects(body.get("tools"))
    for tool in tools:
        # Claude Code offers such a tool only where the request is about it: without it, the model would invent results.
        if tool.get("type") not in (None, "custom"):
            kind = read.as_text(tool.get("type"))[:60]
            raise refuse("tools", f"{kind} runs on Anthropic's own servers, or only its models know it")
    if not tools:
        return {}
    return {"tools": [_tool(tool, dropped) for tool in tools], **_tool_choice(body, dropped)}


def _tool(tool: JsonObject, dropped: Dropped) -> JsonObject:
    dropped.all_but(tool, _TOOL, "tools.")
    described = {"description": tool["description"]} if tool.get("description") else {}
    strict = {"strict": tool["strict"]} if tool.get("strict") else {}
    schema = tool.get("input_schema") or {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": tool.get("name"), **described, "parameters": schema, **strict}}


def _tool_choice(body: JsonObject, dropped: Dropped) -> JsonObject:
    choice = read.as_object(body.get("tool_choice"))
    if not choice:
        return {}
    dropped.all_but(choice, ("type", "name", "disable_parallel_tool_use"), "tool_choice.")
    alone: JsonObject = {"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") else {}
    kind = read.as_text(choice.get("type"))
    if kind == "tool":
        return {"tool_choice": {"type": "function", "function": {"name": choice.get("name")}}, **alone}
    if kind not in _CHOICES:
        raise refuse("tool_choice", f"the choice {kind[:40]!r}")
    return {"tool_choice": _CHOICES[kind], **alone}


def _system(system: JsonValue, dropped: Dropped) -> list[JsonObject]:
    if not system:
        return []
    parts = [_part(block, "system", dropped) for block in _blocks(system)]
    return [{"role": "system", "content": chat.content(parts)}]


def _messages(messages: JsonValue, dropped: Dropped) -> Iterator[JsonObject]:
    for at, message in enumerate(read.as_objects(messages)):
        where = f"messages.{at}.content"
        blocks = _blocks(message.get("content"))
        match message.get("role"):
            case "assistant":
                yield _assistant_message(blocks, where, dropped)
            case "user":
                yield from _user_messages(blocks, where, dropped)
            case "system":
                parts = [_part(block, where, dropped) for block in blocks]
                yield {"role": "system", "content": chat.content(parts)}
            case other:
                raise InvalidParams(f"messages.{at}.role", f"{str(other)[:40]!r} is not a role")


def _user_messages(blocks: Sequence[JsonObject], where: str, dropped: Dropped) -> Iterator[JsonObject]:
    """Results are separate messages and come first, because they must follow their calls.

    A result becomes a text; its images go into the user message after it.
    """
    parts: list[JsonObject] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            inner = [_part(each, where, dropped) for each in _blocks(block.get("content"))]
            dropped.all_but(block, ("type", "tool_use_id", "content"), "messages.tool_result.")
            texts = [part for part in inner if part.get("type") == "text"]
            yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": chat.content(texts)}
            parts += [part for part in inner if part.get("type") != "text"]
        else:
            parts.append(_part(block, where, dropped))
    if parts:
        yield {"role": "user", "content": chat.content(parts)}


def _assistant_message(blocks: Sequence[JsonObject], where: str, dropped: Dropped) -> JsonObject:
    texts: list[JsonObject] = []
    calls: list[JsonObject] = []
    thoughts: dict[str, str] = {}
    for block in blocks:
        match block.get("type"):
            case "tool_use":
                dropped.all_but(block, ("type", "id", "name", "input"), "messages.tool_use.")
                called = chat.function(read.as_text(block.get("name")), block.get("input"))
                calls.append({"id": block.get("id"), "type": "function", "function": called})
            case "thinking" if name := chat.is_our_thought(block.get("signature")):
                thoughts[name] = thoughts.get(name, "") + read.as_text(block.get("thinking"))
            case "thinking" | "redacted_thinking":
                dropped.add("messages.thinking")  # only Anthropic's models can read what is signed
            case _:
                texts.append(_part(block, where, dropped))
    text = chat.content(texts) if texts else None
    return {"role": "assistant", "content": text, **thoughts, **({"tool_calls": calls} if calls else {})}


def _part(block: JsonObject, where: str, dropped: Dropped) -> JsonObject:
    match block:
        case {"type": "text", "text": str(text)}:
            dropped.all_but(block, ("type", "text"), "messages.text.")
            return chat.text_part(text)
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            dropped.all_but(block, ("type", "source"), "messages.image.")
            return chat.image_part(f"data:{kind};base64,{data}")
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            dropped.all_but(block, ("type", "source"), "messages.image.")
            return chat.image_part(url)
        case {"type": "document", "source": {"type": "text", "data": str(text)}}:
            dropped.all_but(block, ("type", "source"), "messages.document.")
            return chat.text_part(text)
        case {"type": "document", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            dropped.all_but(block, ("type", "source", "title"), "messages.document.")
            name = read.as_text(block.get("title")) or "document.pdf"
            return {"type": "file", "file": {"filename": name, "file_data": f"data:{kind};base64,{data}"}}
        case {"type": "tool_reference", "tool_name": str(name)}:  # all tools are offered from the beginning
            return chat.text_part(f"tool_reference: {name}")
    source = read.as_text(read.as_object(block.get("source")).get("type"))
    kind = read.as_text(block.get("type")) + (f" of source {source}" if source else "")
    raise refuse(where, f"a block of type {kind[:80]!r}")


def _blocks(content: JsonValue) -> list[JsonObject]:
    return [chat.text_part(content)] if isinstance(content, str) else read.as_objects(content)


# Answers


def _message(answer: ChatAnswer) -> JsonObject:
    return {"id": answer.id or "msg", "type": "message", "role": "assistant", "model": answer.model}


def _ending(answer: ChatAnswer) -> JsonObject:
    if answer.stop_sequence and answer.finish == "stop":
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop_sequence}
    # Some providers end with "stop" after a call.
    reason = _FINISHES.get(answer.finish, "tool_use" if answer.has_calls else "end_turn")
    return {"stop_reason": reason, "stop_sequence": None}


def _usage(usage: Usage) -> JsonObject:
    """Here `input_tokens` are only those that came after the cache."""
    return {
        "input_tokens": max(0, usage.input_tokens - usage.cached_tokens),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }


def _block(delta: ChatDelta) -> JsonObject:
    """Return a block of text or thought, still empty."""
    if delta.kind == "thinking":
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


def _signature(delta: ChatDelta) -> JsonObject:
    return {"signature": f"{THOUGHT_MARK}{delta.name}"} if delta.kind == "thinking" else {}


def _tool_use(answer: ChatAnswer, call: ChatToolCall) -> JsonObject:
    return {"type": "tool_use", "id": answer.call_id(call), "name": call.name, "input": {}}


class _MessageEvents(EventTranslator):
    def _begin(self) -> bytes:
        empty: JsonObject = {"content": [], "stop_reason": None, "stop_sequence": None}
        return _event("message_start", message=_message(self._answer) | empty | {"usage": _usage(self._answer.usage)})

    def _start(self, block: StreamedBlock) -> bytes:
        call = block.first.call
        empty = _block(block.first) if call is None else _tool_use(self._answer, call)
        return _event("content_block_start", index=self._index, content_block=empty)

    def _delta(self, block: StreamedBlock, text: str) -> bytes:
        kind, name = ("input_json_delta", "partial_json") if block.first.call else _DELTAS[block.first.kind]
        return _event("content_block_delta", index=self._index, delta={"type": kind, name: text})

    def _stop(self, block: StreamedBlock) -> bytes:
        signature = _signature(block.first)
        # Claude Code keeps a thought only if its signature comes as Anthropic sends it: at the end.
        signed: JsonObject = {"type": "signature_delta", **signature}
        last = _event("content_block_delta", index=self._index, delta=signed) if signature else b""
        return last + _event("content_block_stop", index=self._index)

    def _completion_events(self) -> bytes:
        ending = {"delta": _ending(self._answer), "usage": _usage(self._answer.usage)}
        return _event("message_delta", **ending) + _event("message_stop")

    def _error_event(self, error: JsonObject) -> bytes:
        return Wire.MESSAGES.format.error_event(*chat.event_error(error))


def _event(kind: str, **fields: JsonValue) -> bytes:
    return chat.event(kind, fields)

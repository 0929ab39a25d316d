"""Anthropic's messages: a separate `system`, content in blocks, tool results inside user messages."""

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from msgspec import Raw

from kimi_proxy.core import json
from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.read import (
    Content,
    Edit,
    Fragment,
    JsonBody,
    Kind,
    Part,
    RawObject,
    Role,
    role_of,
    text_block,
)
from kimi_proxy.core.chat.wires.calls import CallPlace, CallStream, Unwrap, object_or_empty
from kimi_proxy.core.chat.wires.protocol import (
    ITEM,
    ROOT,
    CacheMark,
    Place,
    RecallBody,
    RecallRounds,
    RecallStream,
    ReplyFacts,
    Usage,
    WireFormat,
    count,
    event_bytes,
)
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseEvent

_BLOCK: Place = ("messages", ITEM, "content", ITEM)
_TOOL_USES = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_RESULT_KINDS: dict[str, Kind] = {"text": "text", "image": "image"}
# What each kind of delta adds to, in the block that it belongs to.
_GROWS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class _MessagesRounds(RecallRounds):
    @property
    @abstractmethod
    def _content(self) -> Sequence[tuple[JsonObject, str]]:
        """The blocks of this round, each with the arguments of a call as the model wrote them."""

    def _calls(self) -> Iterator[tuple[str, str, str]]:
        for block, arguments in self._content:
            if block.get("type") == "tool_use":
                yield read.as_text(block.get("id")), read.as_text(block.get("name")), arguments

    def _said_items(self) -> list[JsonObject]:
        return [{"role": "assistant", "content": [block for block, _ in self._content]}]

    def _is_own(self, block: JsonObject) -> bool:
        return block.get("type") == "tool_use" and block.get("name") in self._own

    @property
    def _shown_usage(self) -> JsonObject:
        """The count of the last round, or of all together, and those of all rounds where the API puts them."""
        last = read.as_object(self._usage)
        if not self._is_later:
            return last
        rounds = [each for usage in self.usages for each in _iterations(read.as_object(usage))]
        sums = _sum_usage([read.as_object(usage) for usage in self.usages]) if self._sums_usage else {}
        return {**last, **sums, "iterations": rounds}


class MessagesRecallBody(_MessagesRounds, RecallBody):
    _shown_before: tuple[JsonObject, ...] = ()  # blocks of the rounds that are over

    def join_rounds(self) -> JsonObject:
        return {**self._body, "content": [*self._shown_before, *self._others], "usage": self._shown_usage}

    def _begin(self) -> None:
        self._shown_before += self._others

    @property
    def _content(self) -> Sequence[tuple[JsonObject, str]]:
        return [(block, _input(block)) for block in read.as_objects(self._body.get("content"))]

    @property
    def _others(self) -> tuple[JsonObject, ...]:
        return tuple(block for block, _ in self._content if not self._is_own(block))


class MessagesRecallStream(_MessagesRounds, RecallStream):
    _shown = 0  # blocks that the client has seen begin

    def _begin(self) -> None:
        self._blocks: dict[int, JsonObject] = {}
        # What blocks grow by, in pieces: adding to a long text takes quadratic time.
        self._growth: dict[int, dict[str, list[str]]] = {}
        self._arguments: dict[int, list[str]] = {}
        self._places: dict[int, int] = {}  # of shown blocks, for the client
        self._usage, self._is_over = None, False
        self._held = []

    def _feed(self, event: SseEvent, value: JsonObject, raw: bytes) -> bytes:
        match value.get("type"):
            case "message_start":
                self._usage = read.as_object(value.get("message")).get("usage")
                return b"" if self._is_later else raw
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                return self._block(event, value, raw)
            case "message_delta":
                self._usage = {**read.as_object(self._usage), **read.as_object(value.get("usage"))}
                self._is_over = True
                return self._end(event, {**value, "usage": self._shown_usage} if self._is_later else value, raw)
            case "message_stop":
                return self._end(event, value, raw)
        return raw

    @property
    def _content(self) -> Sequence[tuple[JsonObject, str]]:
        blocks = ((self._assemble_block(at), "".join(self._arguments.get(at, ()))) for at in self._blocks)
        blocks = ((block, arguments or _input(block)) for block, arguments in blocks)
        said = ((block, text) for block, text in blocks if block.get("type") != "text" or block.get("text"))
        return [(_with_input(block, text), text) for block, text in said]

    def _block(self, event: SseEvent, value: JsonObject, raw: bytes) -> bytes:
        index = read.as_index(value.get("index"))
        if index is None:
            return raw
        if value.get("type") == "content_block_start":
            block = self._blocks[index] = read.as_object(value.get("content_block"))
            if not self._is_own(block):
                self._places[index] = self._shown
                self._shown += 1
        self._grow(index, read.as_object(value.get("delta")))
        if self._is_own(self._blocks.get(index, {})):
            return b""
        place = self._places.get(index, index)
        return raw if place == index else event_bytes(event, {**value, "index": place})

    def _grow(self, index: int, delta: JsonObject) -> None:
        block = self._blocks.get(index)
        name = _GROWS.get(read.as_text(delta.get("type")))
        if block is not None and name is not None:
            self._growth.setdefault(index, {}).setdefault(name, []).append(read.as_text(delta.get(name)))
        self._arguments.setdefault(index, []).append(read.as_text(delta.get("partial_json")))

    def _assemble_block(self, index: int) -> JsonObject:
        """Return a block assembled from all its pieces."""
        block = self._blocks[index]
        growth = self._growth.get(index, {})
        grown: JsonObject = {name: read.as_text(block.get(name)) + "".join(by) for name, by in growth.items()}
        return {**block, **grown}

    def _end(self, event: SseEvent, value: JsonObject, raw: bytes) -> bytes:
        if self.calls.own:
            self._held.append((event, value))
            return b""
        return event_bytes(event, value) if self._is_later else raw


class MessagesCallStream(CallStream):
    def __init__(self, wrapper: str, unwrap: Unwrap) -> None:
        super().__init__(wrapper, unwrap)
        self._held: list[bytes] = []  # events of the block that is open
        self._block: JsonObject = {}
        self._index: JsonValue = None
        self._arguments: list[str] = []

    @property
    def _is_open(self) -> bool:
        return bool(self._held)

    def _feed(self, event: SseEvent, value: JsonObject, raw: bytes) -> Sequence[bytes]:
        block = read.as_object(value.get("content_block"))
        if not self._held and block.get("type") == "tool_use" and block.get("name") == self._wrapper:
            self._held = [raw]
            self._block = value
            self._index = value.get("index")
            self._arguments = []
            return ()
        if not self._held or value.get("index") != self._index or value.get("type") == "content_block_start":
            return (raw,)
        self._held.append(raw)
        self._arguments.append(read.as_text(read.as_object(value.get("delta")).get("partial_json")))
        return self._close(raw) if value.get("type") == "content_block_stop" else ()

    def _close(self, stop: bytes) -> Sequence[bytes]:
        held, self._held = self._held, []
        block = read.as_object(self._block.get("content_block"))
        found = self._unwrap("".join(self._arguments) or _input(block))
        if found is None:
            return held
        delta: JsonObject = {"type": "input_json_delta", "partial_json": found.arguments}
        events: tuple[JsonObject, ...] = (
            {**self._block, "content_block": {**block, "name": found.name, "input": {}}},
            {"type": "content_block_delta", "index": self._index, "delta": delta},
        )
        return (*(event_bytes(SseEvent(b"", read.as_text(each["type"])), each) for each in events), stop)

    def rewrite_body(self, body: JsonObject) -> JsonObject:
        content = self._rewrite_each(read.as_objects(body.get("content")))
        return body if content is None else {**body, "content": content}

    def _rewrite(self, item: JsonObject) -> JsonObject:
        is_ours = item.get("type") == "tool_use" and item.get("name") == self._wrapper
        found = self._unwrap(_input(item)) if is_ours else None
        return item if found is None else {**item, "name": found.name, "input": object_or_empty(found.arguments)}


# In a text of the conversation the quotes would be escaped.
_MARK = re.compile(rb'"cache_control"\s*:\s*\{[^{}]{0,200}\}')
_TTL = re.compile(rb'"ttl"\s*:\s*"(\w{1,8})"')
_MARKABLE = frozenset({"text", "image", "document", "tool_use", "tool_result"})


_COMPACTION = b'"compaction"'
_CLEAR_THINKING = "clear_thinking_20251015"
_CLEARING = re.compile(rb'"(?:clear_tool_uses|compact)_')


class AnthropicMessages(WireFormat):
    name = "messages"
    paths = ("/v1/messages",)
    count_paths = ("/v1/messages/count_tokens",)
    relayed = ("/v1/messages/batches", "/v1/messages/batches/{rest:path}")
    provider_types = ("anthropic", "bedrock", "vertex")
    default_headers = (("anthropic-version", "2023-06-01"),)
    client_header = "anthropic-version"
    system_member = "system"
    has_system_messages = False
    has_cache_marks = True
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    recall_stream = MessagesRecallStream
    recall_body = MessagesRecallBody
    call_stream = MessagesCallStream
    # platform.claude.com, agents-and-tools/tool-use/tool-search-tool: from Sonnet 4.5 and Opus 4.5 on, no Haiku
    searching = "anthropic", re.compile(r"claude-(?!haiku)[a-z]+-(?:4-(?:[5-9]|\d{2}(?!\d))|[5-9])", re.ASCII)
    searching_beta = b"anthropic-beta", b"advanced-tool-use-2025-11-20"
    function_types = ("", "custom")
    schema_member = "input_schema"
    # All but code execution, which costs by the hour; searches are counted.
    priced_tools = re.compile(
        r"|custom|(?:bash|text_editor|computer|memory|tool_search_tool\w*|web_search|web_fetch)_\d{8}|mcp_toolset"
    )
    _news = re.compile(rb'"type"\s*:\s*"message_')
    _error_types: ClassVar[Mapping[int, str]] = {
        **WireFormat._error_types,
        413: "request_too_large",
        504: "timeout_error",
    }
    _server_error = "api_error"

    def is_whole(self, place: Place, holder: Mapping[str, JsonValue]) -> bool:
        return super().is_whole(place, holder) or (place == _BLOCK and holder.get("type") in _TOOL_USES)

    def is_opaque(self, place: Place, holder: Mapping[str, JsonValue], name: str) -> bool:
        return place == _BLOCK and name == "input" and holder.get("type") in _TOOL_USES

    def cache_ttl(self, body: JsonBody) -> str | None:
        """Return the longest life that the client asks for in its `cache_control` marks."""
        if b'"cache_control"' not in body.body:
            return None
        return "1h" if any(mark.ttl == "1h" for mark in self.cache_marks(body)) else ""

    def cache_marks(self, body: JsonBody) -> list[CacheMark]:
        found = ((mark.start(), _TTL.search(mark[0])) for mark in _MARK.finditer(body.body))
        return [CacheMark(start, ttl[1].decode() if ttl else "") for start, ttl in found]

    def add_cache_mark(self, body: JsonBody, message: int | None, ttl: str) -> Edit | None:
        if message is not None:
            return _mark_end(body, self._content_of(body, message), ttl)
        system = body.members.get("system")
        tools = read.array(body.members.get("tools"))
        if system is not None and (edit := _mark_end(body, system, ttl)):
            return edit
        return _with_mark(body, tools[-1], ttl) if tools else None

    def upstream_path(self, base_url: str, path: str = "") -> str:
        below = super().upstream_path(base_url, path)
        return below if base_url.endswith(ROOT) else ROOT + below

    def models_path(self, base_url: str) -> str:
        return "/models?limit=1000" if base_url.endswith("/v1") else "/v1/models?limit=1000"

    def key_header(self, key: bytes) -> tuple[bytes, bytes]:
        return b"x-api-key", key

    def model_entry(self, key: str, provider: str) -> JsonObject:
        return {"type": "model", "id": key, "display_name": key, "created_at": "1970-01-01T00:00:00Z"}

    def model_list(self, models: Sequence[tuple[str, str]]) -> JsonObject:
        keys = [key for key, _ in models]
        data = [self.model_entry(*model) for model in models]
        ends: JsonObject = {"first_id": keys[0] if keys else None, "last_id": keys[-1] if keys else None}
        return {"data": data, "has_more": False, **ends}

    def apart(self, body: JsonBody) -> tuple[Part, ...]:
        return tuple(_parts(body, body.members.get("system")))

    def read_from(self, body: JsonBody) -> int:
        if _COMPACTION not in body.body:
            return 0
        messages = map(read.members, read.array(body.members.get("messages")))
        return max((at for at, fields in enumerate(messages) if _is_compacted(fields)), default=0)

    def is_cleared(self, body: JsonBody) -> bool:
        asked = body.members.get("context_management")
        return asked is not None and _CLEARING.search(bytes(asked)) is not None

    def new_message(self, role: Role, text: str) -> JsonObject:
        """There are no system messages in this API: later system text is sent as a user message."""
        return {"role": "user" if role == "system" else role, "content": text}

    def new_tool(self, name: str, description: str, schema: JsonObject) -> JsonObject:
        return {"name": name, "description": description, "input_schema": schema}

    def calls(self, body: JsonBody) -> Iterator[CallPlace]:
        for raw in read.array(body.members.get(self.conversation)):
            content = read.members(raw).get("content")
            for block in map(read.members, read.array(content) if content is not None else ()):
                if read.string(block.get("type")) == "tool_use" and (name := block.get("name")) is not None:
                    yield CallPlace(name, block.get("input"))

    def new_tool_results(self, results: Iterable[tuple[str, JsonValue]], names: Iterable[str] = ()) -> list[JsonObject]:
        blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": text} for call_id, text in results]
        return [{"role": "user", "content": blocks}]

    def found_tools(self, tools: Sequence[tuple[str, JsonObject]]) -> JsonValue:
        return [{"type": "tool_reference", "tool_name": name} for name, _ in tools]

    def new_search_call(self, call_id: str, name: str, arguments: JsonObject) -> JsonObject:
        call: JsonObject = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        return {"role": "assistant", "content": [call]}

    def clear_thinking(self, body: JsonBody, keep_turns: int) -> Edit | None:
        thinks = read.string(read.members(body.members.get("thinking")).get("type")) in ("enabled", "adaptive")
        if not thinks:
            return None
        given = read.array(read.members(body.members.get("context_management")).get("edits"))
        ours: JsonObject = {"type": _CLEAR_THINKING, "keep": {"type": "thinking_turns", "value": keep_turns}}
        if not body.has("context_management"):
            return body.set("context_management", {"edits": [ours]})
        own = next((raw for raw in given if read.string(read.members(raw).get("type")) == _CLEAR_THINKING), None)
        if own is None:
            # It has to be the first of several.
            start = body.span(given[0])[0] if given else 0
            return (start, start, json.encode(ours) + b",") if given else None
        # A client's own choice of how much to keep is respected; "all" is the provider's default.
        is_all = read.string(read.members(own).get("keep")) == "all"
        return (*body.span(own), json.encode(ours)) if is_all else None

    def summary_request(self, model: str, instructions: str, prompt: str, max_tokens: int) -> JsonObject:
        messages = [self.new_message("user", prompt)]
        return {"model": model, "system": instructions, "messages": messages, "max_tokens": max_tokens}

    def answer_text(self, answer: JsonObject) -> str:
        blocks = read.as_objects(answer.get("content"))
        return "".join(read.as_text(block.get("text")) for block in blocks if block.get("type") == "text")

    def usage(self, value: JsonValue) -> Usage | None:
        """Here `input_tokens` counts only the tokens after the cached prefix."""
        if not isinstance(value, Mapping):
            return None
        cached = count(value, "cache_read_input_tokens")
        written = count(value, "cache_creation_input_tokens")
        read = count(value, "input_tokens") + cached + written
        hour_long = min(written, count(value, "cache_creation", "ephemeral_1h_input_tokens"))
        return Usage(
            input_tokens=read,
            output_tokens=count(value, "output_tokens"),
            cached_tokens=cached,
            cache_write_tokens=written,
            long_write_tokens=hour_long,
            web_searches=count(value, "server_tool_use", "web_search_requests"),
        )

    def error_body(self, status: int, code: str, message: str) -> JsonObject:
        return {"type": "error", "error": {"type": self._error_type(status), "message": message, "code": code}}

    def error_event(self, status: int, code: str, message: str) -> bytes:
        return b"event: error\n" + super().error_event(status, code, message)

    def _own_error_event(self, value: JsonObject) -> bytes:
        return b"event: error\n" + super()._own_error_event({"type": "error", **value})

    def _content(self, fragment: Fragment, raw: Raw) -> Content:
        fields = read.members(raw)
        return Content(role_of(fields.get("role")), tuple(_parts(fragment, fields.get("content"))))

    def _add_to_message(self, body: JsonBody, content: Raw, text: str) -> list[Edit]:
        if not read.is_string(content):
            return body.add_text(content, text)
        # A separate block, so that the cached part of the message ends where it ended before.
        start, end = body.span(content)
        block = json.encode(text_block(text))
        return [(start, end, b'[{"type":"text","text":' + body.body[start:end] + b"}," + block + b"]")]

    def _event(self, facts: ReplyFacts, members: RawObject) -> ReplyFacts:
        match read.string(members.get("type")):
            case "message_start":
                return self._read_body_facts(facts, read.members(members.get("message")))
            case "message_delta":
                finish = read.string(read.members(members.get("delta")).get("stop_reason"))
                return _with_cleared(facts.update(None, finish, self.usage(read.value(members.get("usage")))), members)
            case "message_stop":
                return replace(facts, is_complete=True)
            case _:
                return facts

    def _read_body_facts(self, facts: ReplyFacts, members: RawObject) -> ReplyFacts:
        finish = read.string(members.get("stop_reason"))
        usage = self.usage(read.value(members.get("usage")))
        return _with_cleared(facts.update(members.get("model"), finish, usage), members)


def _mark_end(body: JsonBody, content: Raw | None, ttl: str) -> Edit | None:
    """Mark the end of a text or of blocks; empty texts and thinking cannot be marked."""
    if content is None:
        return None
    if read.is_string(content):
        start, end = body.span(content)
        text = body.body[start:end]
        mark = _mark_member(ttl)
        return (start, end, b'[{"type":"text","text":' + text + b"," + mark + b"}]") if end - start > 2 else None
    last = next(reversed(read.array(content)), None)
    block = read.members(last)
    is_empty = read.string(block.get("type")) == "text" and not read.string(block.get("text")).strip()
    if last is None or is_empty or read.string(block.get("type")) not in _MARKABLE:
        return None
    return _with_mark(body, last, ttl)


def _with_mark(body: JsonBody, raw: Raw, ttl: str) -> Edit | None:
    if "cache_control" in read.members(raw):
        return None
    end = body.span(raw)[1] - 1
    return end, end, b"," + _mark_member(ttl)


def _mark_member(ttl: str) -> bytes:
    return b'"cache_control":' + json.encode({"type": "ephemeral", **({"ttl": ttl} if ttl else {})})


def _with_cleared(facts: ReplyFacts, members: RawObject) -> ReplyFacts:
    """Return `facts` with the tokens that the provider reports as removed, if it does so here."""
    edits = read.as_objects(read.value(read.members(members.get("context_management")).get("applied_edits")))
    tokens = sum(count(edit, "cleared_input_tokens") for edit in edits)
    if reason := _miss_reason(members):
        facts = replace(facts, miss_reason=reason)
    return replace(facts, cleared_tokens=max(tokens, facts.cleared_tokens)) if tokens else facts


def _miss_reason(members: RawObject) -> str:
    """Return the reason that a client gets which asks for `diagnostics`: a word, or an object with its type."""
    if (raw := members.get("diagnostics")) is None:
        return ""
    reason = read.as_object(read.value(raw)).get("cache_miss_reason")
    return (read.as_text(reason) or read.as_text(read.as_object(reason).get("type")))[:40]


def _is_compacted(message: RawObject) -> bool:
    blocks = read.array(message.get("content"))
    return any(read.string(read.members(block).get("type")) == "compaction" for block in blocks)


def _parts(body: Fragment, content: Raw | None) -> Iterator[Part]:
    if content is None:
        return
    if read.is_string(content):
        yield body.part("text", content)
    for block in read.array(content) if read.is_array(content) else ():
        yield from _block_parts(body, block)


def _block_parts(body: Fragment, raw: Raw) -> Iterator[Part]:
    block = read.members(raw)
    match read.string(block.get("type")), block:
        case "text", {"text": text}:
            yield body.part("text", text)
        case "tool_use", {"input": arguments}:
            yield body.part("tool_call", arguments, read.string(block.get("id")), read.string(block.get("name")))
        case "tool_result", _:
            yield from _result_parts(body, raw, block)
        case "compaction", {"content": summary} if read.is_string(summary):
            yield body.part("text", summary)
        case "thinking", {"thinking": thought}:
            yield body.thinking(thought, block.get("signature"))
        case "image", _:
            yield body.part("image", raw)
        case _:
            yield body.part("other", raw)


def _result_parts(body: Fragment, raw: Raw, result: RawObject) -> Iterator[Part]:
    content = result.get("content")
    call_id = read.string(result.get("tool_use_id"))
    if content is None or not (read.is_string(content) or read.array(content)):  # no text, only the result of its call
        yield body.part("other", raw, call_id)
    yield from body.parts(content, "tool_result", _RESULT_KINDS, call_id, read.is_true(result.get("is_error")))


def _sum_usage(usages: Sequence[JsonObject]) -> JsonObject:
    """Return what all rounds cost together: every count of tokens, also those by the life of a cache."""
    sums: JsonObject = {}
    for usage in usages:
        for name, value in usage.items():
            if name.endswith("_tokens") and isinstance(value, int):
                sums[name] = count(sums.get(name)) + count(value)
            elif name == "cache_creation":
                sums[name] = _sum_usage([read.as_object(sums.get(name)), read.as_object(value)])
    return sums


_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _iterations(usage: JsonObject) -> list[JsonObject]:
    """Return a round as the provider counts it: as one iteration, or as several, of which some compact.

    Clients add the four counts up without asking which there are.
    """
    rounds = read.as_objects(usage.get("iterations")) or [{"type": "message", **usage}]
    return [{**each, **{name: 0 for name in _COUNTS if each.get(name) is None}} for each in rounds]


def _input(block: JsonObject) -> str:
    return json.encode(block.get("input") or {}).decode()


def _with_input(block: JsonObject, arguments: str) -> JsonObject:
    """Return a block with the streamed arguments, or without any if they are not JSON."""
    if "input" not in block:
        return block
    try:
        return {**block, "input": json.decode(arguments.encode("utf-8", "replace"))}
    except ParseError:
        return {**block, "input": {}}

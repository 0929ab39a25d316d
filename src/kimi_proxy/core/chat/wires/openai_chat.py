"""OpenAI's chat completions: `messages` with roles, tool calls next to their text, tool results as messages."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Raw

from kimi_proxy.core import json
from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.read import (
    Content,
    Edit,
    Fragment,
    JsonBody,
    Kind,
    Message,
    Part,
    RawObject,
    Role,
    role_of,
    text_block,
)
from kimi_proxy.core.chat.wires.calls import CallPlace, CallStream, Unwrap
from kimi_proxy.core.chat.wires.protocol import (
    DONE,
    ITEM,
    Place,
    RecallBody,
    RecallRounds,
    RecallStream,
    ReplyFacts,
    RoundCalls,
    Usage,
    WireFormat,
    count,
    event_bytes,
    gap,
    valid_arguments,
)
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseEvent, SseParser

# Places of calls, of thinking, and of OpenRouter's plugins, which have an id that nothing is kept under.
_WHOLE: frozenset[Place] = frozenset(
    {("messages", ITEM, "tool_calls", ITEM), ("messages", ITEM, "reasoning_details", ITEM), ("plugins", ITEM)}
)
_KINDS: dict[str, Kind] = {"text": "text", "refusal": "text", "image_url": "image"}
_CALL_MEMBERS = frozenset({"index", "id", "type", "function"})
# Thinking before a call is sent back with the call, in the field in which it arrived.
REASONING = ("reasoning_content", "reasoning")
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_ONE_EVENT = re.compile(rb".+?(?:\n\n|\n\r\n?|\r\r\n?|\Z)", re.DOTALL)


@dataclass(slots=True, eq=False)
class ChatToolCall:
    """A tool call of an answer, as far as it has come."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)  # in pieces: adding to a long text takes quadratic time
    more: JsonObject = field(default_factory=dict)  # fields that a provider wants back, such as a signature

    def to_json(self) -> JsonObject:
        function: JsonObject = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": "function", "function": function, **self.more}


class ChatToolCalls:
    """The tool calls of one answer; `all` has them in the order in which they began."""

    def __init__(self) -> None:
        self.all: list[ChatToolCall] = []
        self._at: dict[int, ChatToolCall] = {}

    def take(self, delta: JsonObject) -> list[tuple[JsonObject, ChatToolCall]]:
        """Add the pieces of calls in a chunk; return them, each with its call."""
        pieces = [(piece, self._call_of(piece)) for piece in read.as_objects(delta.get("tool_calls"))]
        for piece, call in pieces:
            function = read.as_object(piece.get("function"))
            name = read.as_text(function.get("name"))
            call.name += name if name != call.name else ""  # some providers repeat it with every piece
            call.arguments.append(read.as_text(function.get("arguments")))
            call.more |= {key: value for key, value in piece.items() if key not in _CALL_MEMBERS}
        return pieces

    def _call_of(self, piece: JsonObject) -> ChatToolCall:
        """Return the call that a piece belongs to: some providers give every call the same index, or none."""
        index = read.as_index(piece.get("index"))
        id = read.as_text(piece.get("id"))
        known = self._at.get(index or 0)
        is_named = index is None and bool(read.as_object(piece.get("function")).get("name"))
        if known is None or is_named or (id and known.id and id != known.id):
            known = self._at[index or 0] = ChatToolCall()
            self.all.append(known)
        known.id = known.id or id
        return known


class _ChatRounds(RecallRounds):
    _message: JsonObject  # the model's text in this round

    def _calls(self) -> Iterator[tuple[str, str, str]]:
        for call in read.as_objects(self._message.get("tool_calls")):
            function = read.as_object(call.get("function"))
            yield (
                read.as_text(call.get("id")),
                read.as_text(function.get("name")),
                read.as_text(function.get("arguments")),
            )

    def _said_items(self) -> list[JsonObject]:
        calls: list[JsonObject] = []
        for call in read.as_objects(self._message.get("tool_calls")):
            function = read.as_object(call.get("function"))
            arguments = valid_arguments(read.as_text(function.get("arguments")))
            calls.append({**call, "function": {**function, "arguments": arguments}})
        return [{**self._message, "tool_calls": calls}]


class ChatRecallBody(_ChatRounds, RecallBody):
    _content_before: JsonValue = None  # of the rounds that are over

    def take(self, body: JsonObject) -> RoundCalls:
        self._choice = (read.as_objects(body.get("choices")) or [{}])[0]
        self._message = read.as_object(self._choice.get("message"))
        return super().take(body)

    def join_rounds(self) -> JsonObject:
        message = self._message
        choice = self._choice
        calls = read.as_objects(message.get("tool_calls"))
        others = [call for call in calls if read.as_object(call.get("function")).get("name") not in self._own]
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        content: JsonObject = {"content": self._content()} if self._content_before else {}
        shown: JsonObject = {"tool_calls": others} if others else {}
        return {**self._body, "choices": [{**choice, "message": {**rest, **content, **shown}}]}

    def _begin(self) -> None:
        self._content_before = self._content()

    def _content(self) -> JsonValue:
        """Return the output of all rounds: a text, or blocks if any round has blocks."""
        first = self._content_before
        second = self._message.get("content")
        if not first or not second:
            return first or second
        if isinstance(first, str) and isinstance(second, str):
            return first + gap(first, second) + second
        return [*_blocks(first), *_blocks(second)]


class ChatRecallStream(_ChatRounds, RecallStream):
    _id: JsonValue = None  # of the first round; for the client all rounds are that one
    _said_before = ""  # the last text of the rounds that are over

    def __init__(self, own: Collection[str], sums_usage: bool = False) -> None:
        self._content: list[str] = []  # in pieces
        super().__init__(own, sums_usage)

    def _begin(self) -> None:
        self._said_before = "".join(self._content) or self._said_before
        self._content = []
        self._is_silent = True  # no text of this round has come
        self._reasoning: dict[str, list[str]] = {}
        self._streamed = ChatToolCalls()
        self._usage, self._is_over = None, False
        self._held = []

    def _feed(self, event: SseEvent, value: JsonObject, raw: bytes) -> bytes:
        if value.get("error") and not value.get("choices"):
            return raw
        self._id = self._id or value.get("id")
        choice = (read.as_objects(value.get("choices")) or [{}])[0]
        delta = read.as_object(choice.get("delta"))
        pieces = self._take(delta)
        if self._is_silent and (said := read.as_text(delta.get("content"))):
            self._is_silent = False
            delta = {**delta, "content": gap(self._said_before, said) + said}
        self._usage = value.get("usage") or choice.get("usage") or self._usage
        if not self._has_own and not self._is_later:
            return raw
        return self._rewritten(event, value, choice, self._without_own(delta, pieces))

    def _feed_text(self, event: SseEvent, raw: bytes) -> bytes:
        if not self._has_own or event.data != DONE:
            return raw
        self._hold(event, None)
        return b""

    def _hold(self, event: SseEvent, value: JsonObject | None) -> None:
        """Hold back the end of this round: all of it is known now."""
        calls = [call.to_json() for call in self._streamed.all]
        content = "".join(self._content) or None
        thought: JsonObject = {name: "".join(pieces) for name, pieces in self._reasoning.items()}
        self._message = {"role": "assistant", "content": content, **thought, "tool_calls": calls}
        self._held.append((event, value))
        self._is_over = True

    @property
    def _has_own(self) -> bool:
        return any(call.name in self._own for call in self._streamed.all)

    def _take(self, delta: JsonObject) -> list[tuple[JsonObject, ChatToolCall]]:
        """Add a chunk to the text so far; return the pieces of calls in it, each with its call."""
        self._content.append(read.as_text(delta.get("content")))
        for name in REASONING:
            if thought := read.as_text(delta.get(name)):
                self._reasoning.setdefault(name, []).append(thought)
        return self._streamed.take(delta)

    def _rewritten(self, event: SseEvent, chunk: JsonObject, choice: JsonObject, shown: JsonObject) -> bytes:
        """Return the chunk without our calls, as a part of the first round; hold back its end until ours is known."""
        if self._is_later:
            chunk = {**chunk, "id": self._id}
        finish = choice.get("finish_reason")
        if self._has_own and (finish or not choice):
            self._hold(event, _with_choice(chunk, choice, {}, finish))
            chunk = {**chunk, "usage": None}
            finish = None
        if not any(shown.values()) and not finish and not chunk.get("usage"):
            return b""
        return event_bytes(event, _with_choice(chunk, choice, shown, finish))

    def _without_own(self, delta: JsonObject, pieces: Sequence[tuple[JsonObject, ChatToolCall]]) -> JsonObject:
        # Clients that put the pieces together expect the first call to have the first index.
        others = [call for call in self._streamed.all if call.name not in self._own]
        moved = [{**piece, "index": others.index(call)} for piece, call in pieces if call in others]
        hidden = {"tool_calls", "role"} if self._is_later else {"tool_calls"}
        rest = {key: value for key, value in delta.items() if key not in hidden}
        return {**rest, "tool_calls": moved} if moved else rest


class ChatCallStream(CallStream):
    def __init__(self, wrapper: str, unwrap: Unwrap) -> None:
        super().__init__(wrapper, unwrap)
        self._calls = ChatToolCalls()
        self._held: list[tuple[int, ChatToolCall]] = []  # each with its index
        self._chunk: JsonObject = {}  # with which the first of them began

    @property
    def _is_open(self) -> bool:
        return bool(self._held)

    def _feed(self, event: SseEvent, value: JsonObject, raw: bytes) -> Sequence[bytes]:
        choice = (read.as_objects(value.get("choices")) or [{}])[0]
        delta = read.as_object(choice.get("delta"))
        others = list[JsonObject]()
        for piece, call in self._calls.take(delta):
            if call.name == self._wrapper:
                self._hold(value, read.as_index(piece.get("index")), call)
            else:
                others.append(piece)
        finish = choice.get("finish_reason")
        is_over = bool(finish) or not choice
        before = (event_bytes(event, self._complete()),) if self._held and is_over else ()
        if len(others) == len(read.as_objects(delta.get("tool_calls"))):
            return (*before, raw)
        rest = {key: each for key, each in delta.items() if key != "tool_calls"}
        shown: JsonObject = {**rest, "tool_calls": others} if others else rest
        if not any(shown.values()) and not is_over and not value.get("usage"):
            return before
        return (*before, event_bytes(event, _with_choice(value, choice, shown, finish)))

    def _hold(self, chunk: JsonObject, index: int | None, call: ChatToolCall) -> None:
        if not self._held:
            self._chunk = chunk
        if all(held is not call for _, held in self._held):
            self._held.append((len(self._calls.all) - 1 if index is None else index, call))

    def _complete(self) -> JsonObject:
        """Return a chunk with the calls that were held back."""
        calls = [{"index": index, **self._rewrite(call.to_json())} for index, call in self._held]
        self._held = []
        choice: JsonObject = {"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}
        return {**{key: each for key, each in self._chunk.items() if key != "usage"}, "choices": [choice]}

    def rewrite_body(self, body: JsonObject) -> JsonObject:
        choices = read.as_objects(body.get("choices"))
        message = read.as_object(choices[0].get("message")) if choices else {}
        calls = self._rewrite_each(read.as_objects(message.get("tool_calls")))
        if calls is None:
            return body
        return {**body, "choices": [{**choices[0], "message": {**message, "tool_calls": calls}}, *choices[1:]]}

    def _rewrite(self, item: JsonObject) -> JsonObject:
        function = read.as_object(item.get("function"))
        is_ours = function.get("name") == self._wrapper
        found = self._unwrap(read.as_text(function.get("arguments"))) if is_ours else None
        return item if found is None else {**item, "function": {"name": found.name, "arguments": found.arguments}}


class OpenAiChat(WireFormat):
    name = "chat"
    paths = ("/v1/chat/completions", "/chat/completions")
    relayed = ("/v1/completions", "/v1/embeddings", "/v1/moderations")
    uploads = (
        *("/v1/files", "/v1/files/{rest:path}", "/v1/uploads", "/v1/uploads/{rest:path}"),
        *("/v1/audio/{rest:path}", "/v1/images/{rest:path}", "/v1/batches", "/v1/batches/{rest:path}"),
    )
    stateless = (
        *("/v1/completions", "/v1/embeddings", "/v1/moderations"),
        *("/v1/audio/speech", "/v1/audio/transcriptions", "/v1/audio/translations"),
        *("/v1/images/generations", "/v1/images/edits", "/v1/images/variations"),
    )
    provider_types = ("openai", "gemini")
    has_error_event = False
    recall_stream = ChatRecallStream
    recall_body = ChatRecallBody
    call_stream = ChatCallStream
    _news = re.compile(rb'"(?:usage|finish_reason)"\s*:\s*[{"]')

    def is_whole(self, place: Place, holder: Mapping[str, JsonValue]) -> bool:
        return super().is_whole(place, holder) or place in _WHOLE

    def _tool_name(self, tool: RawObject) -> str:
        return read.string(read.members(tool.get("function")).get("name")) or read.string(tool.get("name"))

    def new_message(self, role: Role, text: str) -> JsonObject:
        return {"role": role, "content": text}

    def new_tool(self, name: str, description: str, schema: JsonObject) -> JsonObject:
        return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}

    def calls(self, body: JsonBody) -> Iterator[CallPlace]:
        for message in map(read.members, read.array(body.members.get(self.conversation))):
            for raw in read.array(message.get("tool_calls")):
                function = read.members(read.members(raw).get("function"))
                if (name := function.get("name")) is not None:
                    yield CallPlace(name, function.get("arguments"))

    def new_tool_results(self, results: Iterable[tuple[str, JsonValue]], names: Iterable[str] = ()) -> list[JsonObject]:
        return [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in results]

    def add_system(self, body: JsonBody, messages: tuple[Message, ...], text: str) -> list[Edit]:
        """Add to the first message if it is the system's, else a message before it."""
        if not messages:
            return []
        if messages[0].role == "system" and (content := self._content_of(body, 0)) is not None:
            return body.add_text(content, text)
        start = messages[0].start
        return [(start, start, json.encode(self.new_message("system", text)) + b",")]

    def ask_usage(self, body: JsonBody) -> Edit | None:
        options = body.members.get("stream_options")
        if options is None:
            return body.set("stream_options", {"include_usage": True})
        members = read.members(options)
        if "include_usage" in members or not bytes(options).startswith(b"{"):
            return None
        end = body.span(options)[1] - 1
        return end, end, (b"," if members else b"") + b'"include_usage":true'

    def hide_usage(self, events: bytes) -> bytes:
        """Clients that did not ask for usage trip over a chunk that has it and no choice."""
        if not _NO_CHOICES.search(events):
            return events
        return b"".join(raw for raw in _ONE_EVENT.findall(events) if not _is_usage_alone(raw))

    def summary_request(self, model: str, instructions: str, prompt: str, max_tokens: int) -> JsonObject:
        messages = [self.new_message("system", instructions), self.new_message("user", prompt)]
        return {"model": model, "messages": messages, "max_tokens": max_tokens, "stream": False}

    def answer_text(self, answer: JsonObject) -> str:
        choice = next(iter(read.as_objects(answer.get("choices"))), {})
        return read.as_text(read.as_object(choice.get("message")).get("content"))

    def usage(self, value: JsonValue) -> Usage | None:
        """Imitators put cached tokens in three different places."""
        if not isinstance(value, Mapping):
            return None
        cached = ("prompt_tokens_details", "cached_tokens"), ("cached_tokens",), ("prompt_cache_hit_tokens",)
        return Usage(
            input_tokens=count(value, "prompt_tokens"),
            output_tokens=count(value, "completion_tokens"),
            cached_tokens=next((tokens for path in cached if (tokens := count(value, *path))), 0),
            cache_write_tokens=count(value, "prompt_tokens_details", "cache_write_tokens"),
            reasoning_tokens=count(value, "completion_tokens_details", "reasoning_tokens"),
        )

    def _read_body_facts(self, facts: ReplyFacts, members: RawObject) -> ReplyFacts:
        """Kimi counts inside the choice, Groq in a field of its own."""
        choice = next((read.members(raw) for raw in read.array(members.get("choices"))[:1]), {})
        counted = members.get("usage") or choice.get("usage") or read.members(members.get("x_groq")).get("usage")
        return facts.update(
            members.get("model"), read.string(choice.get("finish_reason")), self.usage(read.value(counted))
        )

    _event = _read_body_facts

    def _content(self, fragment: Fragment, raw: Raw) -> Content:
        fields = read.members(raw)
        role = role_of(fields.get("role"))
        call_id = read.string(fields.get("tool_call_id"))
        said = fragment.parts(fields.get("content"), "tool_result" if role == "tool" else "text", _KINDS, call_id)
        parts = (*said, *_calls(fragment, fields))
        if role == "tool" and not parts:  # no text, only the result of its call
            parts = (fragment.part("other", raw, call_id),)
        return Content(role, parts)


def _calls(body: Fragment, fields: RawObject) -> Iterator[Part]:
    if (thought := fields.get("reasoning_content")) is not None and read.is_string(thought):
        yield body.part("thinking", thought)
    for raw in read.array(fields.get("tool_calls")):
        call = read.members(raw)
        function = read.members(call.get("function") or call.get("custom"))
        arguments = function.get("arguments") or function.get("input")
        call_id = read.string(call.get("id"))
        name = read.string(function.get("name"))
        yield body.part("tool_call", raw if arguments is None else arguments, call_id, name)


def _is_usage_alone(raw: bytes) -> bool:
    for event in SseParser().feed(raw + b"\n\n"):
        members = read.json_object(event.data) or {}
        choices = members.get("choices")
        has_none = choices is not None and bytes(choices).strip(b"[ \t\r\n]") == b""
        if has_none and read.value(members.get("usage")) is not None:
            return True
    return False


def _blocks(content: JsonValue) -> list[JsonObject]:
    return [text_block(content)] if isinstance(content, str) else read.as_objects(content)


def _with_choice(chunk: JsonObject, choice: JsonObject, delta: JsonObject, finish: JsonValue) -> JsonObject:
    return {**chunk, "choices": [{**choice, "delta": delta, "finish_reason": finish}]} if choice else chunk

"""Chat completions, as both translations write their requests and read their answers."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from kimi_proxy.core import json
from kimi_proxy.core.chat import Wire, read
from kimi_proxy.core.chat.wires.openai_chat import REASONING, ChatToolCall, ChatToolCalls
from kimi_proxy.core.chat.wires.protocol import DONE, Usage
from kimi_proxy.core.errors import InvalidParams, ParseError, UpstreamDisconnected, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseParser

MAX_EVENT_BYTES = 16 * 1024**2
MAX_REPORTED_CHARS = 2_000  # of an error that is no JSON

# What a model thought has to come back under the name that it came by. This prefix and the name stand where the
# client's API has a signature, or encrypted text: a client sends both back as they are.
THOUGHT_MARK = "kimi-proxy:"
SUMMARY = "summary"  # beside the names of thoughts: what a compaction left of a conversation


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """In what providers of chat completions differ."""

    asks_usage: bool = True  # it counts tokens at the end of a stream if it is asked to
    max_tokens: str = "max_tokens"  # how it calls the limit of an answer; OpenAI has another name
    takes_cache_key: bool = False  # it knows `prompt_cache_key`, by which requests of one conversation find its cache


class Dropped:
    """The fields of a request that chat completions have no place for, each once, in the order they were found."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def add(self, *names: str) -> None:
        self._names |= dict.fromkeys(names)

    def all_but(self, fields: Iterable[str], known: Iterable[str], where: str = "") -> None:
        """Add those of `fields` that are not in `known`."""
        known = frozenset(known)
        self.add(*(f"{where}{name}" for name in fields if name not in known))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._names)


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """The content that a chunk adds: to the thoughts, to the text, or to the arguments of a call."""

    kind: Literal["thinking", "text", "call"]
    text: str
    call: ChatToolCall | None = None
    name: str = ""  # of the field in which a thought came


@dataclass(slots=True, eq=False)
class StreamedBlock:
    """A thought, a text or a call of an answer, as far as it has come."""

    first: ChatDelta
    pieces: list[str] = field(default_factory=list)
    shown: int = 0  # how many of the pieces the client has seen
    is_begun: bool = False  # it has seen the block begin

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class EventTranslator(ABC):
    """Is fed the bytes of a chat stream in slices of any size; returns the bytes of the client's stream.

    Blocks follow each other there, while the calls of a chat stream may come side by side: what belongs to a later
    block waits until those before it are complete. That of a call shows only at the end of the answer.
    """

    def __init__(self) -> None:
        self._parser = SseParser()
        self._is_over = False  # nothing more is said, whatever comes
        self._answer = ChatAnswer()
        self._blocks: list[StreamedBlock] = []  # that are not complete, or not shown
        self._index = 0  # of the first of them
        self._has_begun = False

    def feed(self, piece: bytes) -> bytes:
        """Return what the client is sent upon `piece`. Raise UpstreamUnreadable for an event without an end."""
        shown = b"".join(self._take(event.data) for event in self._parser.feed(piece) if event.data)
        if self._parser.waiting_bytes > MAX_EVENT_BYTES:
            raise UpstreamUnreadable("the provider sent an event of more than 16 MiB")
        return shown

    def end(self) -> bytes:
        """Return the end of the stream. Raise UpstreamDisconnected if the answer is not complete."""
        shown = self.feed(b"\n\n")  # some providers leave out the last empty line
        if self._is_over:
            return shown
        if not self._answer.finish:
            raise UpstreamDisconnected("the provider ended its response before it was complete")
        return shown + self._finish()

    def _take(self, data: bytes) -> bytes:
        if self._is_over:
            return b""
        if data == DONE:
            return self._finish()
        chunk = _object(data)
        if error := read.as_object(chunk.get("error")):
            self._is_over = True
            return self._error_event(error)
        return self._chunk(chunk) if chunk else b""

    def _chunk(self, chunk: JsonObject) -> bytes:
        for delta in self._answer.take(chunk):
            self._block_of(delta).pieces.append(delta.text)
        return self._begin_if_needed() + b"".join(self._show_ready())

    def _finish(self) -> bytes:
        self._is_over = True
        shown = [self._begin_if_needed()]
        for block in self._blocks:
            shown += [*self._show(block), self._stop_block(block)]
        return b"".join((*shown, self._completion_events()))

    def _begin_if_needed(self) -> bytes:
        if self._has_begun:
            return b""
        self._has_begun = True
        return self._begin()

    def _block_of(self, delta: ChatDelta) -> StreamedBlock:
        if delta.call is None:
            found = next((each for each in self._blocks[-1:] if _is_same(each.first, delta)), None)
        else:
            found = next((each for each in self._blocks if each.first.call is delta.call), None)
        if found is None:
            found = StreamedBlock(delta)
            self._blocks.append(found)
        return found

    def _show_ready(self) -> Iterator[bytes]:
        """Yield what can be shown now: of the first block, and of those after it that are complete."""
        while self._blocks:
            block = self._blocks[0]
            # The name of a call may come in pieces: it begins with its arguments.
            if block.is_begun or any(block.pieces):
                yield from self._show(block)
            if block.first.call is not None or len(self._blocks) == 1:
                return
            yield self._stop_block(block)
            del self._blocks[0]

    def _show(self, block: StreamedBlock) -> Iterator[bytes]:
        if not block.is_begun:
            block.is_begun = True
            yield self._start(block)
        for text in filter(None, block.pieces[block.shown :]):
            yield self._delta(block, text)
        block.shown = len(block.pieces)

    def _stop_block(self, block: StreamedBlock) -> bytes:
        stopped = self._stop(block)
        self._index += 1
        return stopped

    @abstractmethod
    def _begin(self) -> bytes:
        """Return the events that begin an answer."""

    @abstractmethod
    def _start(self, block: StreamedBlock) -> bytes:
        """Return the events that begin the block at `_index`."""

    @abstractmethod
    def _delta(self, block: StreamedBlock, text: str) -> bytes:
        """Return the event that adds to that block."""

    @abstractmethod
    def _stop(self, block: StreamedBlock) -> bytes:
        """Return the events that end that block."""

    @abstractmethod
    def _completion_events(self) -> bytes:
        """Return the events that end a complete answer."""

    @abstractmethod
    def _error_event(self, error: JsonObject) -> bytes:
        """Return the event for an error in the middle of a stream."""


class StreamTranslator(Protocol):
    """Is fed the bytes of a provider's stream; returns the bytes of the client's."""

    def feed(self, piece: bytes) -> bytes: ...
    def end(self) -> bytes: ...


class Translation(ABC):
    """A request of one API translated for another, and the translation of its response.

    The same request always has the same bytes, and a longer conversation extends them: a message is translated
    independently of later ones.
    """

    wire: Wire  # of the client
    request: JsonObject
    dropped: tuple[str, ...]  # fields that the other API has no place for

    @abstractmethod
    def answer(self, body: JsonObject) -> JsonObject:
        """Return an answer that came in one piece. Raise UpstreamUnreadable if it is none."""

    @abstractmethod
    def events(self) -> StreamTranslator:
        """Return what translates one stream."""

    def error(self, status: int, body: bytes) -> JsonObject:
        """Return the body of a provider's refusal."""
        return self.wire.format.error_body(status, *error_of(body))


class ChatAnswer:
    """Reads an answer chunk by chunk; one that came in one piece is a single chunk."""

    def __init__(self) -> None:
        self.id, self.model, self.finish, self.stop_sequence = "", "", "", ""
        self.created = 0
        self.usage = Usage()
        self._calls = ChatToolCalls()

    @property
    def has_calls(self) -> bool:
        return bool(self._calls.all)

    def call_id(self, call: ChatToolCall) -> str:
        """Return the id of a call; one for those of providers that give none."""
        return call.id or f"call_{self.id}_{self._calls.all.index(call)}"

    def take(self, chunk: JsonObject) -> Iterator[ChatDelta]:
        """Return what a chunk adds."""
        self.id = self.id or read.as_text(chunk.get("id"))
        self.model = self.model or read.as_text(chunk.get("model"))
        self.created = self.created or read.as_index(chunk.get("created")) or 0
        choices = [each for each in read.as_objects(chunk.get("choices")) if not each.get("index")]
        choice = choices[0] if choices else {}
        self._count(chunk, choice)
        self.finish = read.as_text(choice.get("finish_reason")) or self.finish
        self.stop_sequence = read.as_text(choice.get("stop_reason")) or self.stop_sequence  # as vLLM says it
        delta = read.as_object(choice.get("delta") or choice.get("message"))
        deltas = [*_text_deltas(delta), *self._call_deltas(delta)]
        return (each for each in deltas if each.text or each.call)

    def take_body(self, body: JsonObject) -> list[ChatDelta]:
        """Return what an answer says that came in one piece. Raise UpstreamUnreadable if it says nothing at all."""
        deltas = list(self.take(body))
        if not read.as_objects(body.get("choices")):
            raise UpstreamUnreadable("the provider's response has no choices")
        return deltas

    def _call_deltas(self, delta: JsonObject) -> Iterator[ChatDelta]:
        for piece, call in self._calls.take(delta):
            yield ChatDelta("call", read.as_text(read.as_object(piece.get("function")).get("arguments")), call)

    def _count(self, chunk: JsonObject, choice: JsonObject) -> None:
        """Kimi counts inside of the choice, Groq in a member of its own."""
        counted = chunk.get("usage") or choice.get("usage") or read.as_object(chunk.get("x_groq")).get("usage")
        if usage := Wire.CHAT.format.usage(counted):
            self.usage = self.usage.merge(usage)


def _is_same(first: ChatDelta, delta: ChatDelta) -> bool:
    return first.call is None and (first.kind, first.name) == (delta.kind, delta.name)


def _text_deltas(delta: JsonObject) -> Iterator[ChatDelta]:
    for name in REASONING:
        if thought := read.as_text(delta.get(name)):
            yield ChatDelta("thinking", thought, name=name)
            break  # OpenRouter and vLLM send it under both names
    yield ChatDelta("text", _text(delta.get("content")))
    yield ChatDelta("text", read.as_text(delta.get("refusal")))


def _text(content: JsonValue) -> str:
    if isinstance(content, str):
        return content
    return "".join(read.as_text(part.get("text")) for part in read.as_objects(content))


def arguments_of(call: ChatToolCall) -> JsonObject:
    """Return the arguments of a call. Raise UpstreamUnreadable if they are not a JSON object."""
    written = "".join(call.arguments)
    try:
        value = json.decode(written.encode("utf-8", "surrogatepass") or b"{}")
    except ParseError:
        value = None
    if not isinstance(value, Mapping):
        raise UpstreamUnreadable(f"the model called {call.name[:80]!r} with arguments that are not a JSON object")
    return dict(value)


def error_of(body: bytes) -> tuple[str, str]:
    """Return the code and the message of a provider's refusal, whatever it looks like."""
    value = _object(body)
    error = value.get("error")
    if isinstance(error, Mapping):
        return _code(error.get("code") or error.get("type")), read.as_text(error.get("message")) or _show_ready(body)
    message = read.as_text(error) or read.as_text(value.get("message")) or read.as_text(value.get("detail"))
    return "upstream_error", message or _show_ready(body)


def event_error(error: JsonObject) -> tuple[int, str, str]:
    """Return the status, the code and the message of an error in the middle of a stream."""
    code = error.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return status, _code(code or error.get("type")), read.as_text(error.get("message")) or "the provider failed"


def _code(value: JsonValue) -> str:
    return str(value)[:80] if isinstance(value, str | int) else "upstream_error"


def _show_ready(body: bytes) -> str:
    return body[: 4 * MAX_REPORTED_CHARS].decode("utf-8", "replace").strip()[:MAX_REPORTED_CHARS] or "no reason given"


def _object(data: bytes) -> JsonObject:
    try:
        return read.as_object(json.decode(data))
    except ParseError:
        return {}


def refuse(field: str, what: str) -> InvalidParams:
    """Return the error for what chat completions cannot carry, and what must not be left out."""
    return InvalidParams(field, f"{what}: this model's provider speaks chat completions only, which cannot carry it")


def sampling(body: JsonObject, limit: str, dialect: ChatDialect) -> JsonObject:
    """Return how the answer is to be made; `limit` is the client's name for its greatest length."""
    request = {} if body.get(limit) is None else {dialect.max_tokens: body[limit]}
    return request | {name: body[name] for name in ("temperature", "top_p") if body.get(name) is not None}


def streaming(body: JsonObject, dialect: ChatDialect) -> JsonObject:
    """Return what asks for a stream, if the client does."""
    if not body.get("stream"):
        return {}
    return {"stream": True, **({"stream_options": {"include_usage": True}} if dialect.asks_usage else {})}


def event(kind: str, fields: JsonObject) -> bytes:
    """Return an event of the client's stream."""
    return f"event: {kind}\ndata: ".encode() + json.encode({"type": kind, **fields}) + b"\n\n"


def function(name: str, arguments: JsonValue) -> JsonObject:
    """Return what is called, with its arguments: a text as it is, anything else as JSON."""
    written = arguments if isinstance(arguments, str) else json.encode(arguments or {}).decode()
    return {"name": name, "arguments": written}


def is_our_thought(mark: JsonValue) -> str:
    """Return the name under which a thought came from a provider; "" if it is another API's."""
    name = read.as_text(mark).removeprefix(THOUGHT_MARK)
    return name if name in REASONING and mark != name else ""


def seal_text(name: str, text: str) -> str:
    """Return a text that the client keeps for us where its API has encrypted text."""
    return f"{THOUGHT_MARK}{name}:{text}"


def kept_in(value: JsonValue) -> tuple[str, str]:
    """Return the name and the text that `kept` was given; ("", "") if another wrote it."""
    name, _, text = read.as_text(value).removeprefix(THOUGHT_MARK).partition(":")
    is_ours = name in (*REASONING, SUMMARY) and read.as_text(value).startswith(THOUGHT_MARK)
    return (name, text) if is_ours else ("", "")


def content(parts: list[JsonObject]) -> JsonValue:
    """Return parts as the content of a message: a single string if there is only text, which every provider supports.

    Clients send a text sometimes as a string and sometimes as a block; both become the same bytes.
    """
    if all(part.get("type") == "text" for part in parts):
        return "\n\n".join(read.as_text(part.get("text")) for part in parts)
    return parts


def text_part(text: JsonValue) -> JsonObject:
    return {"type": "text", "text": read.as_text(text)}


def image_part(url: str, detail: JsonValue = None) -> JsonObject:
    return {"type": "image_url", "image_url": {"url": url} | ({"detail": detail} if detail else {})}


def json_schema(name: str, schema: JsonValue, strict: JsonValue) -> JsonObject:
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": strict}}

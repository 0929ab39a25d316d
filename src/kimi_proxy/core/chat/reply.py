"""What can be told of an answer, read from its events one by one or from its whole body."""

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec
from msgspec import Raw

from kimi_proxy.core import json
from kimi_proxy.core.chat.page import Object, Wire, array_of, object_of, string_of
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseEvent, SseParser


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int = 0  # all that the model read, from the provider's cache or not
    output_tokens: int = 0  # all that it wrote, its thoughts included
    cached_tokens: int = 0  # read from the cache
    cache_write_tokens: int = 0  # put there
    reasoning_tokens: int = 0  # thoughts


def openai(usage: JsonValue) -> Usage | None:
    """Chat completions and their imitators, which put cached tokens in three different places."""
    if not isinstance(usage, Mapping):
        return None
    read, written = _mapping(usage, "prompt_tokens_details"), _mapping(usage, "completion_tokens_details")
    cached = _count(read, "cached_tokens") or _count(usage, "cached_tokens") or _count(usage, "prompt_cache_hit_tokens")
    return Usage(
        input_tokens=_count(usage, "prompt_tokens"),
        output_tokens=_count(usage, "completion_tokens"),
        cached_tokens=cached,
        reasoning_tokens=_count(written, "reasoning_tokens"),
    )


def responses(usage: JsonValue) -> Usage | None:
    if not isinstance(usage, Mapping):
        return None
    return Usage(
        input_tokens=_count(usage, "input_tokens"),
        output_tokens=_count(usage, "output_tokens"),
        cached_tokens=_count(_mapping(usage, "input_tokens_details"), "cached_tokens"),
        reasoning_tokens=_count(_mapping(usage, "output_tokens_details"), "reasoning_tokens"),
    )


def anthropic(usage: JsonValue) -> Usage | None:
    """Here `input_tokens` are only those that came after the cache."""
    if not isinstance(usage, Mapping):
        return None
    cached, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    return Usage(
        input_tokens=_count(usage, "input_tokens") + cached + written,
        output_tokens=_count(usage, "output_tokens"),
        cached_tokens=cached,
        cache_write_tokens=written,
    )


def merged(before: Usage | None, after: Usage | None) -> Usage | None:
    """Counts in a stream only grow, and may be told twice or in parts."""
    if before is None or after is None:
        return before or after
    return Usage(
        max(before.input_tokens, after.input_tokens),
        max(before.output_tokens, after.output_tokens),
        max(before.cached_tokens, after.cached_tokens),
        max(before.cache_write_tokens, after.cache_write_tokens),
        max(before.reasoning_tokens, after.reasoning_tokens),
    )


def _mapping(usage: Mapping[str, JsonValue], name: str) -> Mapping[str, JsonValue]:
    value = usage.get(name)
    return value if isinstance(value, Mapping) else {}


def _count(usage: Mapping[str, JsonValue], name: str) -> int:
    """A whole number that can be a count; anything else counts nothing."""
    value = usage.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return 0
    return int(value)


READERS: Mapping[Wire, Callable[[JsonValue], Usage | None]] = {
    Wire.CHAT: openai,
    Wire.MESSAGES: anthropic,
    Wire.RESPONSES: responses,
}


DONE = b"[DONE]"
RESPONSE_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})

_OBJECT = msgspec.json.Decoder(Object)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ParseError)

# What an event holds that tells more than the next words of an answer.
_NEWS = {
    Wire.CHAT: re.compile(rb'"(?:usage|finish_reason)"\s*:\s*[{"]'),
    Wire.MESSAGES: re.compile(rb'"type"\s*:\s*"message_'),
    Wire.RESPONSES: re.compile(rb'"response"\s*:\s*\{'),
}


@dataclass(frozen=True, slots=True)
class Seen:
    model: str = ""  # as the provider names it
    finish: str = ""  # why the answer ended, in the provider's word
    usage: Usage | None = None
    is_complete: bool = False  # the provider said that this was all
    unreadable: int = 0  # events that mean nothing


def after_event(wire: Wire, seen: Seen, data: bytes) -> Seen:
    """What is known once an event with this data has passed."""
    if data == DONE:
        return replace(seen, is_complete=True)
    if seen.model and data.startswith(b"{") and data.endswith(b"}") and not _NEWS[wire].search(data):
        return seen
    members = _members(data)
    return replace(seen, unreadable=seen.unreadable + 1) if members is None else _EVENTS[wire](seen, members)


def of_body(wire: Wire, body: bytes) -> Seen:
    """What a whole answer tells."""
    members = _members(body)
    return Seen(unreadable=1) if members is None else replace(_BODIES[wire](Seen(), members), is_complete=True)


def is_usage_alone(data: bytes) -> bool:
    """Whether a chunk of a chat completion holds the usage and no choice: a client that did not ask trips over it."""
    members = _members(data) or {}
    choices = members.get("choices")
    return (
        choices is not None and bytes(choices).strip(b"[ \t\r\n]") == b"" and _value(members.get("usage")) is not None
    )


def _members(data: bytes) -> Object | None:
    try:
        json.refuse_many_values(data)
        return _OBJECT.decode(data)
    except _UNREADABLE:
        return None


def _completion(seen: Seen, members: Object) -> Seen:
    """A chunk, or all of a completion. Kimi counts inside of the choice, Groq in a corner of its own."""
    choice = next((object_of(raw) for raw in array_of(members.get("choices"))[:1]), {})
    finish = string_of(choice.get("finish_reason"))
    counted = members.get("usage") or choice.get("usage") or object_of(members.get("x_groq")).get("usage")
    return _with(seen, members, finish, openai(_value(counted)))


def _message_event(seen: Seen, members: Object) -> Seen:
    match string_of(members.get("type")):
        case "message_start":
            return _message(seen, object_of(members.get("message")))
        case "message_delta":
            finish = string_of(object_of(members.get("delta")).get("stop_reason"))
            return _with(seen, {}, finish, anthropic(_value(members.get("usage"))))
        case "message_stop":
            return replace(seen, is_complete=True)
        case _:
            return seen


def _message(seen: Seen, members: Object) -> Seen:
    return _with(seen, members, string_of(members.get("stop_reason")), anthropic(_value(members.get("usage"))))


def _response_event(seen: Seen, members: Object) -> Seen:
    if "response" not in members:
        return seen
    seen = _response(seen, object_of(members["response"]))
    return replace(seen, is_complete=True) if string_of(members.get("type")) in RESPONSE_ENDS else seen


def _response(seen: Seen, members: Object) -> Seen:
    status = string_of(members.get("status"))
    finish = "" if status in ("in_progress", "queued") else status
    return _with(seen, members, finish, responses(_value(members.get("usage"))))


def _with(seen: Seen, members: Object, finish: str, counted: Usage | None) -> Seen:
    """The same object if nothing is new: most events only carry text."""
    model = seen.model or string_of(members.get("model"))
    if model == seen.model and not finish and counted is None:
        return seen
    return replace(seen, model=model, finish=finish or seen.finish, usage=merged(seen.usage, counted))


def _value(raw: Raw | None) -> JsonValue:
    try:
        value: JsonValue = None if raw is None else msgspec.json.decode(raw)
        return value
    except _UNREADABLE:
        return None


_EVENTS: Mapping[Wire, Callable[[Seen, Object], Seen]] = {
    Wire.CHAT: _completion,
    Wire.MESSAGES: _message_event,
    Wire.RESPONSES: _response_event,
}
_BODIES: Mapping[Wire, Callable[[Seen, Object], Seen]] = {
    Wire.CHAT: _completion,
    Wire.MESSAGES: _message,
    Wire.RESPONSES: _response,
}


# The end of a line and an empty line. What may be half of a CRLF waits for its other half.
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n|\Z))(?:\r\n|\n|\r(?!\Z))")


class WholeEvents:
    """Fed slices of any size; gives the bytes of each event once it is complete."""

    def __init__(self) -> None:
        self._held = b""

    @property
    def waiting_bytes(self) -> int:
        return len(self._held)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self._held += piece
        at = 0
        # An end that was looked for before may begin at most three bytes before the piece.
        look = max(0, len(self._held) - len(piece) - 3)
        while found := _END.search(self._held, max(at, look)):
            yield self._held[at : found.end()]
            at = found.end()
        self._held = self._held[at:]

    def rest(self) -> bytes:
        """What is left when the stream ends."""
        rest, self._held = self._held, b""
        return rest


def event_of(raw: bytes) -> SseEvent | None:
    """The event that these bytes are; None for comments."""
    return next(SseParser().feed(raw + b"\n\n"), None)


def object_in(event: SseEvent) -> JsonObject | None:
    """The JSON object that an event carries, if it does."""
    try:
        value = json.decode(event.data)
    except ParseError:
        return None
    return dict(value) if isinstance(value, dict) else None


def bytes_of(event: SseEvent, value: JsonValue) -> bytes:
    """The same event with other data."""
    name = f"event: {event.name}\n".encode() if event.name else b""
    return name + b"data: " + json.encode(value) + b"\n\n"


# A longer event passes in pieces; it may be an image, and it is no usage.
MAX_HELD_BYTES = 64 * 1024

_BLANK = (b"\n\n", b"\n\r", b"\r\r")  # how the end of a line and an empty line may begin
_BETWEEN = re.compile(rb"(?:(?::[^\r\n]*)?(?:\r\n|\n|\r))*")  # comments and empty lines belong to no event
_FRAME = re.compile(rb".+?(?:\n\n|\n\r\n?|\r\r\n?|\Z)", re.DOTALL)
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')


class Frames:
    """Fed slices of any size; gives what may be sent on, and holds what is not whole yet."""

    def __init__(self, hides_usage: bool = False) -> None:
        self._hides_usage = hides_usage
        self._held: list[bytes] = []
        self._size = 0
        self._torn = b""  # the last bytes of an event that was sent in part

    def feed(self, piece: bytes) -> bytes:
        if self._torn:
            return self._rest_of_torn(piece)
        self._held.append(piece)
        self._size += len(piece)
        if b"\n" not in piece and b"\r" not in piece:
            return self._tear() if self._size > MAX_HELD_BYTES else b""
        held = b"".join(self._held)
        cut = _end_of_events(held)
        self._held, self._size = [held[cut:]], len(held) - cut
        torn = self._tear() if self._size > MAX_HELD_BYTES else b""
        return self._shown(held[:cut]) + torn

    def end(self) -> bytes:
        """What is held when the stream ends as it should."""
        return self._shown(b"".join(self._held))

    def followed_by(self, event: bytes) -> bytes:
        """An event of ours after the stream broke off."""
        return b"\n\n" + event if self._torn else event

    def _tear(self) -> bytes:
        sent = b"".join(self._held)
        self._held, self._size, self._torn = [], 0, sent[-2:]
        return sent

    def _rest_of_torn(self, piece: bytes) -> bytes:
        seam = len(self._torn)
        cut = _first_end(self._torn + piece) - seam
        if cut < 0:
            self._torn = (self._torn + piece)[-2:]
            return piece
        self._torn = b""
        return piece[:cut] + self.feed(piece[cut:])

    def _shown(self, whole: bytes) -> bytes:
        if not self._hides_usage or not _NO_CHOICES.search(whole):
            return whole
        return b"".join(frame for frame in _FRAME.findall(whole) if not _is_usage(frame))


def _end_of_events(held: bytes) -> int:
    """Where the last whole event ends, with the comments that follow it."""
    last = max(held.rfind(blank) for blank in _BLANK)
    found = _BETWEEN.match(held, 0 if last < 0 else last + 2)
    return found.end() if found else 0


def _first_end(held: bytes) -> int:
    """Where the first event ends; -1 if none does."""
    places = [at for at in map(held.find, _BLANK) if at >= 0]
    return min(places) + 2 if places else -1


def _is_usage(frame: bytes) -> bool:
    return any(is_usage_alone(event.data) for event in SseParser().feed(frame + b"\n\n"))


MAX_BYTES = 16 * 1024**2

_PLAIN = ("", "identity")
_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class Observer:
    """Fed the bytes of an answer in slices of any size; `seen` is what is known so far."""

    def __init__(self, wire: Wire, is_stream: bool, encoding: str = "", max_bytes: int = MAX_BYTES) -> None:
        self._wire = wire
        self._events = SseParser() if is_stream else None
        self._body = bytearray()
        self._max_bytes = max_bytes
        self._is_blind = encoding not in _PLAIN and encoding not in _WINDOWS
        self._plain = _inflate(_WINDOWS[encoding], max_bytes) if encoding in _WINDOWS else _as_it_is
        self._seen = Seen()

    def feed(self, piece: bytes) -> None:
        if self._is_blind:
            return
        try:
            self._is_blind = self._look(self._plain(piece)) > self._max_bytes
        except zlib.error:  # it says gzip, and is not
            self._is_blind = True

    @property
    def seen(self) -> Seen:
        if self._events is None and not self._is_blind:
            return of_body(self._wire, bytes(self._body))
        return self._seen

    def _look(self, plain: bytes) -> int:
        """Take in some more; gives how much waits to be understood."""
        if self._events is None:
            self._body += plain
            return len(self._body)
        for event in self._events.feed(plain):
            if event.data:
                self._seen = after_event(self._wire, self._seen, event.data)
        return self._events.waiting_bytes


def _as_it_is(piece: bytes) -> bytes:
    return piece


def _inflate(window: int, max_bytes: int) -> Callable[[bytes], bytes]:
    inflater = zlib.decompressobj(window)

    def plain(piece: bytes) -> bytes:
        inflated = inflater.decompress(piece, max_bytes)
        if inflater.unconsumed_tail:
            raise zlib.error("a little that becomes a lot")
        return inflated

    return plain


_OPENAI = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_ANTHROPIC = _OPENAI | {413: "request_too_large", 504: "timeout_error"}


def body(wire: Wire, status: int, code: str, message: str) -> JsonObject:
    if wire is Wire.MESSAGES:
        kind = _ANTHROPIC.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message, "code": code}}
    kind = _OPENAI.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def event(wire: Wire, status: int, code: str, message: str) -> bytes:
    """Never `[DONE]`: a stream that broke off is not done."""
    said = body(wire, status, code, message)
    if wire is Wire.RESPONSES:
        # The documentation has the words at the top, OpenAI's own server puts them under `error`: clients read either.
        said = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 0} | said
    name = b"" if wire is Wire.CHAT else b"event: error\n"
    return name + b"data: " + json.encode(said) + b"\n\n"

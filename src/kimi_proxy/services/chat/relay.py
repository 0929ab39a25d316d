"""An answer on its way to the client: its bytes are passed on first, and read second."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from kimi_proxy.core.chat.reply import EventBuffer, ReplyFacts, ReplyReader, Usage
from kimi_proxy.core.errors import (
    KimiProxyError,
    UpstreamDisconnected,
    UpstreamError,
    UpstreamRefused,
    UpstreamUnreadable,
)
from kimi_proxy.features.accounting import Recalled
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.metering import GONE, Ending, QuotaWindow, plan_quota
from kimi_proxy.proxy.headers import Header, UpstreamRequest

# Until this much of an answer that is no stream has come, a provider that fails can still be reported with a status.
MAX_HELD_BYTES = 1024**2

_STREAM = "text/event-stream"
_STREAM_HEADERS = ((b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no"))


class ReplyStream(Protocol):
    """A provider's reply whose status is known and whose body is still to come."""

    status: int
    headers: list[Header]
    media_type: str
    encoding: str

    @property
    def is_delimited(self) -> bool: ...
    def pieces(self) -> AsyncIterator[bytes]: ...


class RewrittenReply:
    """A provider's reply with a body of ours."""

    def __init__(self, reply: ReplyStream, body: AsyncIterator[bytes]) -> None:
        self.status = reply.status
        self.media_type = reply.media_type
        self.encoding = reply.encoding
        self.headers = [(name, value) for name, value in reply.headers if name != b"content-length"]
        self.is_delimited = reply.is_delimited
        self._body = body

    def pieces(self) -> AsyncIterator[bytes]:
        return self._body


class ProviderClient(Protocol):
    """Asks the providers by their names."""

    def send(self, name: str, question: UpstreamRequest) -> AbstractAsyncContextManager[ReplyStream]: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the client: all of it in `body`, or the beginning, with `rest` to follow."""

    status: int
    headers: tuple[Header, ...]
    body: bytes
    rest: AsyncIterator[bytes] | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        if self.body:
            yield self.body
        if self.rest is not None:
            async for piece in self.rest:
                yield piece


@dataclass(frozen=True, slots=True)
class Exchange:
    """The outcome of a request, for observers."""

    draft: Draft
    status: int
    outcome: str  # ok, client_gone, or the code of an error
    reply: ReplyFacts
    first_byte_s: float | None
    elapsed_s: float
    recalled: Recalled = field(default_factory=Recalled)  # by the model, in the middle of the answer
    events: int = 0  # of a stream
    quota: tuple[QuotaWindow, ...] = ()
    reserved_usd: float = 0.0  # of a budget in money; it is charged if the provider counts nothing

    @property
    def ending(self) -> Ending:
        """Everything but the request."""
        end = self.status, self.outcome, self.reply, self.first_byte_s, self.elapsed_s
        return Ending(*end, self.recalled, self.events, self.quota, self.reserved_usd)

    @property
    def usage(self) -> Usage | None:
        """Return the tokens that the provider counted, for all turns of the answer."""
        return self.recalled.all or self.reply.usage


class Relay:
    """Passes one answer on; `exchange` returns what became of the request, however it ended."""

    def __init__(self, draft: Draft, now: Callable[[], float] = time.monotonic) -> None:
        self._draft = draft
        self._wire = draft.request.wire
        self._now = now
        self._began = now()
        self._first_byte_s: float | None = None
        self._status = 0
        self._outcome = GONE  # unless the last byte is handed over, or something fails
        self._reader: ReplyReader | None = None  # until there is a reply
        self._recalled = Recalled()
        self._quota: tuple[QuotaWindow, ...] = ()

    def on_recall(self, recalled: Recalled) -> None:
        self._recalled = recalled

    async def answer(self, reply: ReplyStream) -> Answer:
        """Return the beginning of the answer; errors are raised as long as the client has no status."""
        self._quota = plan_quota(reply.headers)
        self._status = reply.status
        is_stream = reply.media_type == _STREAM
        reader = self._reader = ReplyReader(self._wire, is_stream, reply.encoding)
        if is_stream:
            # A compressed stream passes unchanged, because its event boundaries are unknown.
            stream = self._pieces(reply, reader) if reply.encoding else self._events(reply, reader)
            return Answer(reply.status, _without_length(reply.headers) + _STREAM_HEADERS, b"", stream)
        body, rest = await read_up_to(MAX_HELD_BYTES, self._pieces(reply, reader))
        if rest is not None:
            return Answer(reply.status, tuple(reply.headers), body, rest)
        length = (b"content-length", str(len(body)).encode())
        return Answer(reply.status, (*_without_length(reply.headers), length), body)

    def on_failure(self, error: KimiProxyError) -> None:
        self._outcome = error.code

    def exchange(self) -> Exchange:
        elapsed_s = self._now() - self._began
        reader = self._reader
        facts, events = (reader.facts, reader.events) if reader else (ReplyFacts(), 0)
        noted = self._first_byte_s, elapsed_s, self._recalled, events, self._quota
        return Exchange(self._draft, self._status, self._outcome, facts, *noted)

    async def _pieces(self, reply: ReplyStream, reader: ReplyReader) -> AsyncIterator[bytes]:
        try:
            async for piece in reply.pieces():
                self._note(piece, reader)
                yield piece
        except UpstreamError as e:
            self.on_failure(e)  # the client has its status already: the answer just stops
            raise
        self._outcome = "ok"

    def _note(self, piece: bytes, reader: ReplyReader) -> None:
        if self._first_byte_s is None:
            self._first_byte_s = self._now() - self._began
        reader.feed(piece)

    async def _events(self, reply: ReplyStream, reader: ReplyReader) -> AsyncIterator[bytes]:
        """Yield the stream; if it breaks off, raise UpstreamError, after which the connection must be dropped.

        Agents retry a dropped connection, as they would without us. If the API has an error event, it is sent first. A
        response that is refused ends with one in every API: the agent acts upon the provider's own words.
        """
        wire_format = self._wire.format
        events = EventBuffer(wire_format.hide_usage) if self._draft.hides_usage else EventBuffer()
        try:
            async for piece in reply.pieces():
                self._note(piece, reader)
                if complete := events.feed(piece):
                    yield complete
            self._outcome = "ok"
            facts = reader.facts
            if not reply.is_delimited and not facts.is_complete and not facts.finish:
                raise UpstreamDisconnected("the provider closed the connection before its response was complete")
            if rest := events.end():
                yield rest
        except UpstreamError as e:
            self.on_failure(e)
            if isinstance(e, UpstreamRefused):
                yield events.followed_by(wire_format.refusal_event(e.status, e.body, str(e)))
            elif wire_format.has_error_event or isinstance(e, UpstreamUnreadable):
                yield events.followed_by(wire_format.error_event(e.http_status, e.code, str(e)))
            raise


async def read_up_to(max_bytes: int, pieces: AsyncIterator[bytes]) -> tuple[bytes, AsyncIterator[bytes] | None]:
    """Return a body, or the beginning of a longer one and the rest of it."""
    held = bytearray()
    async for piece in pieces:
        held += piece
        if len(held) > max_bytes:
            return bytes(held), pieces
    return bytes(held), None


def _without_length(headers: list[Header]) -> tuple[Header, ...]:
    return tuple((name, value) for name, value in headers if name != b"content-length")

"""An answer on its way to the client: its bytes first, and a look at them in passing."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from kimi_proxy.core.chat import reply as failure
from kimi_proxy.core.chat.reply import Frames, Observer, Seen
from kimi_proxy.core.errors import KimiProxyError, UpstreamDisconnected, UpstreamError
from kimi_proxy.features.accounting import Recalled
from kimi_proxy.features.pipeline import Draft
from kimi_proxy.proxy.headers import Header

# Until this much of an answer that is no stream has come, a provider that fails can still be reported with a status.
MAX_HELD_BYTES = 1024**2

_STREAM = "text/event-stream"
_STREAM_HEADERS = ((b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no"))


class Reply(Protocol):
    """What a provider answers, as far as it is passed on."""

    status: int
    headers: list[Header]
    media_type: str
    encoding: str

    @property
    def is_delimited(self) -> bool: ...
    def pieces(self) -> AsyncIterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client gets: all of it in `body`, or the beginning, with `rest` to follow."""

    status: int
    headers: tuple[Header, ...]
    body: bytes
    rest: AsyncIterator[bytes] | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """What became of a request, for the record."""

    draft: Draft
    status: int
    outcome: str  # ok, client_gone, or the code of an error
    seen: Seen
    first_byte_s: float | None
    elapsed_s: float
    recalled: Recalled = field(default_factory=Recalled)  # what the model read back on the way


class Relay:
    """What becomes of a request: an answer to pass on, and something to record in any case."""

    def __init__(self, draft: Draft, now: Callable[[], float] = time.monotonic) -> None:
        self._draft = draft
        self._wire = draft.request.wire
        self._now = now
        self._began = now()
        self._first_byte_s: float | None = None
        self._status = 0
        self._outcome = "client_gone"  # unless the last byte is handed over, or something fails
        self._observer = Observer(self._wire, is_stream=True)
        self._recalled = Recalled()

    def heard(self, recalled: Recalled) -> None:
        """What the model has read back so far."""
        self._recalled = recalled

    async def answer(self, reply: Reply) -> Answer:
        """The beginning of the answer; our errors are raised as long as the client has not been told a status."""
        self._status = reply.status
        is_stream = reply.media_type == _STREAM
        self._observer = Observer(self._wire, is_stream, reply.encoding)
        if is_stream:
            # What is packed passes as it is: there is no telling where an event ends in it.
            rest = self._pieces(reply) if reply.encoding else self._events(reply)
            return Answer(reply.status, _without_length(reply.headers) + _STREAM_HEADERS, b"", rest)
        pieces = self._pieces(reply)
        held = bytearray()
        async for piece in pieces:
            held += piece
            if len(held) > MAX_HELD_BYTES:
                return Answer(reply.status, tuple(reply.headers), bytes(held), pieces)
        length = (b"content-length", str(len(held)).encode())
        return Answer(reply.status, (*_without_length(reply.headers), length), bytes(held))

    def failed(self, error: KimiProxyError) -> None:
        self._outcome = error.code

    def exchange(self) -> Exchange:
        elapsed_s, seen = self._now() - self._began, self._observer.seen
        return Exchange(self._draft, self._status, self._outcome, seen, self._first_byte_s, elapsed_s, self._recalled)

    async def _pieces(self, reply: Reply) -> AsyncIterator[bytes]:
        try:
            async for piece in reply.pieces():
                if self._first_byte_s is None:
                    self._first_byte_s = self._now() - self._began
                self._observer.feed(piece)
                yield piece
        except UpstreamError as e:
            self.failed(e)  # whoever hands the answer over can't tell the client any more, and stops
            raise
        self._outcome = "ok"

    async def _events(self, reply: Reply) -> AsyncIterator[bytes]:
        """The stream; when it breaks off, an event says so, because an end alone would look like success."""
        frames = Frames(self._draft.hides_usage)
        try:
            async for piece in self._pieces(reply):
                if whole := frames.feed(piece):
                    yield whole
            if not reply.is_delimited:
                self._refuse_sudden_end()
            if rest := frames.end():
                yield rest
        except UpstreamError as e:
            self.failed(e)
            yield frames.followed_by(failure.event(self._wire, e.http_status, e.code, str(e)))

    def _refuse_sudden_end(self) -> None:
        seen = self._observer.seen
        if not seen.is_complete and not seen.finish:
            raise UpstreamDisconnected("the provider closed the connection before its answer was complete")


def _without_length(headers: list[Header]) -> tuple[Header, ...]:
    return tuple((name, value) for name, value in headers if name != b"content-length")

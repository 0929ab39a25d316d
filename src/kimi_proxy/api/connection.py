"""One client's connection: what it sends must come soon, what it gets must be read, or the line is cut."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """The parser is strict but waits forever for a head that may grow forever; this one does neither."""

    head_s = 10.0
    max_head_bytes = 64 * 1024

    _deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.head_s, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        upgraded = self.transport.get_protocol() is not self
        if upgraded or self._answering():
            self._end_of_head()
        elif not self.transport.is_closing():
            self._more_head(len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_of_head()
        super().connection_lost(exc)

    def _answering(self) -> bool:
        cycle: object = self.cycle  # None before the first request, though its type doesn't say so
        return isinstance(cycle, RequestResponseCycle) and not cycle.response_complete

    def _more_head(self, size: int) -> None:
        self._head_bytes += size
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.head_s, self.transport.abort)
        if self._head_bytes > self.max_head_bytes:
            self.transport.write(TOO_LONG)
            self.transport.close()

    def _end_of_head(self) -> None:
        self._head_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class BoundedSocket(WebSocketsSansIOProtocol):
    """A viewer that no longer reads is cut off: a farewell would wait behind all that it did not read."""

    farewell_s = 1.0

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        if not self.disconnected:
            self.loop.call_later(self.farewell_s, self.transport.abort)

"""A server that speaks MCP on its standard input and output, a message a line."""

import asyncio
import itertools
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress

from kimi_proxy.core import deepjson, mcp, notices
from kimi_proxy.core.errors import UpstreamUnreachable, UpstreamUnreadable
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.proxy.mcp import answers
from kimi_proxy.proxy.mcp.answers import MAX_ANSWER_BYTES, with_id
from kimi_proxy.proxy.mcp.process import STDERR, STDIN, STDOUT, Process

MAX_UNREAD_BYTES = 64 * 1024**2  # what we wrote and the program has not read


class Program(Process):
    """Requests go out under ids of our own, so that two clients with the same id never meet."""

    goodbye_s = 1.0

    def __init__(self, server: str, watch: Callable[[int], None]) -> None:
        super().__init__(server, watch)
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._waiting: dict[int, asyncio.Future[JsonObject]] = {}
        self._hearing: dict[int, tuple[notices.Listener | None, JsonValue]] = {}
        self._ids = itertools.count(1)

    async def send(self, message: JsonObject) -> JsonObject | None:
        """Pass `message` on; a request gets its answer, under the id that it came with."""
        if "id" not in message or "method" not in message:
            self._write(message)
            return None
        call_id = next(self._ids)
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = answer
        self._hearing[call_id] = notices.listener(), mcp.meta_of(message).get(mcp.PROGRESS)
        try:
            self._write(mcp.with_progress_token(with_id(message, call_id), call_id))
            return with_id(await answer, message["id"])
        except asyncio.CancelledError:
            self._cancel(call_id, message)
            raise
        finally:
            del self._waiting[call_id], self._hearing[call_id]

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == STDERR:
            super().pipe_data_received(fd, data)
            return
        for line in self._lines(data):
            for message in self._messages(line):
                self._receive(message)

    def connection_lost(self, exc: Exception | None) -> None:
        for message in self._messages(b"".join(self._partial)):  # a last line may lack its newline
            self._receive(message)
        super().connection_lost(exc)
        self._fail(self.ending)

    def _lines(self, data: bytes) -> Iterator[bytes]:
        if b"\n" not in data:
            self._partial.append(data)
            self._partial_size += len(data)
            if self._partial_size > MAX_ANSWER_BYTES:
                self._give_up(UpstreamUnreadable(f"{self._server} wrote a line of more than {MAX_ANSWER_BYTES} bytes"))
            return
        first, *lines, rest = data.split(b"\n")
        yield b"".join((*self._partial, first))
        self._partial, self._partial_size = [rest], len(rest)
        yield from lines

    def _messages(self, line: bytes) -> Iterator[JsonObject]:
        """What a line says; some servers write greetings between their messages."""
        if line.strip():
            with suppress(UpstreamUnreadable):
                yield from answers.messages(line, self._server)

    def _receive(self, message: JsonObject) -> None:
        reply = answers.reply_to_server(message)
        if reply is not None:
            with suppress(UpstreamUnreachable):
                self._write(reply)
        elif message.get("method") == "notifications/progress":
            self._progress(message)
        elif answers.is_response(message):
            waiting = self._waiting.get(_number(message.get("id")))
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

    def _progress(self, message: JsonObject) -> None:
        """Progress is told under the token that we gave; whoever waits knows it by their own."""
        match message.get("params"):
            case {mcp.PROGRESS: int(call_id)} if call_id in self._hearing:
                heard, token = self._hearing[call_id]
                if heard is not None:
                    heard(mcp.with_progress(message, token))

    def _write(self, message: JsonObject) -> None:
        pipe = self._pipe(STDIN)
        if not self.alive or pipe.is_closing():
            raise UpstreamUnreachable(f"{self._server} has ended: call again to start it anew")
        if pipe.get_write_buffer_size() > MAX_UNREAD_BYTES:
            raise UpstreamUnreachable(f"{self._server} does not read what it is sent")
        pipe.write(deepjson.encode(message) + b"\n")

    def _cancel(self, call_id: int, message: JsonObject) -> None:
        if message.get("method") != "initialize":
            with suppress(UpstreamUnreachable):
                params: JsonObject = {"requestId": call_id, "reason": "nobody waits for the answer any more"}
                self._write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def _give_up(self, error: Exception) -> None:
        self._ending = True
        self._fail(error)
        self._partial.clear()
        self._pipe(STDOUT).close()
        self._signal(signal.SIGKILL)

    def _fail(self, error: Exception) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)


def _number(given: JsonValue) -> int:
    """The number that we gave to a request; some servers give it back as a text, or as 1.0."""
    try:
        return int(float(given)) if isinstance(given, str | int | float) else 0
    except (ValueError, OverflowError):
        return 0

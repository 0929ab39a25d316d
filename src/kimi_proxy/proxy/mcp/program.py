"""One life of a server that speaks MCP on its standard input and output, a message a line."""

import asyncio
import itertools
import os
import signal
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Self, cast

from kimi_proxy.core import deepjson
from kimi_proxy.core.errors import UpstreamUnreachable, UpstreamUnreadable
from kimi_proxy.core.types import JsonObject
from kimi_proxy.proxy.mcp import answers
from kimi_proxy.proxy.mcp.answers import MAX_ANSWER_BYTES, with_id

STDIN, STDOUT, STDERR = 0, 1, 2
MAX_UNREAD_BYTES = 64 * 1024**2  # what we wrote and the program has not read
SAID_BYTES = 64 * 1024  # what we remember of its standard error
GOODBYE_S = 1.0  # for each of: closed input, SIGTERM, SIGKILL


class Program(asyncio.SubprocessProtocol):
    """Requests go out under ids of our own, so that two clients with the same id never meet."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._said = bytearray()
        self._waiting: dict[int, asyncio.Future[JsonObject]] = {}
        self._ids = itertools.count(1)
        self._ending = False
        self._gone = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(cls, server: str, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Self:
        loop = asyncio.get_running_loop()
        try:
            _, program = await loop.subprocess_exec(
                lambda: cls(server),
                *argv,
                env=dict(env),
                cwd=cwd,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as e:
            raise UpstreamUnreachable(f"{server} cannot be started: {e}") from e
        return program

    @property
    def group(self) -> int:
        """The process group of the program and of what it starts."""
        return self._transport.get_pid()

    @property
    def alive(self) -> bool:
        return not self._ending

    @property
    def said(self) -> str:
        """The end of what it wrote on standard error."""
        return self._said.decode("utf-8", "replace")

    async def send(self, message: JsonObject) -> JsonObject | None:
        """Pass `message` on; a request gets its answer, under the id that it came with."""
        if "id" not in message or "method" not in message:
            self._write(message)
            return None
        call_id = next(self._ids)
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = answer
        try:
            self._write(with_id(message, call_id))
            return with_id(await answer, message["id"])
        except asyncio.CancelledError:
            self._cancel(call_id, message)
            raise
        finally:
            del self._waiting[call_id]

    async def end(self) -> None:
        """Ask it to leave, then make it: input closed, SIGTERM, SIGKILL to the whole group."""
        self._ending = True
        self._pipe(STDIN).close()
        for number in (signal.SIGTERM, signal.SIGKILL, None):
            await asyncio.wait({self._gone}, timeout=GOODBYE_S)
            if not self._gone.done() and number is not None:
                self._signal(number)
        self._transport.close()
        await asyncio.shield(self._gone)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == STDERR:
            self._said += data
            del self._said[:-SAID_BYTES]
            return
        for line in self._lines(data):
            for message in self._messages(line):
                self._receive(message)

    def process_exited(self) -> None:
        """What it left behind goes too; the pipes close then, once they are read to the end."""
        self._ending = True
        self._signal(signal.SIGKILL)
        asyncio.get_running_loop().call_later(GOODBYE_S, self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set_result(None)
        self._transport.close()
        code = self._transport.get_returncode()
        words = self.said.strip().splitlines()[-1:]
        why = f" after saying: {words[0][:300]}" if words else ""
        self._fail(UpstreamUnreachable(f"{self._server} ended with status {code}{why}"))

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
        elif answers.is_response(message):
            given = message.get("id")
            waiting = self._waiting.get(given) if isinstance(given, int) else None
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

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

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, number)

    def _pipe(self, fd: int) -> asyncio.WriteTransport:  # standard output's is closed, never written
        return cast(asyncio.WriteTransport, self._transport.get_pipe_transport(fd))

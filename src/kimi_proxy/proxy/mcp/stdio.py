"""MCP servers that are our child processes, called over their standard input and output, or over HTTP."""

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from kimi_proxy.core import json, jsonrpc, mcp
from kimi_proxy.core.addresses import Address, show_address
from kimi_proxy.core.errors import UpstreamError, UpstreamUnreachable, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.proxy.mcp import protocol
from kimi_proxy.proxy.mcp.program import ServerProcess, ServerProgram
from kimi_proxy.proxy.mcp.protocol import MAX_ANSWER_BYTES, McpClient, ServerIntroduction, within
from kimi_proxy.proxy.process import SIGKILL, STDERR, STDIN, STDOUT, Command, OrphanCleanup

MAX_UNREAD_BYTES = 64 * 1024**2  # the data that we wrote and the program has not read


class StdioProcess(ServerProcess):
    """Requests go out under ids of our own, so that two clients with the same id never meet."""

    leave_s = 1.0

    def __init__(self, server: str, orphans: OrphanCleanup | None = None, secrets: Sequence[str] = ()) -> None:
        super().__init__(server, orphans, secrets)
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._waiting: dict[int, asyncio.Future[JsonObject]] = {}
        self._listeners: dict[int, tuple[jsonrpc.Listener | None, JsonValue]] = {}  # with the caller's progress token
        self._ids = itertools.count(1)
        self._reading: set[asyncio.Task[None]] = set()  # long lines, in threads
        self._failing: asyncio.Task[None] | None = None

    async def send(self, message: JsonObject) -> JsonObject | None:
        """Write `message`; return the response to a request, with its original id."""
        if "id" not in message or "method" not in message:
            self._write(message)
            return None
        call_id = next(self._ids)
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = answer
        self._listeners[call_id] = jsonrpc.listener(), mcp.meta_of(message).get(mcp.PROGRESS)
        try:
            self._write(mcp.with_progress_token(jsonrpc.with_id(message, call_id), call_id))
            return jsonrpc.with_id(await answer, message["id"])
        except asyncio.CancelledError:
            self._cancel(call_id, message)
            raise
        finally:
            del self._waiting[call_id], self._listeners[call_id]

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == STDERR:
            super().pipe_data_received(fd, data)
            return
        for pieces in self._lines(data):
            if sum(map(len, pieces)) > json.MAX_READ_BYTES:
                task = asyncio.get_running_loop().create_task(self._receive_long(pieces))
                self._reading.add(task)
                task.add_done_callback(self._reading.discard)
                continue
            for message in self._messages(pieces):
                self._receive(message)

    async def _receive_long(self, pieces: Sequence[bytes]) -> None:
        for message in await asyncio.to_thread(lambda: list(self._messages(pieces))):
            self._receive(message)

    def connection_lost(self, exc: Exception | None) -> None:
        for message in self._messages(self._partial):  # a last line may lack its newline
            self._receive(message)
        super().connection_lost(exc)
        if self._reading:
            self._failing = asyncio.get_running_loop().create_task(self._fail_when_read())
        else:
            self._fail(self.ending)

    async def _fail_when_read(self) -> None:
        """Deliver the program's remaining output to waiting calls before they fail."""
        await asyncio.wait(self._reading)
        self._fail(self.ending)

    def _lines(self, data: bytes) -> Iterator[Sequence[bytes]]:
        """Yield each complete line, in the chunks in which it arrived: a long one is joined in a thread."""
        if b"\n" not in data:
            self._partial.append(data)
            self._partial_size += len(data)
            if self._partial_size > MAX_ANSWER_BYTES:
                self._give_up(UpstreamUnreadable(f"{self._server} wrote a line of more than {MAX_ANSWER_BYTES} bytes"))
            return
        first, *lines, rest = data.split(b"\n")
        yield (*self._partial, first)
        self._partial = [rest]
        self._partial_size = len(rest)
        yield from ((line,) for line in lines)

    def _messages(self, pieces: Sequence[bytes]) -> Iterator[JsonObject]:
        """Yield the messages of a line; some servers write greetings between their messages."""
        line = b"".join(pieces)
        if line.strip():
            with suppress(UpstreamUnreadable):
                yield from jsonrpc.messages(line, self._server)

    def _receive(self, message: JsonObject) -> None:
        reply = protocol.reply_to_server(message)
        if reply is not None:
            with suppress(UpstreamUnreachable):
                self._write(reply)
        elif message.get("method") == "notifications/progress":
            self._progress(message)
        elif jsonrpc.is_response(message):
            waiting = self._waiting.get(_number(message.get("id")))
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

    def _progress(self, message: JsonObject) -> None:
        """Pass progress on, which comes under the token that we gave, under the caller's own."""
        match message.get("params"):
            case {mcp.PROGRESS: int(call_id)} if call_id in self._listeners:
                listener, token = self._listeners[call_id]
                if listener is not None:
                    listener(mcp.with_progress(message, token))

    def _write(self, message: JsonObject) -> None:
        pipe = self._pipe(STDIN)
        if not self.is_alive or pipe.is_closing():
            raise UpstreamUnreachable(f"{self._server} has exited: call again to restart it")
        if pipe.get_write_buffer_size() > MAX_UNREAD_BYTES:
            raise UpstreamUnreachable(f"{self._server} does not read its input")
        pipe.write(json.encode(message) + b"\n")

    def _cancel(self, call_id: int, message: JsonObject) -> None:
        if message.get("method") != "initialize":
            with suppress(UpstreamUnreachable):
                params: JsonObject = {
                    "requestId": call_id,
                    "reason": "the caller no longer waits for the answer",
                }
                self._write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def _give_up(self, error: Exception) -> None:
        self.is_alive = False
        self._fail(error)
        self._partial.clear()
        self._pipe(STDOUT).close()
        self._signal(SIGKILL)

    def _fail(self, error: Exception) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)


def _number(given: JsonValue) -> int:
    """Return the number that we gave to a request; some servers give it back as a text, or as 1.0."""
    try:
        return int(float(given)) if isinstance(given, str | int | float) else 0
    except (ValueError, OverflowError):
        return 0


class StdioClient:
    """A program of ours that reads requests on its standard input."""

    def __init__(
        self,
        server: str,
        command: Command,
        start_timeout_s: float,
        orphans: OrphanCleanup,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self.program = ServerProgram(server, command, StdioProcess, self._connect, start_timeout_s, orphans, now)

    async def forward(self, message: JsonObject, timeout_s: float) -> JsonObject | None:
        running = await self.program.running()
        async with within(self._server, timeout_s):
            return await protocol.forward_translated(running.connection, message, running.process.send)

    async def close(self) -> None:
        await self.program.close()

    async def _connect(self, process: StdioProcess) -> ServerIntroduction:
        """Try the handshake first: a program that knows only that may be silent about `server/discover`."""
        match await process.send(protocol.INITIALIZE):
            case {"result": dict(about)}:
                await process.send(protocol.INITIALIZED)
                return ServerIntroduction(False, about)
        match await process.send(protocol.DISCOVER):
            case {"result": dict(about)}:
                return ServerIntroduction(True, about)
            case {"error": {"message": problem}}:
                raise UpstreamError(f"{self._server} refused the handshake: {str(problem)[:200]}")
        raise UpstreamUnreadable(f"{self._server} did not complete the handshake")


LOOK_EVERY_S = 0.1
ANSWER_S = 2.0
PORTS = {"http": 80, "https": 443}


class HttpProgramClient:
    """A program of ours that serves HTTP. `client` makes a new client for every run: a session does not outlive it."""

    def __init__(
        self,
        server: str,
        url: str,
        command: Command,
        client: Callable[[], McpClient],
        start_timeout_s: float,
        orphans: OrphanCleanup,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._url = url
        self._fresh = client
        self._client: McpClient | None = None
        self.program = ServerProgram(
            server, command, ServerProcess, self._connect, start_timeout_s, orphans, now, self._refuse_taken_port
        )

    async def forward(self, message: JsonObject, timeout_s: float) -> JsonObject | None:
        running = await self.program.running()
        return await running.connection.forward(message, timeout_s)

    async def close(self) -> None:
        await self.program.close()
        await self._drop()

    async def _drop(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def _connect(self, process: ServerProcess) -> McpClient:
        """Return a client once the program answers like an MCP server; one that ended is not waited for."""
        await self._drop()
        self._client = client = self._fresh()
        gone = asyncio.create_task(process.wait_closed())
        try:
            while not await _unless(gone, self._ask_name(client)):
                await asyncio.wait({gone}, timeout=LOOK_EVERY_S)
                if gone.done():
                    raise process.ending
            return client
        finally:
            gone.cancel()

    async def _ask_name(self, client: McpClient) -> str:
        """Return the name of the MCP server that answers; empty if none does yet."""
        try:
            answer = await client.forward(protocol.INITIALIZE, ANSWER_S)
        except UpstreamError:
            return ""
        match answer:
            case {"result": {"serverInfo": {"name": str(name)}}}:
                return name or "an MCP server without a name"
        return ""

    async def _refuse_taken_port(self) -> None:
        """Raise UpstreamUnreachable if another program holds the port: ours could only fail, or hide behind it."""
        where = urlsplit(self._url)
        try:
            async with asyncio.timeout(ANSWER_S):
                _, line = await asyncio.open_connection(where.hostname, where.port or PORTS[where.scheme])
        except (OSError, TimeoutError):
            return
        line.close()
        with suppress(OSError):
            await line.wait_closed()
        client = self._fresh()
        holder = await self._ask_name(client)
        await client.close()
        raise UpstreamUnreachable(
            f"{self._server} cannot be started: its port is taken",
            detail=f": {show_address(Address(self._url))} is used by {holder or 'another program'}; "
            "stop that program, or choose another port for this server",
        )


async def _unless(gone: asyncio.Task[None], work: Coroutine[None, None, str]) -> str:
    """Return the result of `work`, or an empty string if the program exits first."""
    doing = asyncio.ensure_future(work)
    try:
        await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else ""
    finally:
        doing.cancel()
        await asyncio.wait({doing})

"""MCP on standard input and output, for a client that is our parent process.

Threads read and write, because pipes, terminals and files each lack some kind of asynchronous access. They are daemon
threads on unbuffered files: waiting for a silent client must not keep the process alive.
"""

import asyncio
import os
import select
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from io import FileIO
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import TypeAlias

from kimi_proxy.api import mcp
from kimi_proxy.api.mcp import MCP, Catalog, rpc_failure
from kimi_proxy.core import json, jsonrpc
from kimi_proxy.core.caller import ANONYMOUS, LOCAL, Caller
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonValue

SLICE_BYTES = 64 * 1024
STDERR = 2
MAX_LINE_BYTES = 64 * 1024**2
MAX_CONCURRENT = 64
CHECK_S = 0.2
INTRODUCTIONS = frozenset({"initialize", "ping", "server/discover"})  # need no tool
DRAIN_S = 30.0  # input that ended still wants its answers; a client that left kills us sooner
COMMAND_DRAIN_S = 0.2  # time limit of a tool that does more than read, because no client is left to stop it

# Gives the tools, and whom they work for.
LoadTools: TypeAlias = Callable[[], AbstractAsyncContextManager[tuple[Catalog, Caller]]]


class LineSplitter:
    """Splits slices of any size into lines; yields None for a line longer than `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._too_long = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._add(piece)
            yield self._end()
        self._add(rest)

    def end(self) -> Iterator[bytes | None]:
        """Yield the last line if it has no newline."""
        if self._partial or self._too_long:
            yield self._end()

    def _add(self, piece: bytes) -> None:
        self._too_long = self._too_long or len(self._partial) + len(piece) > self._limit
        if self._too_long:
            self._partial.clear()
        else:
            self._partial += piece

    def _end(self) -> bytes | None:
        line = None if self._too_long else bytes(self._partial)
        self._partial.clear()
        self._too_long = False
        return line


class LineReader:
    """Iterates over the lines of `source`; at most `room` of them are read and not yet `done`."""

    def __init__(self, source: FileIO, limit: int, room: int) -> None:
        self._source = source
        self._lines = LineSplitter(limit)
        self._room = Semaphore(room)
        self._arrived: asyncio.Queue[tuple[bytes | None] | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    async def __aiter__(self) -> AsyncIterator[bytes | None]:
        Thread(target=self._read, name="stdin", daemon=True).start()
        while (item := await self._arrived.get()) is not None:
            yield item[0]

    def close(self) -> None:
        self._room.release()

    def stop(self) -> None:
        """Yield no more lines than have arrived."""
        self._arrived.put_nowait(None)

    def _read(self) -> None:
        try:
            for data in self._slices():
                self._hand_over(self._lines.feed(data))
            self._hand_over(self._lines.end())
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, None)
        except RuntimeError:  # the loop was closed while we waited for the client
            return

    def _slices(self) -> Iterator[bytes]:
        with suppress(OSError):  # a terminal that was closed
            while (data := self._source.read(SLICE_BYTES)) != b"":
                if data is None:  # a non-blocking pipe
                    select.select([self._source], [], [])
                else:
                    yield data

    def _hand_over(self, lines: Iterator[bytes | None]) -> None:
        for line in lines:
            self._room.acquire()
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, (line,))


class LineWriter:
    """Writes whole lines to `target`, one after the other; `write` returns False once they have no reader."""

    def __init__(self, target: FileIO) -> None:
        self._target = target
        self._waiting: SimpleQueue[tuple[bytes, asyncio.Future[bool]]] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        Thread(target=self._write, name="stdout", daemon=True).start()

    async def write(self, line: bytes) -> bool:
        written: asyncio.Future[bool] = self._loop.create_future()
        self._waiting.put((line + b"\n", written))
        return await written

    def has_reader(self) -> bool:
        """Return False if the other end of a pipe is closed; a file or a terminal always counts as read."""
        if sys.platform == "win32":
            return True
        poll = select.poll()
        poll.register(self._target.fileno(), 0)
        return not any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))

    def _write(self) -> None:
        while True:
            line, written = self._waiting.get()
            delivered = self._deliver(line)
            try:
                self._loop.call_soon_threadsafe(_settle, written, delivered)
            except RuntimeError:  # the loop was closed while the client read
                return

    def _deliver(self, line: bytes) -> bool:
        left = memoryview(line)
        try:
            while left:
                left = left[self._target.write(left) or 0 :]
        except (OSError, ValueError):  # ValueError: the conversation has ended, and the stream is closed
            return False
        return True


def _settle(written: asyncio.Future[bool], delivered: bool) -> None:
    if not written.done():
        written.set_result(delivered)


@contextmanager
def redirect_streams(stdin: FileIO, stdout: FileIO) -> Iterator[tuple[FileIO, FileIO]]:
    """Reserve both streams for one conversation; all other output goes to standard error."""
    sys.stdout.flush()
    wire_in = os.dup(stdin.fileno())
    wire_out = os.dup(stdout.fileno())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, stdin.fileno())
    os.dup2(STDERR, stdout.fileno())
    os.close(nothing)
    try:
        yield FileIO(wire_in, "rb", closefd=False), FileIO(wire_out, "wb", closefd=False)
    finally:
        sys.stdout.flush()
        os.dup2(wire_in, stdin.fileno())
        os.dup2(wire_out, stdout.fileno())


async def converse(catalog: Catalog, stdin: FileIO, stdout: FileIO, load: LoadTools | None = None) -> None:
    """Answer every line of `stdin` on `stdout`, many at a time, until it ends.

    With `load`, `catalog` introduces the server, and its tools are loaded when the first answer is out: many clients
    wait a few seconds for that answer and give the server up. What fails in loading them ends the conversation.
    """
    reader = LineReader(stdin, MAX_LINE_BYTES, MAX_CONCURRENT)
    late = LateCatalog(load or _load_from(catalog))
    loading = asyncio.create_task(late.run())
    loading.add_done_callback(lambda _: reader.stop())
    conversation = StdioConversation(catalog, LineWriter(stdout), late)
    try:
        async for line in reader:
            conversation.receive(line, reader.close)
        await conversation.end()
    finally:
        late.end()
        await loading


def _load_from(catalog: Catalog) -> LoadTools:
    @asynccontextmanager
    async def load() -> AsyncIterator[tuple[Catalog, Caller]]:
        yield catalog, LOCAL

    return load


class LateCatalog:
    """The tools of a server, from its first answer to the end of the conversation."""

    def __init__(self, load: LoadTools) -> None:
        self._load = load
        self._catalog: asyncio.Future[tuple[Catalog, Caller]] = asyncio.get_running_loop().create_future()
        self._wanted = asyncio.Event()
        self._ended = asyncio.Event()

    def begin(self) -> None:
        self._wanted.set()

    def end(self) -> None:
        self._ended.set()
        self._wanted.set()

    async def run(self) -> None:
        """Load the tools once they are wanted, and keep them until the end. Raise what fails."""
        try:
            await self._wanted.wait()
            if not self._ended.is_set():
                async with self._load() as catalog:
                    self._catalog.set_result(catalog)
                    await self._ended.wait()
        finally:
            self._catalog.cancel()  # who waits for it gets no answer: the process ends

    async def get(self) -> tuple[Catalog, Caller]:
        """Return the tools, and whom they work for. Raise CancelledError if they could not be loaded."""
        self.begin()
        return await asyncio.shield(self._catalog)


class StdioConversation:
    """The requests that are being answered; the client may cancel each of them."""

    def __init__(self, introduction: Catalog, writer: LineWriter, late: LateCatalog) -> None:
        self._introduction = introduction
        self._late = late
        self._writer = writer
        self._answering: set[asyncio.Task[None]] = set()
        self._by_id: dict[tuple[type, str | int], asyncio.Task[None]] = {}
        self._commands: dict[asyncio.Task[None], float] = {}  # that do more than read, with when they began

    def receive(self, line: bytes | None, done: Callable[[], None]) -> None:
        """Start to respond to a line; None means that the line was too long."""
        task = asyncio.create_task(self._answer(line))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        task.add_done_callback(lambda _: done())

    async def end(self) -> None:
        """Finish the open requests; cancel what takes too long or has no reader any more."""
        ended = time.monotonic()
        while self._answering and time.monotonic() < ended + DRAIN_S and self._writer.has_reader():
            await asyncio.wait(self._answering, timeout=CHECK_S)
            for task, began in tuple(self._commands.items()):
                if time.monotonic() > max(ended, began) + COMMAND_DRAIN_S:
                    task.cancel()
        for task in tuple(self._answering):
            task.cancel()

    async def _answer(self, line: bytes | None) -> None:
        if line is not None and not line.strip():
            return
        try:
            message = _message(line)
        except ParseError as e:
            mcp.log_unreadable(e)
            await self._send(rpc_failure(None, e))
            return
        match message:
            case {"method": "notifications/cancelled", "params": {"requestId": str() | int() as request}}:
                self._cancel(request)
            case {"method": str(method), "id": str() | int() as request}:
                await self._answer_request(message, method, request)
                self._late.begin()
            case _:
                catalog, who = await self._late.get()
                await self._send((await mcp.reply_to(who, message, MCP, catalog)).value)

    async def _answer_request(self, message: JsonValue, method: str, request: str | int) -> None:
        key = (type(request), request)  # 1 and "1" are two requests
        task = asyncio.current_task()
        if task is not None:
            self._by_id[key] = task
        listeners = jsonrpc.collect()
        try:
            is_known = method in INTRODUCTIONS
            catalog, who = (self._introduction, ANONYMOUS) if is_known else await self._late.get()
            if task is not None and _has_side_effects(message, catalog):
                self._commands[task] = time.monotonic()
            reply = await mcp.reply_to(who, message, MCP, catalog)
        finally:
            self._by_id.pop(key, None)
            if task is not None:
                self._commands.pop(task, None)
        jsonrpc.report(listeners, await self._send(reply.value))

    def _cancel(self, request: str | int) -> None:
        task = self._by_id.get((type(request), request))
        if task is not None:
            task.cancel()

    async def _send(self, value: JsonValue) -> bool:
        return value is None or await self._writer.write(json.encode(value))


def _message(line: bytes | None) -> JsonValue:
    if line is None:
        raise ParseError(f"a line has at most {MAX_LINE_BYTES} bytes")
    return json.decode(line)


async def serve_stdio(catalog: Catalog, load: LoadTools | None = None) -> None:
    """Serve on standard output, reserved for this, until standard input ends."""
    with redirect_streams(FileIO(0, closefd=False), FileIO(1, "w", closefd=False)) as (source, target):
        await converse(catalog, source, target, load)


def _has_side_effects(message: JsonValue, catalog: Catalog) -> bool:
    match message:
        case {"method": "tools/call", "params": {"name": str(name)}} if name in catalog.tools:
            return not catalog.tools[name].read_only
    return False

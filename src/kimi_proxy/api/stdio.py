"""Doors for a client that is our parent process."""

import asyncio
import os
import select
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from queue import SimpleQueue
from threading import Semaphore, Thread

from kimi_proxy.api import mcp
from kimi_proxy.api.apps import pruner_catalog, tools_catalog
from kimi_proxy.api.errors import rpc_failure
from kimi_proxy.api.mcp import MCP, Catalog
from kimi_proxy.core import json, jsonrpc
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonValue
from kimi_proxy.services.runtime import Runtime
from kimi_proxy.services.tools.request import parse_failed

# Standard input and output as an event loop can use them: lines in, lines out, never blocking it.
#
# Threads read and write, because pipes, terminals and files each refuse another kind of asynchronous access.
# They are daemons on unbuffered files: one that waits for a silent client must not keep the process alive.

SLICE_BYTES = 64 * 1024
STDERR = 2


class Lines:
    """Cuts slices of any size into lines; a line longer than `limit` comes out as None."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun = bytearray()
        self._too_long = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        *ended, begun = data.split(b"\n")
        for piece in ended:
            self._add(piece)
            yield self._end()
        self._add(begun)

    def end(self) -> Iterator[bytes | None]:
        """The last line, if it has no newline."""
        if self._begun or self._too_long:
            yield self._end()

    def _add(self, piece: bytes) -> None:
        self._too_long = self._too_long or len(self._begun) + len(piece) > self._limit
        if self._too_long:
            self._begun.clear()
        else:
            self._begun += piece

    def _end(self) -> bytes | None:
        line = None if self._too_long else bytes(self._begun)
        self._begun.clear()
        self._too_long = False
        return line


class LineReader:
    """The lines of `source`; at most `room` of them are taken up and not yet `done`."""

    def __init__(self, source: FileIO, limit: int, room: int) -> None:
        self._source = source
        self._lines = Lines(limit)
        self._room = Semaphore(room)
        self._arrived: asyncio.Queue[tuple[bytes | None] | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    async def __aiter__(self) -> AsyncIterator[bytes | None]:
        Thread(target=self._read, name="stdin", daemon=True).start()
        while (item := await self._arrived.get()) is not None:
            yield item[0]

    def done(self) -> None:
        self._room.release()

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
                if data is None:  # whoever started us chose a pipe that does not block
                    select.select([self._source], [], [])
                else:
                    yield data

    def _hand_over(self, lines: Iterator[bytes | None]) -> None:
        for line in lines:
            self._room.acquire()
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, (line,))


class LineWriter:
    """Whole lines to `target`, one after the other; False once nobody reads them."""

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
        """Whether anybody may still read; a file or a terminal always has somebody."""
        if not hasattr(select, "poll"):
            return True
        poll = select.poll()
        poll.register(self._target.fileno(), 0)
        return not any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))

    def _write(self) -> None:
        while True:
            line, written = self._waiting.get()
            delivered = self._delivered(line)
            try:
                self._loop.call_soon_threadsafe(_settle, written, delivered)
            except RuntimeError:  # the loop was closed while the client read
                return

    def _delivered(self, line: bytes) -> bool:
        left = memoryview(line)
        try:
            while left:
                left = left[self._target.write(left) or 0 :]
        except OSError:
            return False
        return True


def _settle(written: asyncio.Future[bool], delivered: bool) -> None:
    if not written.done():
        written.set_result(delivered)


@contextmanager
def private(stdin: FileIO, stdout: FileIO) -> Iterator[tuple[FileIO, FileIO]]:
    """Both streams for one conversation alone; whatever else prints meanwhile goes to standard error."""
    sys.stdout.flush()
    wire_in, wire_out, nothing = os.dup(stdin.fileno()), os.dup(stdout.fileno()), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, stdin.fileno())
    os.dup2(STDERR, stdout.fileno())
    os.close(nothing)
    try:
        yield FileIO(wire_in, "rb", closefd=False), FileIO(wire_out, "wb", closefd=False)
    finally:
        sys.stdout.flush()
        os.dup2(wire_in, stdin.fileno())
        os.dup2(wire_out, stdout.fileno())


MAX_LINE_BYTES = 64 * 1024**2
MAX_IN_FLIGHT = 64
LOOK_EVERY_S = 0.2
DRAIN_S = 30.0  # a pipe that ended still wants its answers; a client that left kills us sooner


async def converse(catalog: Catalog, stdin: FileIO, stdout: FileIO) -> None:
    """Answer every line of `stdin` on `stdout`, many at a time, until it ends."""
    reader = LineReader(stdin, MAX_LINE_BYTES, MAX_IN_FLIGHT)
    talk = Conversation(catalog, LineWriter(stdout))
    async for line in reader:
        talk.hear(line, reader.done)
    await talk.end()


class Conversation:
    """Requests that are being answered; the client may take each of them back."""

    def __init__(self, catalog: Catalog, writer: LineWriter) -> None:
        self._catalog = catalog
        self._writer = writer
        self._answering: set[asyncio.Task[None]] = set()
        self._by_id: dict[tuple[type, str | int], asyncio.Task[None]] = {}

    def hear(self, line: bytes | None, done: Callable[[], None]) -> None:
        """Begin to answer a line; None stands for one that was too long to read."""
        task = asyncio.create_task(self._answer(line))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        task.add_done_callback(lambda _: done())

    async def end(self) -> None:
        """Finish what was asked; whatever takes too long, or has no reader any more, is dropped."""
        deadline = time.monotonic() + DRAIN_S
        while self._answering and time.monotonic() < deadline and self._writer.has_reader():
            await asyncio.wait(self._answering, timeout=LOOK_EVERY_S)
        for task in tuple(self._answering):
            task.cancel()

    async def _answer(self, line: bytes | None) -> None:
        if line is not None and not line.strip():
            return
        try:
            message = _message(line)
        except ParseError as e:
            parse_failed(str(e))
            await self._say(rpc_failure(None, e))
            return
        match message:
            case {"method": "notifications/cancelled", "params": {"requestId": str() | int() as request}}:
                self._take_back(request)
            case {"method": str(), "id": str() | int() as request}:
                await self._answer_request(message, request)
            case _:
                await self._say((await mcp.reply_to(message, MCP, self._catalog)).value)

    async def _answer_request(self, message: JsonValue, request: str | int) -> None:
        key = (type(request), request)  # 1 and "1" are two requests
        task = asyncio.current_task()
        if task is not None:
            self._by_id[key] = task
        listeners = jsonrpc.collect()
        try:
            reply = await mcp.reply_to(message, MCP, self._catalog)
        finally:
            self._by_id.pop(key, None)
        jsonrpc.report(listeners, await self._say(reply.value))

    def _take_back(self, request: str | int) -> None:
        task = self._by_id.get((type(request), request))
        if task is not None:
            task.cancel()

    async def _say(self, value: JsonValue) -> bool:
        return value is None or await self._writer.write(json.encode(value))


def _message(line: bytes | None) -> JsonValue:
    if line is None:
        raise ParseError(f"a line has at most {MAX_LINE_BYTES} bytes")
    return json.decode(line)


async def serve_stdio(runtime: Runtime, stdin: FileIO, stdout: FileIO) -> None:
    """Answer the client on `stdout`, where nothing else is ever written, until `stdin` ends."""
    with private(stdin, stdout) as (source, target):
        await converse(pruner_catalog(runtime), source, target)


async def serve_tools_stdio(runtime: Runtime, stdin: FileIO, stdout: FileIO) -> None:
    """The same for an agent that wants read, grep and bash."""
    with private(stdin, stdout) as (source, target):
        await converse(tools_catalog(runtime), source, target)

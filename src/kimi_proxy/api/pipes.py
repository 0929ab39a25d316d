"""Standard input and output as an event loop can use them: lines in, lines out, never blocking it.

Threads read and write, because pipes, terminals and files each refuse another kind of asynchronous access.
They are daemons on unbuffered files: one that waits for a silent client must not keep the process alive.
"""

import asyncio
import os
import select
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from queue import SimpleQueue
from threading import Semaphore, Thread

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

"""A conversation over a pair of pipes: one JSON message a line, many requests at a time."""

import asyncio
import time
from collections.abc import Callable
from io import FileIO

from kimi_proxy.api import mcp
from kimi_proxy.api.catalog import Catalog
from kimi_proxy.api.eras import MCP
from kimi_proxy.api.errors import rpc_failure
from kimi_proxy.api.pipes import LineReader, LineWriter
from kimi_proxy.core import delivery, jsontext
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.types import JsonValue
from kimi_proxy.services.tools.request import parse_failed

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
        listeners = delivery.collect()
        try:
            reply = await mcp.reply_to(message, MCP, self._catalog)
        finally:
            self._by_id.pop(key, None)
        delivery.tell(listeners, await self._say(reply.value))

    def _take_back(self, request: str | int) -> None:
        task = self._by_id.get((type(request), request))
        if task is not None:
            task.cancel()

    async def _say(self, value: JsonValue) -> bool:
        return value is None or await self._writer.write(jsontext.encode(value))


def _message(line: bytes | None) -> JsonValue:
    if line is None:
        raise ParseError(f"a line has at most {MAX_LINE_BYTES} bytes")
    return jsontext.decode(line)

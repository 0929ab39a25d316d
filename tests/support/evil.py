"""A provider scripted byte by byte over raw TCP: it misbehaves in ways no library would, and notes when it is left."""

import asyncio
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.support import tcp

from kimi_proxy.core.json import JsonValue

STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Heard:
    """A request as it came."""

    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    method: str = ""

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name]
        assert len(found) < 2, found
        return found[0] if found else None


class Line:
    """The connection, from the provider's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_open = True

    async def send(self, *pieces: bytes) -> None:
        """Each piece in a packet of its own, as far as that can be had."""
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()
            await asyncio.sleep(0)

    async def stream(self, *events: bytes, ends: bool = True) -> None:
        await self.send(STREAM_HEAD, *map(chunk, events), *([LAST_CHUNK] if ends else []))

    async def until_left(self, within_s: float = 60) -> None:
        """Wait for the other side to hang up."""
        with suppress(ConnectionError):
            async with asyncio.timeout(within_s):
                while await self._reader.read(1 << 16):
                    pass
        self.is_open = False

    def finish(self) -> None:
        self._writer.close()
        self.is_open = False

    def reset(self) -> None:
        """End as a crash does, without a goodbye."""
        linger = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort()
        self.is_open = False


Script = Callable[[Heard, Line], Awaitable[None]]


@dataclass(slots=True)
class Evil:
    port: int = 0
    heard: list[Heard] = field(default_factory=list)
    connections: int = 0
    left_at: list[float] = field(default_factory=list)  # when a script saw its connection end

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def toml(self, kind: str = "openai", **more: JsonValue) -> str:
        """Settings that make this the only provider."""
        lines = [f"[providers.{kind}-evil]", f'type = "{kind}"', f'base_url = "{self.url}"']
        return "\n".join((*lines, *(f"{key} = {json.dumps(value)}" for key, value in more.items()))) + "\n"


@asynccontextmanager
async def evil(script: Script, lists: bool = False) -> AsyncIterator[Evil]:
    """Run `script` for every request, on connections that stay open until it ends them.

    Without `lists` it has no list of models.
    """
    provider = Evil()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        provider.connections += 1
        line = Line(reader, writer)
        while line.is_open and (heard := await _request(reader)) is not None:
            if is_listing(heard) and not lists:
                await line.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            provider.heard.append(heard)
            try:
                await script(heard, line)
            finally:
                if not line.is_open:
                    provider.left_at.append(time.monotonic())

    async with tcp.listening(talk) as provider.port:
        yield provider


def is_listing(heard: Heard) -> bool:
    """Whether we are asked for our models, which happens beside the requests of clients."""
    return heard.target.partition("?")[0].endswith("/models") and not heard.body


async def _request(reader: asyncio.StreamReader) -> Heard | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        headers = tuple((name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines))
        body = await reader.readexactly(int(dict(headers).get("content-length", "0")))
    except asyncio.IncompleteReadError:
        return None
    method, target, *_ = first.split(" ")
    return Heard(target, headers, body, method)


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def http(body: bytes, status: str = "200 OK", kind: str = "application/json", *more: str) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *more)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answering(*pieces: bytes) -> Script:
    """The same bytes for every request."""

    async def script(heard: Heard, line: Line) -> None:
        await line.send(*pieces)

    return script


def streaming(*events: bytes) -> Script:
    async def script(heard: Heard, line: Line) -> None:
        await line.stream(*events)

    return script

"""A swe-pruner server that does what a script says, byte for byte."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[str]:
    """A server that answers every connection by `script`, byte for byte."""

    talking: set[asyncio.Task[None]] = set()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talking.add(task)
        try:
            await script(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            talking.discard(task)
            writer.close()

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(talking):
            task.cancel()
        if talking:
            await asyncio.wait(list(talking), timeout=60)


async def request_of(reader: asyncio.StreamReader) -> tuple[str, dict[str, object]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(line.split(":")[1] for line in head.lower().split("\r\n") if line.startswith("content-length"))
    return head.split("\r\n")[0], json.loads(await reader.readexactly(int(length)))


def saying(raw: bytes, then: Callable[[], Awaitable[object]] | None = None) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(raw)
        await writer.drain()
        if then is not None:
            await then()

    return script


def response(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


def answering(value: object) -> Script:
    return saying(response(json.dumps(value).encode()))

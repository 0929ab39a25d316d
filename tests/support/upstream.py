"""An MCP server scripted byte by byte over raw TCP, so that it can misbehave in ways no library would."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.support import tcp

from kimi_proxy.core.json import JsonObject, JsonValue


@dataclass(frozen=True, slots=True)
class Heard:
    """A request as it came."""

    method: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> JsonObject:
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value

    @property
    def asked(self) -> str:
        """The JSON-RPC method, or the HTTP method of a request without a body."""
        return str(self.message.get("method", "response")) if self.body else self.method


Pieces = bytes | Iterable[bytes]
Script = Callable[[Heard], Pieces | Awaitable[Pieces]]


@dataclass(slots=True)
class Upstream:
    port: int
    heard: list[Heard] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def asked(self) -> list[str]:
        return [heard.asked for heard in self.heard]


@asynccontextmanager
async def scripted(script: Script, port: int = 0) -> AsyncIterator[Upstream]:
    """Answer each request with the bytes that `script` gives; no bytes at all hang up."""
    upstream = Upstream(port)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (heard := await _request(reader)) is not None:
            upstream.heard.append(heard)
            pieces = script(heard)
            pieces = pieces if isinstance(pieces, bytes | Iterable) else await pieces
            if not pieces:
                return
            for piece in [pieces] if isinstance(pieces, bytes) else pieces:
                writer.write(piece)
                await writer.drain()

    async with tcp.listening(talk, port) as upstream.port:
        yield upstream


async def _request(reader: asyncio.StreamReader) -> Heard | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Heard(first.split(" ")[0], headers, body)


def http(body: bytes, status: str = "200 OK", kind: str = "application/json", *more: str) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *more)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answer(heard: Heard, result: JsonValue, *more: str) -> bytes:
    value = {"jsonrpc": "2.0", "id": heard.message["id"], "result": result}
    return http(json.dumps(value).encode(), "200 OK", "application/json", *more)


def failure(heard: Heard, code: int, message: str = "no", status: str = "200 OK") -> bytes:
    error = {"code": code, "message": message}
    return http(json.dumps({"jsonrpc": "2.0", "id": heard.message.get("id"), "error": error}).encode(), status)


ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


def events(*blocks: bytes) -> list[bytes]:
    """A stream of events that ends with its connection."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return [head, *(b"%x\r\n%b\r\n" % (len(block), block) for block in blocks), b"0\r\n\r\n"]


def event(value: JsonValue, *fields: str) -> bytes:
    lines = (*fields, f"data: {json.dumps(value)}", "", "")
    return "\n".join(lines).encode()


def chain(*scripts: Script) -> Script:
    """One script after the other, the last one for good."""
    waiting = list(scripts)

    def next_one(heard: Heard) -> Pieces | Awaitable[Pieces]:
        return (waiting.pop(0) if len(waiting) > 1 else waiting[0])(heard)

    return next_one


HELLO: JsonObject = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "scripted", "version": "1"},
}


def handshake(rest: Script, session: str | None = "s-1") -> Script:
    """A server of the handshake era that leaves everything else to `rest`."""

    def talk(heard: Heard) -> Pieces | Awaitable[Pieces]:
        match heard.asked:
            case "server/discover":
                return http(b"Bad Request: Server not initialized", "400 Bad Request", "text/plain")
            case "initialize":
                return answer(heard, HELLO, *([f"Mcp-Session-Id: {session}"] if session else []))
            case "notifications/initialized":
                return ACCEPTED
            case "DELETE":
                return http(b"")
        return rest(heard)

    return talk

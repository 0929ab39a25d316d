"""The one HTTP client. It follows no redirect, reads no proxy variable, and bounds what it reads."""

import asyncio
import io
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp

from kimi_proxy.core import json
from kimi_proxy.core.errors import UpstreamError, UpstreamUnreachable
from kimi_proxy.core.json import JsonObject, JsonValue

CONNECT_S = 10.0
CHECK_S = 1.0
LOCAL_TIMEOUT_S = 60.0
MAX_PLAIN_BYTES = 512 * 1024  # a longer body is written in pieces, to let others have their turn
MAX_LINE_BYTES = 64 * 1024
MAX_LOCAL_ANSWER_BYTES = 256 * 1024**2
INFLATED_BYTES = 1024**2  # at a time
INFLATED_MAX_BYTES = 32 * 1024**2  # of a whole body: we asked for none

FAILURES = (aiohttp.ClientError, OSError, ValueError)  # TimeoutError is an OSError
_ZLIB_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_NO_AUTO_HEADERS = frozenset({"User-Agent", "Accept", "Accept-Encoding", "Content-Type"})


@dataclass(slots=True)
class Sending:
    """A request on its way, given to a client that notes whether its connection had been used before."""

    is_reused: bool = False


async def _note_reuse(session: object, context: SimpleNamespace, params: object) -> None:
    if isinstance(context.trace_request_ctx, Sending):
        context.trace_request_ctx.is_reused = True


def client(
    connector: aiohttp.TCPConnector | None = None, cookies: bool = False, note_reuse: bool = False
) -> aiohttp.ClientSession:
    """Return a client without automatic decompression: 281 bytes that were packed three times can become 2 GB."""
    traces = []
    if note_reuse:
        traces.append(aiohttp.TraceConfig())
        traces[0].on_connection_reuseconn.append(_note_reuse)
    return aiohttp.ClientSession(
        connector=connector or aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.CookieJar(unsafe=True) if cookies else aiohttp.DummyCookieJar(),
        skip_auto_headers=_NO_AUTO_HEADERS,
        auto_decompress=False,
        trust_env=False,
        trace_configs=traces,
        max_line_size=MAX_LINE_BYTES,
        max_field_size=MAX_LINE_BYTES,
    )


@asynccontextmanager
async def open_response(
    client: aiohttp.ClientSession,
    method: str,
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Yield the response to a request, its status and headers known and its body unread."""
    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_S)
    response = await client.request(
        method, url, data=payload(body), headers=headers, allow_redirects=False, timeout=timeout
    )
    try:
        yield response
    finally:
        response.close()


def payload(body: bytes | None) -> bytes | io.BytesIO | None:
    return body if body is None or len(body) < MAX_PLAIN_BYTES else io.BytesIO(body)


async def post(
    url: str, body: bytes, headers: Mapping[str, str], within_s: float, max_bytes: int = MAX_LOCAL_ANSWER_BYTES
) -> tuple[int, bytes]:
    """Return status and body of a response, or raise one of FAILURES; a body over the limit is dropped."""
    async with asyncio.timeout(within_s), client() as once, open_response(once, "POST", url, body, headers) as response:
        return response.status, await read(response, max_bytes) or b""


async def get(url: str, headers: Mapping[str, str], within_s: float, max_bytes: int) -> tuple[int, bytes]:
    """Return status and body of a response, or raise one of FAILURES; a body over the limit is dropped."""
    async with asyncio.timeout(within_s), client() as once, open_response(once, "GET", url, None, headers) as response:
        return response.status, await read(response, max_bytes) or b""


class UndecodableBody(aiohttp.ClientPayloadError):
    """A body arrived, but cannot be decompressed."""


class ConnectionCheck:
    """Breaks off a body whose connection is closed; to be called once a second.

    aiohttp's C parser (3.14.5) is silent about some broken answers, such as a bad chunk size, and would wait forever.
    """

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._was_closed = False

    def __call__(self) -> None:
        connection = self._response.connection
        content = self._response.content
        is_closed = connection is None or connection.transport is None or connection.transport.is_closing()
        if is_closed and self._was_closed and not content.is_eof():
            content.set_exception(aiohttp.ClientPayloadError())
        self._was_closed = is_closed


async def pieces(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the body as it arrives, within the caller's own timeout.

    Raise ClientError if it breaks off, or has any encoding but a single gzip or deflate: we requested neither.
    """
    check = ConnectionCheck(response)
    decode = _decoder(response)
    while True:
        try:
            async with asyncio.timeout(CHECK_S):
                piece = await response.content.readany()
        except TimeoutError:
            check()
            continue
        if not piece:
            return
        for decoded in decode(piece):
            yield decoded


def _decoder(response: aiohttp.ClientResponse) -> Callable[[bytes], Iterator[bytes]]:
    encoding = ", ".join(response.headers.getall("content-encoding", [])).strip().lower()
    if encoding in ("", "identity"):
        return lambda piece: iter((piece,))
    if encoding not in _ZLIB_WINDOWS:
        raise UndecodableBody("unsupported content-encoding")
    inflater = zlib.decompressobj(_ZLIB_WINDOWS[encoding])

    size = 0

    def inflate(piece: bytes) -> Iterator[bytes]:
        nonlocal size
        while piece:
            try:
                inflated = inflater.decompress(piece, INFLATED_BYTES)
            except zlib.error as e:
                raise UndecodableBody("the body does not match its content-encoding") from e
            size += len(inflated)
            if size > INFLATED_MAX_BYTES:
                raise UndecodableBody("the decompressed body is too large")
            yield inflated
            piece = inflater.unconsumed_tail

    return inflate


async def read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """Return the whole body; None if it is longer than `max_bytes`, and the rest of it stays unread."""
    body = bytearray()
    async for piece in pieces(response):
        body += piece
        if len(body) > max_bytes:
            return None
    return bytes(body)


class JsonClient:
    """A client of our own servers, for the demonstration."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")
        self._client = client()

    async def ask(self, method: str, path: str, body: JsonObject | None = None, **headers: str) -> JsonValue:
        """Return the JSON of an answer."""
        return json.decode(await self.raw(method, path, body, **headers))

    async def raw(self, method: str, path: str, body: JsonObject | None = None, **headers: str) -> bytes:
        """Return all of an answer; raise UpstreamError with its text if it is an error."""
        sent = {"content-type": "application/json"} if body is not None else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = None if body is None else json.encode(body)
        try:
            async with (
                asyncio.timeout(LOCAL_TIMEOUT_S),
                open_response(self._client, method, self._address + path, content, sent) as response,
            ):
                answer = await read(response, MAX_LOCAL_ANSWER_BYTES)
        except FAILURES as e:
            raise UpstreamUnreachable(f"{self._address} is not responding: {type(e).__name__}") from e
        if answer is None or response.status >= 400:
            problem = (answer or b"the answer is too large")[:300].decode("utf-8", "replace")
            raise UpstreamError(f"{method} {path} failed with {response.status}: {problem}")
        return answer

    async def aclose(self) -> None:
        await self._client.close()

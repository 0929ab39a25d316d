"""One JSON-RPC message over HTTP: posted, and its answer found in JSON or in a stream of events."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from kimi_proxy.core import deepjson, mcp, notices
from kimi_proxy.core.errors import UpstreamError, UpstreamUnreachable, UpstreamUnreadable
from kimi_proxy.core.sse import Event, Events
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.proxy.mcp import answers
from kimi_proxy.proxy.mcp.answers import MAX_ANSWER_BYTES
from kimi_proxy.proxy.mcp.deadline import within

CONNECT_S = 10.0
RETRY_MS = 1000  # what a stream that closes early waits for if it does not say
_PRINTABLE = re.compile(r"(?!\s)[\x20-\x7e]*(?<!\s)")

HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "accept-encoding": "identity",
}


class Refused(UpstreamError):
    """A status that is no success. `answer` is the JSON-RPC error in it, if it holds one that names no request."""

    def __init__(self, server: str, status: int, body: bytes, answer: JsonObject | None = None) -> None:
        super().__init__(f"{server} answered HTTP {status}")
        self.status = status
        self.body = body
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer, and the headers it came with."""

    message: JsonObject | None
    headers: Mapping[str, str]


class Exchange:
    """An address and a pool of connections to it. Heeds no proxy variable and follows no redirect."""

    def __init__(self, server: str, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._server = server
        self._url = url
        self._http = httpx.AsyncClient(
            headers={**HEADERS, **(headers or {}), "user-agent": f"kimi-proxy/{mcp.OURSELVES['version']}"},
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=CONNECT_S),
            # Servers keep an idle connection for five seconds and more; ours are dropped first.
            limits=httpx.Limits(max_connections=256, max_keepalive_connections=32, keepalive_expiry=3),
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def delete(self, headers: Mapping[str, str]) -> None:
        await self._http.delete(self._url, headers=headers)

    async def send(self, message: JsonObject, headers: Mapping[str, str] | None = None) -> Reply:
        """Post `message`; a request gets its answer, a notification or a response gets None."""
        body = deepjson.encode(message)
        async with self._http.stream("POST", self._url, content=body, headers=headers) as response:
            if "method" not in message or "id" not in message:
                return Reply(None, response.headers)
            if _is_stream(response):
                return Reply(await self._streamed(response, message["id"], headers), response.headers)
            return Reply(self._found(response, await self._body(response), message["id"]), response.headers)

    def _found(self, response: httpx.Response, body: bytes, call_id: JsonValue) -> JsonObject:
        found = None
        try:
            found = self._answer_in(body, call_id)
        except UpstreamUnreadable:
            if response.is_success:
                raise
        if not response.is_success and (found is None or found.get("id") is None):
            raise Refused(self._server, response.status_code, body[:4096], found)
        if found is None:
            raise UpstreamUnreadable(f"{self._server} answered, but not to this request")
        return found

    def _answer_in(self, body: bytes, call_id: JsonValue) -> JsonObject | None:
        for message in answers.messages(body, self._server):
            if answers.answers(message, call_id):  # type: ignore[arg-type]
                return message
        return None

    async def _body(self, response: httpx.Response) -> bytes:
        pieces: list[bytes] = []
        size = 0
        async for piece in response.aiter_bytes():
            pieces.append(piece)
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise UpstreamUnreadable(f"{self._server} answered more than {MAX_ANSWER_BYTES} bytes")
        return b"".join(pieces)

    async def _streamed(
        self, response: httpx.Response, call_id: JsonValue, headers: Mapping[str, str] | None
    ) -> JsonObject:
        """The answer among the events; a stream that a server closes early is taken up again."""
        seen = Event(b"")
        async for event in self._events(response):
            seen = _later(seen, event)
            if (answer := await self._among(event, call_id, headers)) is not None:
                return answer
        while seen.id is not None:
            await asyncio.sleep(max(seen.retry_ms if seen.retry_ms is not None else RETRY_MS, 50) / 1000)
            again = {**(headers or {}), "accept": "text/event-stream", "last-event-id": seen.id}
            async with self._http.stream("GET", self._url, headers=again) as resumed:
                if not _is_stream(resumed):
                    break
                async for event in self._events(resumed):
                    seen = _later(seen, event)
                    if (answer := await self._among(event, call_id, headers)) is not None:
                        return answer
        raise UpstreamUnreadable(f"{self._server} ended its stream of events without an answer")

    async def _events(self, response: httpx.Response) -> AsyncIterator[Event]:
        parser = Events()
        async for piece in response.aiter_bytes():
            for event in parser.feed(piece):
                yield event
            if parser.waiting_bytes > MAX_ANSWER_BYTES:
                raise UpstreamUnreadable(f"{self._server} sent an event of more than {MAX_ANSWER_BYTES} bytes")

    async def _among(self, event: Event, call_id: JsonValue, headers: Mapping[str, str] | None) -> JsonObject | None:
        if not event.data.strip():
            return None
        for message in answers.messages(event.data, self._server):
            if answers.answers(message, call_id):  # type: ignore[arg-type]
                return message
            reply, heard = answers.reply_to_server(message), notices.listener()
            if reply is not None:
                await self.send(reply, headers)
            elif heard is not None and "method" in message:
                heard(message)
        return None


def _later(seen: Event, event: Event) -> Event:
    return Event(
        b"",
        id=seen.id if event.id is None else event.id,
        retry_ms=seen.retry_ms if event.retry_ms is None else event.retry_ms,
    )


def _is_stream(response: httpx.Response) -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return response.is_success and kind == "text/event-stream"


def stateless_headers(message: JsonObject) -> dict[str, str]:
    """The headers that repeat the body of a request of the stateless era."""
    version = mcp.meta_of(message).get(mcp.META_VERSION)
    method = str(message.get("method", ""))
    params = message.get("params")
    name = params.get(mcp.NAMED_BY.get(method, "")) if isinstance(params, Mapping) else None
    named = {"mcp-name": header_value(name)} if isinstance(name, str) else {}
    return {"mcp-protocol-version": header_value(str(version)), "mcp-method": header_value(method), **named}


def header_value(text: str) -> str:
    """`text` as a header can carry it; what isn't printable ASCII goes as base64."""
    if _PRINTABLE.fullmatch(text) and not text.startswith("=?base64?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode('ascii')}?="


@asynccontextmanager
async def translated(server: str, timeout_s: float) -> AsyncIterator[None]:
    """What goes wrong on the way to a server, in our words and within `timeout_s`."""
    try:
        async with within(server, timeout_s):
            yield
    except (httpx.ConnectTimeout, httpx.PoolTimeout) as e:
        raise UpstreamUnreachable(f"{server} cannot be reached: it did not accept a connection in time") from e
    except httpx.ConnectError as e:
        raise UpstreamUnreachable(f"{server} cannot be reached: start it, or correct its url") from e
    except httpx.DecodingError as e:
        raise UpstreamUnreadable(f"{server} sent a body that cannot be decompressed") from e
    except (httpx.TransportError, httpx.StreamError, OSError) as e:
        raise UpstreamUnreachable(f"the connection to {server} broke before it answered") from e
    except httpx.InvalidURL as e:
        raise UpstreamUnreachable(f"the url of {server} cannot be used") from e

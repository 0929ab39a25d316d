"""MCP servers over HTTP: plain JSON-RPC, or Streamable HTTP with a session or stateless."""

import asyncio
import base64
import itertools
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass

import aiohttp

from kimi_proxy.core import json, jsonrpc, mcp
from kimi_proxy.core.errors import UpstreamError, UpstreamTimeout, UpstreamUnreachable, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.mcp import STATELESS_VERSIONS, add_envelope
from kimi_proxy.core.sse import SseEvent, SseParser
from kimi_proxy.proxy import http
from kimi_proxy.proxy.mcp import protocol
from kimi_proxy.proxy.mcp.protocol import MAX_ANSWER_BYTES, ServerIntroduction

RETRY_MS = 1000  # wait after a stream that closes early without a retry time
MAX_CONNECTIONS = 256
KEEP_ALIVE_S = 3.0  # servers keep an idle connection for five seconds and more; ours are dropped first
_PRINTABLE = re.compile(r"(?!\s)[\x20-\x7e]*(?<!\s)")

HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "accept-encoding": "identity",
}


class HttpRefused(UpstreamError):
    """A status that is no success. `answer` is the JSON-RPC error in it, if it holds one that names no request."""

    def __init__(self, server: str, status: int, body: bytes, answer: JsonObject | None = None) -> None:
        super().__init__(f"{server} answered HTTP {status}")
        self.status = status
        self.body = body
        self.answer = answer


@dataclass(frozen=True, slots=True)
class McpReply:
    """The response, and its headers."""

    message: JsonObject | None
    headers: Mapping[str, str]


class HttpExchange:
    """Posts JSON-RPC messages to an address, and finds their answers in JSON or in a stream of events."""

    def __init__(self, server: str, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._server = server
        self._url = url
        self._headers = {**HEADERS, **(headers or {}), "user-agent": f"kimi-proxy/{mcp.OURSELVES['version']}"}
        connector = aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=KEEP_ALIVE_S)
        self._client = http.client(connector, cookies=True)

    async def close(self) -> None:
        await self._client.close()

    async def delete(self, headers: Mapping[str, str]) -> None:
        async with self._open_response("DELETE", None, headers):
            pass

    async def send(self, message: JsonObject, headers: Mapping[str, str] | None = None) -> McpReply:
        """Post `message`; a request gets its answer, a notification or a response gets None."""
        async with self._open_response("POST", json.encode(message), headers) as response:
            if "method" not in message or "id" not in message:
                return McpReply(None, response.headers)
            if _is_stream(response):
                return McpReply(await self._read_stream(response, message["id"], headers), response.headers)
            return McpReply(await self._answer(response, message["id"]), response.headers)

    def _open_response(
        self, method: str, body: bytes | None, headers: Mapping[str, str] | None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return http.open_response(self._client, method, self._url, body, {**self._headers, **(headers or {})})

    async def _answer(self, response: aiohttp.ClientResponse, call_id: JsonValue) -> JsonObject:
        body = await http.read(response, MAX_ANSWER_BYTES)
        if body is None:
            raise UpstreamUnreadable(f"the response of {self._server} exceeds {MAX_ANSWER_BYTES} bytes")
        is_success = 200 <= response.status < 300
        found = None
        try:
            messages = jsonrpc.messages(body, self._server)
            if len(body) > json.MAX_READ_BYTES:
                messages = iter(await asyncio.to_thread(list, messages))
            found = next((message for message in messages if jsonrpc.answers(message, call_id)), None)
        except UpstreamUnreadable:
            if is_success:
                raise
        if not is_success and (found is None or found.get("id") is None):
            raise HttpRefused(self._server, response.status, body[:4096], found)
        if found is None:
            raise UpstreamUnreadable(f"{self._server} responded to another request")
        return found

    async def _read_stream(
        self, response: aiohttp.ClientResponse, call_id: JsonValue, headers: Mapping[str, str] | None
    ) -> JsonObject:
        """Return the answer among the events; a stream that a server closes early is taken up again."""
        answer, last = await self._answer_in_events(response, SseEvent(b""), call_id, headers)
        # A stream cannot be resumed after an id that does not fit into a header.
        while answer is None and last.id is not None and _PRINTABLE.fullmatch(last.id):
            await asyncio.sleep(max(last.retry_ms if last.retry_ms is not None else RETRY_MS, 50) / 1000)
            again = {**(headers or {}), "accept": "text/event-stream", "last-event-id": last.id}
            async with self._open_response("GET", None, again) as resumed:
                if not _is_stream(resumed):
                    break
                answer, last = await self._answer_in_events(resumed, last, call_id, headers)
        if answer is None:
            raise UpstreamUnreadable(f"{self._server} ended its event stream without a response")
        return answer

    async def _answer_in_events(
        self,
        response: aiohttp.ClientResponse,
        last: SseEvent,
        call_id: JsonValue,
        headers: Mapping[str, str] | None,
    ) -> tuple[JsonObject | None, SseEvent]:
        """Return the answer, or None at the end of the stream; and the last event id and retry time that it named."""
        parser = SseParser()
        async for piece in http.pieces(response):
            for event in parser.feed(piece):
                last = SseEvent(
                    b"",
                    id=last.id if event.id is None else event.id,
                    retry_ms=last.retry_ms if event.retry_ms is None else event.retry_ms,
                )
                if (answer := await self._answer_in_event(event, call_id, headers)) is not None:
                    return answer, last
            if parser.waiting_bytes > MAX_ANSWER_BYTES:
                raise UpstreamUnreadable(f"{self._server} sent an event of more than {MAX_ANSWER_BYTES} bytes")
        return None, last

    async def _answer_in_event(
        self, event: SseEvent, call_id: JsonValue, headers: Mapping[str, str] | None
    ) -> JsonObject | None:
        if not event.data.strip():
            return None
        for message in jsonrpc.messages(event.data, self._server):
            if jsonrpc.answers(message, call_id):
                return message
            reply = protocol.reply_to_server(message)
            on_notice = jsonrpc.listener()
            if reply is not None:
                await self.send(reply, headers)
            elif on_notice is not None and "method" in message:
                on_notice(message)
        return None


def _is_stream(response: aiohttp.ClientResponse) -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return 200 <= response.status < 300 and kind == "text/event-stream"


def stateless_headers(message: JsonObject) -> dict[str, str]:
    """Return the headers that repeat the body of a stateless request."""
    version = mcp.meta_of(message).get(mcp.META_VERSION)
    method = str(message.get("method", ""))
    params = message.get("params")
    name = params.get(mcp.NAMED_BY.get(method, "")) if isinstance(params, Mapping) else None
    named = {"mcp-name": header_value(name)} if isinstance(name, str) else {}
    return {"mcp-protocol-version": header_value(str(version)), "mcp-method": header_value(method), **named}


def header_value(text: str) -> str:
    """Return `text` as a header value; in base64 unless it is printable ASCII."""
    if _PRINTABLE.fullmatch(text) and not text.startswith("=?base64?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode('ascii')}?="


@asynccontextmanager
async def translate_errors(server: str, timeout_s: float) -> AsyncIterator[None]:
    """Translate errors of a connection into our own, within `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except aiohttp.ConnectionTimeoutError as e:
        raise UpstreamUnreachable(f"{server} cannot be reached: connecting timed out") from e
    except TimeoutError as e:
        raise UpstreamTimeout(f"{server} did not answer within {timeout_s:g} s") from e
    except aiohttp.InvalidURL as e:
        raise UpstreamUnreachable(f"the url of {server} is not valid") from e
    except aiohttp.ClientConnectorError as e:
        raise UpstreamUnreachable(f"{server} cannot be reached: start it, or correct its url") from e
    except (aiohttp.ClientError, OSError) as e:
        if isinstance(e, http.UndecodableBody):
            raise UpstreamUnreadable(f"{server} sent a body that cannot be decompressed") from e
        raise UpstreamUnreachable(f"the connection to {server} broke before it responded") from e


METHOD_NOT_FOUND = -32601


class PlainHttp:
    """A server that answers JSON-RPC by POST, and may know nothing of MCP but its tools.

    What clients of either protocol version ask first is answered for such a server, which does not know it.
    """

    def __init__(self, server: str, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._server = server
        self._exchange = HttpExchange(server, url, headers)

    async def forward(self, message: JsonObject, timeout_s: float) -> JsonObject | None:
        introduction = self._introduction(message)
        try:
            async with translate_errors(self._server, timeout_s):
                answer = (await self._exchange.send(message)).message
        except HttpRefused as e:
            if "id" not in message:  # a notification, which it need not know
                return None
            if e.answer is None and introduction is None:
                raise
            answer = e.answer
        if introduction is not None and (answer is None or _is_unknown_method(answer)):
            return jsonrpc.success(jsonrpc.id_of(message), introduction)
        return None if answer is None else jsonrpc.with_id(answer, message["id"])

    def _introduction(self, message: JsonObject) -> JsonObject | None:
        """Return our own answer to a message with which clients begin; None for any other."""
        about: JsonObject = {"capabilities": {"tools": {}}, "serverInfo": {"name": self._server, "version": "0"}}
        server = ServerIntroduction(stateless=False, about=about)
        params = message.get("params")
        match message.get("method"):
            case "initialize" if "id" in message:
                return server.initialize(params.get("protocolVersion") if isinstance(params, Mapping) else None)
            case "server/discover" if "id" in message:
                return server.discover()
            case "ping" if "id" in message:
                return {}
        return None

    async def close(self) -> None:
        await self._exchange.close()


def _is_unknown_method(answer: JsonObject) -> bool:
    match answer.get("error"):
        case {"code": int(code)}:
            return code == METHOD_NOT_FOUND
    return False


# Arguments that a stateless server wants repeated in headers: its tools mark them in their schema.

MARK = "x-mcp-header"

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_KINDS = ("string", "integer", "boolean")


def header_arguments(schema: JsonValue) -> dict[str, tuple[str, ...]] | None:
    """Return for each header the keys that lead to its argument; None if a mark is not where or what it may be."""
    found: list[tuple[str, tuple[str, ...]]] = []
    rest: list[tuple[tuple[str, ...], JsonValue]] = [((), schema)]
    while rest:  # only arguments reached through `properties` have a known position
        path, node = rest.pop()
        properties = node.get("properties") if isinstance(node, Mapping) else None
        for key, inner in properties.items() if isinstance(properties, Mapping) else ():
            rest.append(((*path, key), inner))
            if isinstance(inner, Mapping) and MARK in inner:
                name = inner[MARK]
                if not isinstance(name, str) or not _TOKEN.fullmatch(name) or inner.get("type") not in _KINDS:
                    return None
                found.append((f"mcp-param-{name}", (*path, key)))
    is_clear = len({header.lower() for header, _ in found}) == len(found) == _count_marks(schema)
    return dict(found) if is_clear else None


def _count_marks(schema: JsonValue) -> int:
    """Return the number of marks anywhere, except in examples and defaults."""
    rest: list[JsonValue] = [schema]
    marks = 0
    while rest:
        node = rest.pop()
        if isinstance(node, Mapping):
            marks += isinstance(node.get(MARK), str)
            rest.extend(item for key, item in node.items() if key not in ("default", "examples", "const", "enum"))
        elif isinstance(node, list):
            rest.extend(node)
    return marks


class HeaderArguments:
    """The marked arguments of one server's tools, as far as their list has been seen."""

    def __init__(self) -> None:
        self._tools: dict[str, dict[str, tuple[str, ...]]] = {}

    def knows(self, tool: str) -> bool:
        return tool in self._tools

    def learn(self, answer: JsonObject) -> JsonObject:
        """Note the tools of a `tools/list`, and return it without those that cannot be called by the book."""
        result = answer.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        if not isinstance(result, dict) or not isinstance(tools, list):
            return answer
        usable: list[JsonValue] = []
        for tool in tools:
            found = header_arguments(tool.get("inputSchema")) if isinstance(tool, dict) else {}
            if found is not None:
                usable.append(tool)
                if isinstance(tool, dict):
                    self._tools[str(tool.get("name"))] = found
        return answer if len(usable) == len(tools) else {**answer, "result": {**result, "tools": usable}}

    def headers(self, message: JsonObject) -> dict[str, str]:
        """Return the values to repeat for a `tools/call`."""
        params = message.get("params")
        given = params if isinstance(params, Mapping) else {}
        values: dict[str, str] = {}
        for header, path in self._tools.get(str(given.get("name")), {}).items():
            value = given.get("arguments")
            for key in path:
                value = value.get(key) if isinstance(value, Mapping) else None
            if isinstance(value, str | int):
                values[header] = header_value(str(value).lower() if isinstance(value, bool) else str(value))
        return values


@dataclass(frozen=True, slots=True)
class McpSession:
    """The session negotiated with a server; a stateless server has nothing to remember but its handshake."""

    server: ServerIntroduction
    id: str | None = None

    def headers(self, message: JsonObject) -> dict[str, str]:
        if self.server.stateless:
            return stateless_headers(message)
        session = {} if self.id is None else {"mcp-session-id": self.id}
        return {"mcp-protocol-version": self.server.version, **session}

    def is_lost(self, refusal: HttpRefused) -> bool:
        """Return whether a restarted server does not know our session: 404 by the book, 400 in many servers."""
        if self.id is None:
            return False
        return refusal.status == 404 or (refusal.status == 400 and b"session" in refusal.body.lower())


class StreamableHttp:
    """One session shared by every client; ids are ours, so that two clients may use the same."""

    def __init__(self, server: str, url: str, start_timeout_s: float, headers: Mapping[str, str] | None = None) -> None:
        self._server = server
        self._start_timeout_s = start_timeout_s
        self._exchange = HttpExchange(server, url, headers)
        self._session: McpSession | None = None
        self._connecting = asyncio.Lock()
        self._ids = itertools.count(1)
        self._header_arguments = HeaderArguments()

    async def forward(self, message: JsonObject, timeout_s: float) -> JsonObject | None:
        session = await self._connect()
        try:
            return await self._through(session, message, timeout_s)
        except HttpRefused as e:
            if e.answer is not None and not session.is_lost(e):
                return jsonrpc.with_id(e.answer, message["id"])
            if not session.is_lost(e):
                raise
        # It was refused unread, so that sending it again is safe.
        session = await self._connect(instead_of=session)
        return await self._through(session, message, timeout_s)

    async def close(self) -> None:
        session = self._session
        if session is not None and session.id is not None:
            with suppress(aiohttp.ClientError, OSError):
                async with asyncio.timeout(1):
                    await self._exchange.delete(session.headers({}))
        await self._exchange.close()

    async def _through(self, session: McpSession, message: JsonObject, timeout_s: float) -> JsonObject | None:
        async def send(outgoing: JsonObject) -> JsonObject | None:
            repeated = await self._arguments_as_headers(session, outgoing) if session.server.stateless else {}
            answer = await self._send(session, outgoing, repeated)
            is_list = session.server.stateless and outgoing.get("method") == "tools/list"
            return self._header_arguments.learn(answer) if is_list and answer is not None else answer

        async with translate_errors(self._server, timeout_s):
            return await protocol.forward_translated(session.server, message, send)

    async def _send(self, session: McpSession, message: JsonObject, more: Mapping[str, str]) -> JsonObject | None:
        if "id" not in message:
            return (await self._exchange.send(message, session.headers(message))).message
        renamed = jsonrpc.with_id(message, next(self._ids))
        reply = await self._exchange.send(renamed, {**session.headers(renamed), **more})
        return None if reply.message is None else jsonrpc.with_id(reply.message, message["id"])

    async def _arguments_as_headers(self, session: McpSession, message: JsonObject) -> dict[str, str]:
        """Return the arguments of a call that go into headers; a tool that was not listed yet is looked up first."""
        params = message.get("params")
        if message.get("method") != "tools/call" or not isinstance(params, Mapping):
            return {}
        if not self._header_arguments.knows(str(params.get("name"))):
            listing = add_envelope(protocol.request("tools/list", {}))
            with suppress(HttpRefused, UpstreamUnreadable):
                self._header_arguments.learn(await self._send(session, listing, {}) or {})
        return self._header_arguments.headers(message)

    async def _connect(self, instead_of: McpSession | None = None) -> McpSession:
        async with self._connecting:
            if self._session is None or self._session is instead_of:
                self._session = None
                async with translate_errors(self._server, self._start_timeout_s):
                    # Discover first: over HTTP a server with a handshake refuses that at once, none is silent.
                    self._session = await self._discover() or await self._initialize()
            return self._session

    async def _discover(self) -> McpSession | None:
        with suppress(HttpRefused, UpstreamUnreadable):
            for _ in range(2):
                found = await self._exchange.send(protocol.DISCOVER, stateless_headers(protocol.DISCOVER))
                match found.message:
                    case {"result": dict(about)} if STATELESS_VERSIONS[0] in _list_of(about, "supportedVersions"):
                        return McpSession(ServerIntroduction(True, about))
                    case {"error": {"code": -32022, "data": dict(about)}}:
                        # The version is one that it names: it may take a second request at its word.
                        if STATELESS_VERSIONS[0] not in _list_of(about, "supported"):
                            return None
                    case _:
                        return None
        return None

    async def _initialize(self) -> McpSession:
        reply = await self._exchange.send(protocol.INITIALIZE)
        match reply.message:
            case {"result": dict(about)}:
                session = McpSession(ServerIntroduction(False, about), reply.headers.get("mcp-session-id"))
            case {"error": {"message": problem}}:
                raise UpstreamError(f"{self._server} refused to start a session: {str(problem)[:200]}")
            case _:
                raise UpstreamUnreadable(f"{self._server} did not complete the handshake")
        await self._exchange.send(protocol.INITIALIZED, session.headers(protocol.INITIALIZED))
        return session


def _list_of(about: JsonObject, key: str) -> Sequence[JsonValue]:
    versions = about.get(key)
    return versions if isinstance(versions, list) else ()

"""JSON-RPC over HTTP: POST a message, get its answer as JSON or as the last of some events, or 202 if none is due."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Literal, NotRequired, TypedDict

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from kimi_proxy.api import mcp
from kimi_proxy.api.guard import is_own_client
from kimi_proxy.api.mcp import Catalog, ProtocolVersions, RpcReply
from kimi_proxy.api.routing import Access, RouteSpec, caller_of
from kimi_proxy.core import json, jsonrpc
from kimi_proxy.core.errors import BadRequest, MethodNotFound
from kimi_proxy.core.json import JsonObject, JsonValue, OpenObject
from kimi_proxy.core.jsonrpc import DeliveryListener
from kimi_proxy.services.tools import roots
from kimi_proxy.services.tools.roots import KnownRoots, RootsClient

MAX_WAITING = 1000  # notices that a slow reader has not taken; more are dropped
EVENTS = "text/event-stream"
JSON = "application/json"
SENT_BYTES = 1024**2  # at a time


RpcMessage = OpenObject | list[OpenObject]  # JSON-RPC: a message, or a batch of them


class RpcResponse(TypedDict):
    jsonrpc: Literal["2.0"]
    id: str | int | float | None
    result: NotRequired[object]
    error: NotRequired[OpenObject]


RpcBody = RpcResponse | list[RpcResponse]


def rpc_spec(summary: str) -> RouteSpec:
    """Return the spec of a route for JSON-RPC messages: their errors are JSON-RPC too."""
    raises = (BadRequest, MethodNotFound)
    return RouteSpec(
        summary, RpcBody, body=RpcMessage, raises=raises, error=OpenObject, is_silent=True, access=Access.PEOPLE
    )


def endpoint(versions: ProtocolVersions, catalog: Catalog) -> Callable[[Request], Awaitable[Response]]:
    known = KnownRoots()
    has_files = not roots.FILE_TOOLS.isdisjoint(catalog.tools)

    async def post(request: Request) -> Response:
        is_own = has_files and is_own_client(request.scope)
        client = RootsClient(known, is_own, request.headers.get(roots.SESSION_HEADER, ""))
        if has_files:
            roots.serve_client(client)
        response = await answer_post(request, client.can_be_asked)
        if client.new_session:
            response.headers[roots.SESSION_HEADER] = client.new_session
        return response

    async def answer_post(request: Request, is_asked: bool) -> Response:
        headers = request.scope["headers"]
        listeners = [] if is_asked else jsonrpc.collect()
        work = mcp.reply(caller_of(request), await request.body(), versions, catalog, headers)
        stateless = versions.stateless
        # With a handshake a lost connection says nothing; without one it takes the request back. But no command, read
        # or search goes on when its caller is gone.
        ends = catalog.ends_with_caller or (stateless is not None and names_version(headers, stateless.versions))
        work = cancel_on_disconnect(work, request.receive) if ends else work
        if is_asked and EVENTS in request.headers.get("accept", ""):
            return await with_notices(work)
        reply = await work
        return json_reply(reply) if reply.value is None else DeliveryResponse(listeners, reply.value, reply.status)

    return post


def names_version(headers: mcp.Headers, versions: tuple[str, ...]) -> bool:
    """Return whether the headers of a request name one of these protocol versions."""
    return any(name == mcp.VERSION_HEADER and value.decode("latin-1") in versions for name, value in headers)


async def cancel_on_disconnect(work: Coroutine[None, None, RpcReply], receive: Receive) -> RpcReply:
    """Do `work`, or drop it when the client hangs up."""
    doing = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hang_up(receive))
    try:
        await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else mcp.NOTHING
    finally:
        doing.cancel()
        gone.cancel()
        await asyncio.wait({doing, gone})


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def json_reply(reply: RpcReply) -> Response:
    if reply.value is None:
        return Response(status_code=reply.status)
    pieces = json.encode_in_pieces(reply.value)
    if len(pieces) == 1:
        return Response(pieces[0], reply.status, media_type=JSON)
    return PiecewiseResponse(pieces, reply.status)


class PiecewiseResponse(Response):
    """A long JSON answer that is sent a megabyte at a time: to put 50 MB together holds the event loop up."""

    def __init__(self, pieces: Sequence[bytes | memoryview], status: int) -> None:
        super().__init__(None, status, {"content-length": str(sum(map(len, pieces)))}, JSON)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._pieces:
            for at in range(0, len(piece), SENT_BYTES):
                await send(_body(bytes(piece[at : at + SENT_BYTES]), more_body=True))
        await send(_body(b""))


def _body(body: bytes, more_body: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more_body}


class DeliveryResponse(Response):
    """A JSON answer that reports to its listeners whether it could be sent."""

    def __init__(self, listeners: list[DeliveryListener], value: JsonValue, status: int) -> None:
        self._listeners = listeners
        try:
            super().__init__(json.encode(value), status, media_type=JSON)
        except BaseException:
            jsonrpc.report(listeners, False)
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except BaseException:
            jsonrpc.report(self._listeners, False)
            raise
        jsonrpc.report(self._listeners, True)


async def with_notices(work: Coroutine[None, None, RpcReply]) -> Response:
    """Return the answer as JSON, or as the last of a stream of events if the server sends notices before it."""
    notices: asyncio.Queue[JsonObject] = asyncio.Queue()

    def on_notice(notice: JsonObject) -> None:
        if notices.qsize() < MAX_WAITING:
            notices.put_nowait(notice)

    jsonrpc.listen(on_notice)
    doing = asyncio.create_task(work)
    try:
        first = await _next(notices, doing)
    except BaseException:
        await _cancel_answer(doing)
        raise
    if first is None:
        return json_reply(doing.result())
    return StreamingResponse(_events(first, notices, doing), media_type=EVENTS, headers={"cache-control": "no-store"})


async def _events(
    first: JsonObject, notices: "asyncio.Queue[JsonObject]", doing: "asyncio.Task[RpcReply]"
) -> AsyncIterator[bytes]:
    notice: JsonObject | None = first
    try:
        while notice is not None:
            yield _event(notice)
            notice = await _next(notices, doing)
        yield _event(doing.result().value)
    finally:
        await _cancel_answer(doing)


async def _next(notices: "asyncio.Queue[JsonObject]", doing: "asyncio.Task[RpcReply]") -> JsonObject | None:
    """Return the next notice; None if the answer is there, and all notices before it were returned."""
    if notices.empty() and not doing.done():
        coming = asyncio.create_task(notices.get())
        await asyncio.wait({coming, doing}, return_when=asyncio.FIRST_COMPLETED)
        if coming.done():
            return coming.result()
        coming.cancel()
    return None if notices.empty() else notices.get_nowait()


async def _cancel_answer(doing: "asyncio.Task[RpcReply]") -> None:
    doing.cancel()
    await asyncio.wait({doing})


def _event(message: JsonValue) -> bytes:
    return b"event: message\ndata: " + json.encode(message) + b"\n\n"

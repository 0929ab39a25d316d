"""A door over HTTP: POST a JSON-RPC message, get its answer as JSON, or 202 if it asks for nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from kimi_proxy.api import mcp
from kimi_proxy.api.mcp import Catalog, Door, Reply
from kimi_proxy.core import json, jsonrpc
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.jsonrpc import DeliveryListener

MAX_WAITING = 1000  # notices that a slow reader has not taken; more are dropped
EVENTS = "text/event-stream"


def json_reply(reply: Reply) -> Response:
    if reply.value is None:
        return Response(status_code=reply.status)
    return Response(json.encode(reply.value), reply.status, media_type="application/json")


async def announced(work: Coroutine[None, None, Reply]) -> Response:
    """The answer as JSON, or as the last of a stream of events if the server has something to tell before."""
    waiting: asyncio.Queue[JsonObject] = asyncio.Queue()

    def heard(notice: JsonObject) -> None:
        if waiting.qsize() < MAX_WAITING:
            waiting.put_nowait(notice)

    jsonrpc.listen(heard)
    doing = asyncio.create_task(work)
    try:
        first = await _next(waiting, doing)
    except BaseException:
        await _dropped(doing)
        raise
    if first is None:
        return json_reply(doing.result())
    return StreamingResponse(_events(first, waiting, doing), media_type=EVENTS, headers={"cache-control": "no-store"})


async def _events(
    first: JsonObject, waiting: "asyncio.Queue[JsonObject]", doing: "asyncio.Task[Reply]"
) -> AsyncIterator[bytes]:
    notice: JsonObject | None = first
    try:
        while notice is not None:
            yield _event(notice)
            notice = await _next(waiting, doing)
        yield _event(doing.result().value)
    finally:
        await _dropped(doing)


async def _next(waiting: "asyncio.Queue[JsonObject]", doing: "asyncio.Task[Reply]") -> JsonObject | None:
    """The next notice; None if the answer is there, and all that came before it is told."""
    if waiting.empty() and not doing.done():
        coming = asyncio.create_task(waiting.get())
        await asyncio.wait({coming, doing}, return_when=asyncio.FIRST_COMPLETED)
        if coming.done():
            return coming.result()
        coming.cancel()
    return None if waiting.empty() else waiting.get_nowait()


async def _dropped(doing: "asyncio.Task[Reply]") -> None:
    doing.cancel()
    await asyncio.wait({doing})


def _event(message: JsonValue) -> bytes:
    return b"event: message\ndata: " + json.encode(message) + b"\n\n"


def endpoint(door: Door, catalog: Catalog) -> Callable[[Request], Awaitable[Response]]:
    async def post(request: Request) -> Response:
        headers = request.scope["headers"]
        listeners = jsonrpc.collect()
        work = mcp.reply(await request.body(), door, catalog, headers)
        # In the old era a lost connection says nothing; in the new one it takes the question back. But no command
        # goes on when nobody waits for it.
        ends = catalog.ends_with_caller or _cancels(door, headers)
        reply = await (unless_gone(work, request.receive) if ends else work)
        if reply.value is None:
            return Response(status_code=reply.status)
        return Announced(listeners, reply.value, reply.status)

    return post


class Announced(Response):
    """A JSON answer whose writers are told whether it could be sent."""

    def __init__(self, listeners: list[DeliveryListener], value: JsonValue, status: int) -> None:
        self._listeners = listeners
        try:
            super().__init__(json.encode(value), status, media_type="application/json")
        except BaseException:
            jsonrpc.tell(listeners, False)
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except BaseException:
            jsonrpc.tell(self._listeners, False)
            raise
        jsonrpc.tell(self._listeners, True)


def _cancels(door: Door, headers: mcp.Headers) -> bool:
    era = door.enveloped
    return era is not None and any(
        name == mcp.VERSION_HEADER and value.decode("latin-1") in era.versions for name, value in headers
    )


async def unless_gone(work: Coroutine[None, None, Reply], receive: Receive) -> Reply:
    """Do `work`, or drop it when the client hangs up."""
    doing, gone = asyncio.ensure_future(work), asyncio.ensure_future(_hang_up(receive))
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

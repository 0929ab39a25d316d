"""A door over HTTP: POST a JSON-RPC message, get its answer as JSON, or 202 if it asks for nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kimi_proxy.api import envelope, mcp
from kimi_proxy.api.catalog import Catalog
from kimi_proxy.api.eras import Door
from kimi_proxy.api.mcp import Reply
from kimi_proxy.core import delivery, jsontext
from kimi_proxy.core.delivery import Listener
from kimi_proxy.core.types import JsonValue


def endpoint(door: Door, catalog: Catalog) -> Callable[[Request], Awaitable[Response]]:
    async def post(request: Request) -> Response:
        headers = request.scope["headers"]
        listeners = delivery.collect()
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

    def __init__(self, listeners: list[Listener], value: JsonValue, status: int) -> None:
        self._listeners = listeners
        try:
            super().__init__(jsontext.encode(value), status, media_type="application/json")
        except BaseException:
            delivery.tell(listeners, False)
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except BaseException:
            delivery.tell(self._listeners, False)
            raise
        delivery.tell(self._listeners, True)


def _cancels(door: Door, headers: envelope.Headers) -> bool:
    era = door.enveloped
    return era is not None and any(
        name == envelope.VERSION_HEADER and value.decode("latin-1") in era.versions for name, value in headers
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

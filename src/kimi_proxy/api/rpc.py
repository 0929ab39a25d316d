"""A door over HTTP: POST a JSON-RPC message, get its answer as JSON, or 202 if it asks for nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from kimi_proxy.api import envelope, mcp
from kimi_proxy.api.catalog import Catalog
from kimi_proxy.api.eras import Door
from kimi_proxy.api.errors import json_answer
from kimi_proxy.api.mcp import Reply


def endpoint(door: Door, catalog: Catalog) -> Callable[[Request], Awaitable[Response]]:
    async def post(request: Request) -> Response:
        headers = request.scope["headers"]
        work = mcp.reply(await request.body(), door, catalog, headers)
        # In the old era a lost connection says nothing; in the new one it takes the question back.
        reply = await (unless_gone(work, request.receive) if _cancels(door, headers) else work)
        return Response(status_code=reply.status) if reply.value is None else json_answer(reply.value, reply.status)

    return post


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

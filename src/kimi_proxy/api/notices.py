"""An answer that is announced: what the server tells meanwhile goes ahead of it, in a stream of events."""

import asyncio
from collections.abc import AsyncIterator, Coroutine

from starlette.responses import Response, StreamingResponse

from kimi_proxy.api.mcp import Reply
from kimi_proxy.core import deepjson, notices
from kimi_proxy.core.types import JsonObject, JsonValue

MAX_WAITING = 1000  # notices that a slow reader has not taken; more are dropped
EVENTS = "text/event-stream"


def json_reply(reply: Reply) -> Response:
    if reply.value is None:
        return Response(status_code=reply.status)
    return Response(deepjson.encode(reply.value), reply.status, media_type="application/json")


async def announced(work: Coroutine[None, None, Reply]) -> Response:
    """The answer as JSON, or as the last of a stream of events if the server has something to tell before."""
    waiting: asyncio.Queue[JsonObject] = asyncio.Queue()

    def heard(notice: JsonObject) -> None:
        if waiting.qsize() < MAX_WAITING:
            waiting.put_nowait(notice)

    notices.listen(heard)
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
    return b"event: message\ndata: " + deepjson.encode(message) + b"\n\n"

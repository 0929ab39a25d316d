"""The chat APIs of OpenAI and Anthropic: a request is passed on, and its answer is streamed back."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from kimi_proxy.api.answers import json_route
from kimi_proxy.core.chat.wires import BY_PATH, COUNT_PATHS, Wire, wire_of_client
from kimi_proxy.core.deadline import Deadline
from kimi_proxy.core.errors import UpstreamError
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.models import Models
from kimi_proxy.services.chat.handler import Chat, ChatRequest
from kimi_proxy.services.chat.relay import Answer

STALL_S = 120.0  # a client that reads nothing for so long counts as disconnected

MODELS = ("/v1/models", "/models")

log = logging.getLogger(__name__)

Ask = Callable[[ChatRequest], AbstractAsyncContextManager[Answer]]


def routes(chat: Chat) -> list[Route]:
    asking = [
        Route(path, ChatEndpoint(chat.count_tokens if path in COUNT_PATHS else chat.answer, wire), methods=["POST"])
        for path, wire in BY_PATH.items()
    ]
    return asking + [json_route("GET", path, partial(_list_models, chat.models)) for path in MODELS]


class ClientBody:
    """Sends the body of an answer, and disconnects a client that stops reading."""

    def __init__(self, send: Send, disconnect: Callable[[], None], stall_s: float) -> None:
        self._send = send
        self._stall_s = stall_s
        self._now = asyncio.get_running_loop().time
        self._deadline = Deadline(math.inf, disconnect)

    async def send(self, piece: bytes, more: bool) -> None:
        """Send a piece; waits while the client has not read the ones before."""
        self._deadline.at = self._now() + self._stall_s
        await self._send({"type": "http.response.body", "body": piece, "more_body": more})
        self._deadline.at = math.inf

    def close(self) -> None:
        self._deadline.stop()


@asynccontextmanager
async def until_disconnect(receive: Receive, send: Send, stall_s: float = STALL_S) -> AsyncIterator[ClientBody]:
    """Run the block; cancel it, without an error for the caller, when the client hangs up or stops reading."""
    block, disconnected = asyncio.current_task(), asyncio.Event()
    if block is None:
        raise RuntimeError("only a task can be cancelled")

    def disconnect() -> None:
        disconnected.set()
        block.cancel()

    body, watching = ClientBody(send, disconnect, stall_s), asyncio.create_task(_watch(receive, disconnect))
    try:
        yield body
    except asyncio.CancelledError:
        # The server may be stopping as well: then the cancellation is not ours alone.
        if not disconnected.is_set() or block.uncancel() > 0:
            raise
    finally:
        body.close()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _watch(receive: Receive, disconnect: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    disconnect()


class ChatEndpoint:
    """A bare ASGI application, because every layer around the pieces of an answer costs time."""

    def __init__(self, ask: Ask, wire: Wire) -> None:
        self._ask = ask
        self._wire = wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        incoming = ChatRequest(self._wire, body, tuple(scope["headers"]), scope["query_string"].decode("latin-1"))
        async with until_disconnect(receive, send) as client, self._ask(incoming) as answer:
            await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
            await _send_body(answer, client)


async def _send_body(answer: Answer, client: ClientBody) -> None:
    if answer.rest is None:
        await client.send(answer.body, more=False)
        return
    if answer.body:
        await client.send(answer.body, more=True)
    try:
        async for piece in answer.rest:
            await client.send(piece, more=True)
    except UpstreamError as e:
        # The status has been sent: all that is left is to end without the last piece, which drops the connection.
        log.warning("an answer broke off", extra={"code": e.code, "what": str(e)[:300]})
        return
    await client.send(b"", more=False)


async def _list_models(models: Models, request: Request) -> JsonObject:
    offered = [(key, model.provider) for key, model in models.offered()]
    return wire_of_client(request.headers).format.model_list(offered)

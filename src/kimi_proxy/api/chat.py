"""The APIs of OpenAI and Anthropic: a request is passed on, and its answer comes back as it comes."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from kimi_proxy.api.errors import WIRES, json_answer
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.deadline import Watchdog
from kimi_proxy.core.errors import UpstreamError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.models import Models
from kimi_proxy.services.chat.handler import Asked, Chat
from kimi_proxy.services.chat.relay import Answer

STALL_S = 120.0  # a client that reads nothing for so long is as good as gone


class Client:
    """Whoever reads the answer."""

    def __init__(self, send: Send, leave: Callable[[], None], stall_s: float) -> None:
        self._send = send
        self._stall_s = stall_s
        self._now = asyncio.get_running_loop().time
        self._patience = Watchdog(math.inf, leave)

    async def body(self, piece: bytes, more: bool) -> None:
        """Hand over a piece; it waits while the client has not read the ones before."""
        self._patience.by = self._now() + self._stall_s
        await self._send({"type": "http.response.body", "body": piece, "more_body": more})
        self._patience.by = math.inf

    def forget(self) -> None:
        self._patience.stop()


@asynccontextmanager
async def while_there(receive: Receive, send: Send, stall_s: float = STALL_S) -> AsyncIterator[Client]:
    """Run the block; when the client hangs up or stops reading, the block is cancelled, and nobody else hears of it."""
    doing, gone = asyncio.current_task(), asyncio.Event()
    if doing is None:
        raise RuntimeError("only a task can be cancelled")

    def leave() -> None:
        gone.set()
        doing.cancel()

    client, watching = Client(send, leave, stall_s), asyncio.create_task(_watch(receive, leave))
    try:
        yield client
    except asyncio.CancelledError:
        # The server may be stopping as well: then the cancellation is not ours alone.
        if not gone.is_set() or doing.uncancel() > 0:
            raise
    finally:
        client.forget()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _watch(receive: Receive, leave: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()


COUNT_TOKENS = "/v1/messages/count_tokens"
MODELS = ("/v1/models", "/models")

Ask = Callable[[Asked], AbstractAsyncContextManager[Answer]]


def routes(chat: Chat) -> list[Route]:
    asking = [
        Route(path, Relayed(chat.count_tokens if path == COUNT_TOKENS else chat.answer, wire), methods=["POST"])
        for path, wire in WIRES.items()
    ]
    return asking + [Route(path, _models(chat.models), methods=["GET"]) for path in MODELS]


class Relayed:
    """An ASGI application of its own: the bytes of an answer pass through as few hands as possible."""

    def __init__(self, ask: Ask, wire: Wire) -> None:
        self._ask = ask
        self._wire = wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        asked = Asked(self._wire, body, tuple(scope["headers"]), scope["query_string"].decode("latin-1"))
        async with while_there(receive, send) as client, self._ask(asked) as answer:
            await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
            await _hand_over(answer, client)


async def _hand_over(answer: Answer, client: Client) -> None:
    if answer.rest is None:
        await client.body(answer.body, more=False)
        return
    if answer.body:
        await client.body(answer.body, more=True)
    try:
        async for piece in answer.rest:
            await client.body(piece, more=True)
    except UpstreamError:
        return  # the status is told: an answer without its end is all that is left to say
    await client.body(b"", more=False)


def _models(models: Models) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        is_anthropic = "anthropic-version" in request.headers
        return json_answer(_for_anthropic(models) if is_anthropic else _for_openai(models))

    return show


def _for_openai(models: Models) -> JsonObject:
    data: list[JsonValue] = [
        {"id": key, "object": "model", "created": 0, "owned_by": model.provider} for key, model in models.offered()
    ]
    return {"object": "list", "data": data}


def _for_anthropic(models: Models) -> JsonObject:
    keys = [key for key, _ in models.offered()]
    data = [{"type": "model", "id": key, "display_name": key, "created_at": "1970-01-01T00:00:00Z"} for key in keys]
    ends: JsonObject = {"first_id": keys[0] if keys else None, "last_id": keys[-1] if keys else None}
    return {"data": data, "has_more": False, **ends}

"""The APIs of OpenAI and Anthropic: a request is passed on, and its answer comes back as it comes."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from kimi_proxy.api.errors import WIRES, json_answer
from kimi_proxy.api.presence import Client, while_there
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.errors import UpstreamError
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.features.models import Models
from kimi_proxy.services.chat import Asked, Chat
from kimi_proxy.services.relay import Answer

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

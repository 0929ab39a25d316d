"""Routes for the guardrails of other gateways, which send us messages to cut."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from starlette.requests import Request
from starlette.routing import Route

from kimi_proxy.api.routing import Access, RouteSpec, caller_of, json_route, object_in
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import PruneIdNotFound
from kimi_proxy.core.json import JsonObject, JsonValue, OpenObject
from kimi_proxy.services.chat.messages import FiguresBody, Messages, figures

COMPRESS = RouteSpec("Cut long tool results in messages", body=OpenObject, access=Access.PEOPLE)
RETRIEVE = RouteSpec("Return an original by its hash", raises=(PruneIdNotFound,), access=Access.PEOPLE)


class CompressedMessagesBody(FiguresBody):
    """Messages with long tool results cut."""

    messages: Sequence[object]
    ccr_hashes: list[str]
    warnings: NotRequired[list[str]]


class VerdictBody(TypedDict):
    """A webhook's verdict, with the request as it should go on."""

    verdict: bool
    data: FiguresBody
    transformedData: OpenObject


class RetrievedBody(TypedDict):
    hash: str
    original_content: str


def routes(messages: Messages) -> list[Route]:
    """`/v1/compress` and `/v1/retrieve`, as LiteLLM's guardrail and Portkey's webhooks call them."""

    async def compress(request: Request) -> CompressedMessagesBody | VerdictBody:
        who = caller_of(request)
        given = await object_in(request, "send an object with messages")
        if (body := _webhook_body(given)) is not None:
            return await _transform(who, messages, body)
        done = await messages.shorten(who, given.get("messages"), _text(given, "model"), _text(given, "session_id"))
        answer: CompressedMessagesBody = {"messages": done.messages, **figures(done), "ccr_hashes": [*done.hashes]}
        if done.warnings:
            answer["warnings"] = [*done.warnings]
        return answer

    async def retrieve(request: Request) -> RetrievedBody:
        hashed = str(request.path_params["hash"]).lower()
        return {"hash": hashed, "original_content": await messages.original(caller_of(request), hashed)}

    return [
        json_route("POST", "/v1/compress", compress, COMPRESS),
        json_route("GET", "/v1/retrieve/{hash}", retrieve, RETRIEVE),
    ]


async def _transform(who: Caller, messages: Messages, body: JsonObject) -> VerdictBody:
    """Return a webhook's verdict, which never refuses, with the request as it should go on."""
    done = await messages.shorten(who, body["messages"], _text(body, "model"))
    changed: JsonObject = {**body, "messages": done.messages}
    return {"verdict": True, "data": figures(done), "transformedData": {"request": {"json": changed}}}


def _webhook_body(given: JsonObject) -> JsonObject | None:
    """Return the chat request inside of what Portkey's gateway sends to a webhook; None if it is something else."""
    request: JsonValue = given.get("request")
    body = request.get("json") if isinstance(request, dict) else None
    return body if isinstance(body, dict) and "messages" in body else None


def _text(given: JsonObject, key: str) -> str:
    value = given.get(key)
    return value if isinstance(value, str) else ""

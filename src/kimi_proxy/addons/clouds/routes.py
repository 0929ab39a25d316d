"""Anthropic's messages on Bedrock and Vertex, with the model in the path, as clients write and read them."""

from collections.abc import AsyncIterator
from dataclasses import replace

from starlette.routing import BaseRoute
from starlette.types import Scope

from kimi_proxy.addons.clouds.bodies import BEDROCK, STREAM_TYPE, VERTEX, BedrockMessages, counted_body
from kimi_proxy.api.chat import CHAT, ChatEndpoint
from kimi_proxy.api.forms import ClientForm, model_in_path
from kimi_proxy.api.routing import DescribedRoute
from kimi_proxy.core import json
from kimi_proxy.core.chat import Wire, read
from kimi_proxy.core.chat.members import open_body
from kimi_proxy.services.chat.handler import Chat
from kimi_proxy.services.chat.relay import Answer

_VERTEX_MODELS = "/projects/{project}/locations/{location}/publishers/anthropic/models"
_EVENTS = b"text/event-stream"


def _open(scope: Scope, body: bytes) -> bytes:
    return open_body(body, model_in_path(scope), is_stream=False)


def _open_stream(scope: Scope, body: bytes) -> bytes:
    return open_body(body, model_in_path(scope), is_stream=True)


def _open_counted(scope: Scope, body: bytes) -> bytes:
    return counted_body(body, model_in_path(scope))


def _as_stream(answer: Answer) -> Answer:
    """Return an event stream in Bedrock's framing; a complete response stays unchanged."""
    headers = dict(answer.headers)
    if not headers.get(b"content-type", b"").startswith(_EVENTS):
        return answer
    messages = BedrockMessages()
    others = tuple(each for each in answer.headers if each[0] != b"content-type")
    kind = ((b"content-type", STREAM_TYPE.encode()), (b"x-amzn-bedrock-content-type", b"application/json"))
    rest = None if answer.rest is None else _frame_events(answer.rest, messages)
    return Answer(answer.status, (*others, *kind), messages.feed(answer.body), rest)


async def _frame_events(pieces: AsyncIterator[bytes], messages: BedrockMessages) -> AsyncIterator[bytes]:
    async for piece in pieces:
        if framed := messages.feed(piece):
            yield framed


def _as_count(answer: Answer) -> Answer:
    """Return a count of tokens as Bedrock names it."""
    counted = (read.json_object(answer.body) or {}).get("input_tokens")
    if answer.status != 200 or counted is None:
        return answer
    body = json.encode({"inputTokens": read.value(counted)})
    others = tuple(each for each in answer.headers if each[0] != b"content-length")
    return replace(answer, headers=(*others, (b"content-length", str(len(body)).encode())), body=body)


_ROOTS = ("", "/v1")  # whether or not the client's base address ends in /v1

# By the paths of questions, and of those that only have tokens counted.
CLOUD_ROUTES = {
    "/model/{model:path}/invoke": ClientForm(BEDROCK, _open),
    "/model/{model:path}/invoke-with-response-stream": ClientForm(BEDROCK, _open_stream, _as_stream),
    **{f"{root}{_VERTEX_MODELS}/{{model}}:rawPredict": ClientForm(VERTEX, _open) for root in _ROOTS},
    **{f"{root}{_VERTEX_MODELS}/{{model}}:streamRawPredict": ClientForm(VERTEX, _open_stream) for root in _ROOTS},
}
COUNTING_ROUTES = {
    "/model/{model:path}/count-tokens": ClientForm(BEDROCK, _open_counted, _as_count),
    **{f"{root}{_VERTEX_MODELS}/count-tokens:rawPredict": ClientForm(VERTEX) for root in _ROOTS},
}


def routes(chat: Chat) -> list[BaseRoute]:
    return [
        DescribedRoute("POST", path, ChatEndpoint(ask, Wire.MESSAGES, form), CHAT)
        for ask, forms in ((chat.count_tokens, COUNTING_ROUTES), (chat.answer, CLOUD_ROUTES))
        for path, form in forms.items()
    ]

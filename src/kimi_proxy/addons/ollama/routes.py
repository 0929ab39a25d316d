"""Ollama's API in front of any provider: what editors ask of a local server."""

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import Scope

from kimi_proxy.addons.ollama import texts as ollama
from kimi_proxy.addons.ollama.texts import OllamaModel, OllamaModels, OllamaVersion
from kimi_proxy.api.chat import CHAT, ChatEndpoint
from kimi_proxy.api.forms import ClientForm
from kimi_proxy.api.routing import Access, DescribedRoute, RouteSpec, caller_of, json_route, object_in
from kimi_proxy.core import json
from kimi_proxy.core.chat import Wire, read
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.json import OpenObject
from kimi_proxy.features.models import models_in
from kimi_proxy.services.chat.handler import Chat
from kimi_proxy.services.chat.relay import Answer
from kimi_proxy.services.chat.requests import ChatRequest

CHAT_PATH, TAGS_PATH, SHOW_PATH, VERSION_PATH = "/api/chat", "/api/tags", "/api/show", "/api/version"

_EVENTS, _LINES = b"text/event-stream", b"application/x-ndjson"

TAGS = RouteSpec("List the models, as Ollama does", error=OpenObject, access=Access.PEOPLE)
SHOW = RouteSpec("Describe a model, as Ollama does", body=OpenObject, error=OpenObject, access=Access.PEOPLE)
ABOUT = RouteSpec("Report the supported version of Ollama's API", access=Access.PEOPLE)


def routes(chat: Chat) -> list[BaseRoute]:
    async def tags(request: Request) -> OllamaModels:
        async with chat.list_models(_incoming(request)) as answer:
            return ollama.model_list(models_in(json.decode(answer.body)))

    async def show(request: Request) -> OllamaModel:
        asked = await object_in(request, 'send {"model": NAME}')
        name = read.as_text(asked.get("model") or asked.get("name"))
        if not name:
            raise InvalidParams("model", "must be a string")
        target = chat.models.target(name, Wire.CHAT, chat.credential(_incoming(request)), translate=True)
        return ollama.model_details(name, chat.models.window(target))

    async def version(request: Request) -> OllamaVersion:
        return {"version": ollama.VERSION}

    return [
        DescribedRoute("POST", CHAT_PATH, ChatEndpoint(chat.answer, Wire.CHAT, FORM), CHAT),
        json_route("GET", TAGS_PATH, tags, TAGS),
        json_route("POST", SHOW_PATH, show, SHOW),
        json_route("GET", VERSION_PATH, version, ABOUT),
    ]


def _incoming(request: Request) -> ChatRequest:
    return ChatRequest(caller_of(request), Wire.CHAT, b"", tuple(request.scope["headers"]))


def _open(_: Scope, body: bytes) -> bytes:
    """Raise ParseError if the body is no JSON, InvalidParams if it is no object."""
    asked = json.decode(body)
    if not isinstance(asked, dict):
        raise InvalidParams("body", "send a JSON object with model and messages")
    return json.encode(ollama.chat_request(asked))


def _close(answer: Answer) -> Answer:
    """Return an answer of chat completions as Ollama's: lines of JSON, or one object."""
    kind = dict(answer.headers).get(b"content-type", b"")
    others = tuple(each for each in answer.headers if each[0] not in (b"content-type", b"content-length"))
    if kind.startswith(_EVENTS):
        return Answer(answer.status, (*others, (b"content-type", _LINES)), b"", _lines(answer))
    return Answer(answer.status, (*others, (b"content-type", b"application/json")), b"", _whole(answer))


async def _lines(answer: Answer) -> AsyncIterator[bytes]:
    lines = ollama.ChatLines()
    async for piece in answer.pieces():
        if shown := lines.feed(piece):
            yield shown
    if rest := lines.end():
        yield rest


async def _whole(answer: Answer) -> AsyncIterator[bytes]:
    body = b"".join([piece async for piece in answer.pieces()])
    yield json.encode(ollama.chat_answer(body) if answer.status == 200 else ollama.error_answer(body))


FORM = ClientForm(open=_open, close=_close, shows_usage=True)

"""The chat APIs of OpenAI and Anthropic: a request is passed on, and its answer is streamed back."""

import logging
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from kimi_proxy.api.azure import name_deployment
from kimi_proxy.api.disconnect import ClientBody, until_disconnect
from kimi_proxy.api.errors import refusal
from kimi_proxy.api.forms import GEMINI_FORMS, ClientForm, FormOf
from kimi_proxy.api.routing import Access, DescribedRoute, RouteSpec, SocketRoute, caller_in, json_answer
from kimi_proxy.core.chat.wires import BY_PATH, COUNT_PATHS, Wire, wire_of_client
from kimi_proxy.core.errors import InvalidParams, UpstreamError
from kimi_proxy.core.json import OpenObject
from kimi_proxy.services.chat.handler import Chat
from kimi_proxy.services.chat.relay import Answer
from kimi_proxy.services.chat.requests import ChatRequest

MODELS = ("/v1/models", "/models")
MODEL = "/v1/models/{model:path}"
REALTIME = "/v1/realtime"
RELAYED_METHODS = ("GET", "POST", "DELETE")

_PLAIN_PATH = re.compile(r"(?:/(?!\.\.?(?:/|\Z))[\w.~:@-]+)+", re.ASCII)  # characters that cannot lead out of the path

log = logging.getLogger(__name__)

Ask = Callable[[ChatRequest], AbstractAsyncContextManager[Answer]]

# Errors have the shape of the API that was called.
CHAT = RouteSpec(
    "Ask the provider that serves the model", body=OpenObject, error=OpenObject, is_relayed=True, access=Access.PEOPLE
)
RELAY = RouteSpec("Forward a request unchanged", error=OpenObject, is_relayed=True, access=Access.PEOPLE)
LIST = RouteSpec(
    "List the models of the settings, or of the providers", error=OpenObject, is_relayed=True, access=Access.PEOPLE
)
ONE = RouteSpec(
    "Show a model, of the settings or as its provider does", error=OpenObject, is_relayed=True, access=Access.PEOPLE
)


def routes(chat: Chat, form_of: FormOf) -> list[BaseRoute]:
    """Return the routes of every API; `form_of` finds the forms of those that are not asked in their own."""
    asking: list[BaseRoute] = [
        DescribedRoute(
            "POST",
            path,
            ChatEndpoint(
                chat.count_tokens if path in COUNT_PATHS else chat.answer,
                wire,
                GEMINI_FORMS.get(path) or partial(form_of, path),
            ),
            CHAT,
        )
        for path, wire in BY_PATH.items()
    ]
    listing = [DescribedRoute("GET", path, ByClient(partial(ChatEndpoint, chat.list_models)), LIST) for path in MODELS]
    passing: list[BaseRoute] = [
        DescribedRoute(RELAYED_METHODS, path, RelayEndpoint(chat, wire, form_of), RELAY)
        for wire in Wire
        for path in wire.format.relayed
    ]
    passing += [
        DescribedRoute(RELAYED_METHODS, path, ByClient(partial(RelayEndpoint, chat, form_of=form_of)), RELAY)
        for path in Wire.CHAT.format.uploads
    ]
    sockets = [SocketRoute(path, _refuse_socket, Access.PEOPLE) for path in (*Wire.RESPONSES.format.paths, REALTIME)]
    return [*asking, *listing, DescribedRoute("GET", MODEL, ModelEndpoint(chat, form_of), ONE), *passing, *sockets]


class ChatEndpoint:
    """A bare ASGI application, because every layer around the pieces of an answer costs time."""

    def __init__(self, ask: Ask, wire: Wire, form: ClientForm | Callable[[], ClientForm] | None = None) -> None:
        self._ask = ask
        self._wire = wire
        self._form = form or ClientForm()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        form = self._form if isinstance(self._form, ClientForm) else self._form()
        query = scope["query_string"].decode("latin-1")
        body = form.open(scope, name_deployment(scope, await _body(receive)))
        came_with = tuple(scope["headers"]), query, form.cloud, form.shows_usage
        incoming = ChatRequest(caller_in(scope), self._wire, body, *came_with)
        async with until_disconnect(receive, send) as client, self._ask(incoming) as came:
            answer = form.close(came)
            await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
            await _send_body(answer, client)


class RelayEndpoint:
    """Forwards all other requests unchanged, except for the address and the key."""

    def __init__(self, chat: Chat, wire: Wire, form_of: FormOf) -> None:
        self._chat = chat
        self._wire = wire
        self._form_of = form_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if not _PLAIN_PATH.fullmatch(path):
            raise InvalidParams("path", "use only letters, digits and -._~:@ in each part")
        ask = partial(self._chat.relay, method=scope["method"], path=path)
        await ChatEndpoint(ask, self._wire, self._form_of(path))(scope, receive, send)


class ByClient:
    """A path that two APIs have in common: the client's headers say which of them is meant."""

    def __init__(self, endpoint: Callable[[Wire], ASGIApp]) -> None:
        self._endpoints = {wire: endpoint(wire) for wire in Wire}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name.decode("latin-1") for name, _ in scope["headers"]}
        await self._endpoints[wire_of_client(names)](scope, receive, send)


class ModelEndpoint:
    """Answers with the facts about one model: ours if the settings name it, otherwise its provider's."""

    def __init__(self, chat: Chat, form_of: FormOf) -> None:
        self._chat = chat
        self._form_of = form_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        key = scope["path_params"]["model"]
        wire = wire_of_client(request.headers)
        provider = next((model.provider for name, model in self._chat.models.offered_models() if name == key), None)
        if provider is None:
            await RelayEndpoint(self._chat, wire, self._form_of)(scope, receive, send)
        else:
            await json_answer(wire.format.model_entry(key, provider))(scope, receive, send)


async def _body(receive: Receive) -> bytes:
    """Return the whole body; the guard has it already, and gives it in one message."""
    pieces: list[bytes] = []
    while (message := await receive())["type"] == "http.request":
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    raise ClientDisconnect


async def _refuse_socket(socket: WebSocket) -> None:
    """Refuse an API over a WebSocket; upon this status Codex sends POST requests at once."""
    path = socket.url.path
    message = "the Responses API is not served over a WebSocket: send POST requests to this path"
    if path == REALTIME:
        message = "speech over a WebSocket is not relayed: connect to the provider itself for it"
    await socket.send_denial_response(refusal(426, "upgrade_required", message, path=path))


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
        log.warning("a response broke off", extra={"code": e.code, "what": str(e)[:300]})
        return
    await client.send(b"", more=False)

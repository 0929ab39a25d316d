"""Routes with their access and description, the table that finds the route of a request once, and JSON answers."""

import gzip
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial, reduce
from operator import or_
from types import UnionType
from typing import TypedDict, TypeVar, get_args
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from kimi_proxy.api.azure import AZURE_ROOTS, rename_path
from kimi_proxy.core import json
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import ConfigError, InvalidParams, KimiProxyError
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.tool import validate

Endpoint = Callable[[Request], Response | Awaitable[Response]]

MATCHED = "kimi_proxy.matched"  # the scope's key for the matched route


class Access(IntEnum):
    """The callers that a route allows; each kind is stricter than the one before."""

    VISITORS = 1  # everyone, and a link on a page of another site may lead here
    EVERYONE = 2  # no token needed, because the response exposes no one's data
    PEOPLE = 3  # everyone with a token, where the server asks for one
    ADMINS = 4  # in a team: what shows or changes everyone's


class PageRoute(Route):
    """A page or a file that a browser loads; the API's description omits it."""

    def __init__(self, path: str, endpoint: Endpoint, access: Access) -> None:
        super().__init__(path, endpoint, methods=["GET"])
        self.access = access


class SocketRoute(WebSocketRoute):
    """A WebSocket with its access."""

    def __init__(self, path: str, endpoint: ASGIApp | Callable[..., object], access: Access) -> None:
        super().__init__(path, endpoint)
        self.access = access


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """The route that answers a request; None if there is none at its path."""

    access: Access
    route: BaseRoute | None = None


class LateRoutes:
    """Routes that are loaded with the first request to a path that begins with one of `starts`."""

    def __init__(self, starts: tuple[str, ...], load: Callable[[], Sequence[BaseRoute]]) -> None:
        self.starts = starts
        self._load = load
        self._routes: Sequence[BaseRoute] | None = None

    def routes(self) -> Sequence[BaseRoute]:
        if self._routes is None:
            self._routes = self._load()
        return self._routes


class RouteTable(Router):
    """The routes of an application. Raise ConfigError for one that does not say who may call it."""

    def __init__(self, routes: Sequence[BaseRoute], late: Sequence[LateRoutes] = ()) -> None:
        self._late: list[LateRoutes] = []
        # A redirect would repeat the request's Host header back to it.
        super().__init__((), redirect_slashes=False)
        self._exact: dict[str, list[tuple[BaseRoute, Access]]] = {}
        # Each with what every path of its pattern begins with: to try all of them took a tenth of a gateway call.
        self._patterns: list[tuple[str, BaseRoute, Access]] = []
        self._add(routes)
        self._late = [each for each in late if each.starts]

    @property
    def routes(self) -> list[BaseRoute]:
        """Every route, those too that no request has asked for."""
        self._add_late(self._late)
        return self._routes

    @routes.setter
    def routes(self, routes: list[BaseRoute]) -> None:
        self._routes = routes

    def _add_late(self, late: Sequence[LateRoutes]) -> None:
        for each in list(late):
            self._late.remove(each)
            self._add(each.routes())

    def _add(self, routes: Sequence[BaseRoute]) -> None:
        self._routes.extend(routes)
        for route in routes:
            access = getattr(route, "access", None)
            path = str(getattr(route, "path", route))
            if not isinstance(access, Access):
                raise ConfigError(f"the route {path} does not say who may call it: give it an `access`")
            is_exact = isinstance(route, Route | WebSocketRoute) and not route.param_convertors
            if is_exact:
                self._exact.setdefault(path, []).append((route, access))
            else:
                self._patterns.append((path.partition("{")[0], route, access))

    def access(self, scope: Scope) -> Access:
        """Return who may send this request. A path without a route is for people, who learn that there is none."""
        if scope["path"].startswith(AZURE_ROOTS):
            rename_path(scope)
        elif b"%2f" in scope.get("raw_path", b"").lower() and scope["path"].startswith("/api/"):
            keep_slashes(scope)
        if self._late:
            self._add_late([each for each in self._late if scope["path"].startswith(each.starts)])
        match = scope[MATCHED] = self._match(scope)
        return match.access

    def _match(self, scope: Scope) -> RouteMatch:
        partial: RouteMatch | None = None
        path = scope["path"]
        patterns = ((route, access) for start, route, access in self._patterns if path.startswith(start))
        for route, access in (*self._exact.get(path, ()), *patterns):
            match, more = route.matches(scope)
            if match is Match.FULL:
                scope.update(more)
                params = scope["path_params"]
                params.update({name: value.replace(SLASH, "/") for name, value in params.items() if type(value) is str})
                return RouteMatch(access, route)
            # The strictest route of a path handles a wrong method, because its refusal reveals the least.
            if match is Match.PARTIAL and (partial is None or access > partial.access):
                partial = RouteMatch(access, route)
        return partial or RouteMatch(Access.PEOPLE)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the route that `access` found."""
        if scope["type"] == "lifespan":
            await super().app(scope, receive, send)
            return
        route = scope[MATCHED].route
        await (self.default if route is None else route.handle)(scope, receive, send)


SLASH = "\udc2f"  # stands for an escaped one while a path is matched: no path can hold it


def keep_slashes(scope: Scope) -> None:
    """Keep an escaped slash within its segment: the name of a session may hold one."""
    steps = scope["raw_path"].partition(b"?")[0].decode("ascii", "replace").split("/")
    scope["path"] = "/".join(unquote(step).replace("/", SLASH) for step in steps)


GZIP_MIN_BYTES = 4096
GZIP_LEVEL = 1  # a client waits while it is compressed

Handler = Callable[[Request], Awaitable[object]]
M = TypeVar("M", bound=BaseModel)

_REFUSED = re.compile(r"\s*q\s*=\s*0(\.0*)?\s*")


class ErrorDetail(TypedDict):
    code: str
    message: str


class ErrorBody(TypedDict):
    """An error: `code` is for programs and stays, `message` is for people; some codes come with more fields."""

    error: ErrorDetail


class RequestBody(BaseModel):
    """The body of a request: an unknown key is an error, and no value is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """The input and the answers of a route; the OpenAPI description is generated from it."""

    summary: str
    answer: object | None = None  # the type of its JSON, which `json_route` fills in; None for a body that is text
    status: int = 200
    query: type[BaseModel] | None = None
    body: object | None = None  # what pydantic reads it as
    raises: tuple[type[KimiProxyError], ...] = ()  # in addition to those of every route
    media_type: str = "application/json"
    error: object = ErrorBody
    more: Mapping[int, object] = field(default_factory=dict)  # further statuses, with the type of their JSON
    is_relayed: bool = False  # the answer is another server's
    is_silent: bool = False  # a message that needs no answer gets 202
    access: Access = field(kw_only=True)  # who may call it; there is no default

    @property
    def is_body_required(self) -> bool:
        """Return whether a request without a body is refused."""
        model = self.body
        if isinstance(model, type) and issubclass(model, BaseModel):
            return any(field.is_required() for field in model.model_fields.values())
        return True


class DescribedRoute(Route):
    """A route with its spec."""

    def __init__(
        self, method: str | Sequence[str], path: str, endpoint: ASGIApp | Callable[[Request], object], spec: RouteSpec
    ) -> None:
        super().__init__(path, endpoint, methods=[method] if isinstance(method, str) else list(method))
        self.spec = spec
        self.access = spec.access


def json_route(method: str, path: str, handler: Handler, spec: RouteSpec, *, compressed: bool = False) -> Route:
    """Return a route that sends the result of `handler` as JSON, dataclasses included; a Response is sent unchanged.

    The return type of `handler` describes the response. `compressed` is for lists that grow with use.
    """

    async def endpoint(request: Request) -> Response:
        value = await handler(request)
        if isinstance(value, Response):
            return value
        return gzip_answer(request, value) if compressed else json_answer(value, spec.status)

    return DescribedRoute(method, path, endpoint, replace(spec, answer=answer_type(handler)))


def answer_type(handler: Handler) -> object:
    """Return the type of the JSON that a handler returns. Raise TypeError if its signature does not say."""
    function = handler.func if isinstance(handler, partial) else handler
    declared = function.__annotations__.get("return")
    kinds = [kind for kind in union_members(declared) if kind is not Response]
    if not kinds or set(kinds) & {None, object, dict, JsonObject}:
        raise TypeError(f"{function} must say which type of JSON it returns, because clients read a description of it")
    return reduce(or_, kinds)


def union_members(kind: object) -> Sequence[type]:
    """Return the types of a union, or the one that it is."""
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.encode(value), status, headers, "application/json")


def gzip_answer(request: Request, value: object) -> Response:
    """Return JSON, compressed if it is long and the client accepts that."""
    body = json.encode(value)
    headers = {"vary": "accept-encoding"}
    if len(body) >= GZIP_MIN_BYTES and accepts_gzip(request):
        body = gzip.compress(body, GZIP_LEVEL, mtime=0)
        headers = {**headers, "content-encoding": "gzip"}
    return Response(body, headers=headers, media_type="application/json")


def accepts_gzip(request: Request) -> bool:
    return "gzip" in header_values(request, "accept-encoding")


def header_values(request: Request, header: str) -> set[str]:
    """Return the values that a header lists, without parameters, and without those of weight 0."""
    values = (each.strip().partition(";") for each in request.headers.get(header, "").split(","))
    return {value.strip() for value, _, weight in values if not _REFUSED.fullmatch(weight)}


def caller_of(request: HTTPConnection) -> Caller:
    """Return who calls, as the guard found out."""
    return caller_in(request.scope)


def caller_in(scope: Scope) -> Caller:
    """Return the caller. Raise KeyError if there is no guard in front of the application."""
    who = scope["state"]["caller"]
    if not isinstance(who, Caller):
        raise TypeError("the caller of a request is not what the guard put there")
    return who


def query(request: Request, model: type[M]) -> M:
    """Return the query parameters as `model`. Raise InvalidParams."""
    return validate(model, dict(request.query_params))


async def body(request: Request, model: type[M], advice: str) -> M:
    """Return the JSON body as `model`. Raise InvalidParams."""
    return validate(model, await object_in(request, advice))


async def object_in(request: Request, advice: str) -> JsonObject:
    """Return the JSON object in the body, {} without a body. Raise InvalidParams with `advice` for another value."""
    value = json.decode((await request.body()).strip() or b"{}")
    if not isinstance(value, dict):
        raise InvalidParams("body", advice)
    return value


def whole_number(request: Request, parameter: str) -> dict[str, int]:
    """Return `{parameter: number}` if the query has it. Raise InvalidParams if it is not a whole number."""
    given = request.query_params.get(parameter)
    if given is None:
        return {}
    if not (given.isascii() and given.isdigit() and len(given) < 10):
        raise InvalidParams(parameter, "give a whole number")
    return {parameter: int(given)}

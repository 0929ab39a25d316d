"""Routes with their access, and the table that finds the route of a request once, for the guard and for the answer."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from kimi_proxy.api.azure import rename_path
from kimi_proxy.core.errors import ConfigError

Endpoint = Callable[[Request], Response | Awaitable[Response]]

MATCHED = "kimi_proxy.matched"  # where the match of a request is kept in its scope


class Access(IntEnum):
    """The callers that a route allows; each kind is stricter than the one before."""

    VISITORS = 1  # everyone, and a link on a page of another site may lead here
    EVERYONE = 2  # no token is needed: the answer shows nothing of anyone's
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


class RouteTable(Router):
    """The routes of an application. Raise ConfigError for one that does not say who may call it."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        # A redirect would repeat the request's Host header back to it.
        super().__init__(routes, redirect_slashes=False)
        self._exact: dict[str, list[tuple[BaseRoute, Access]]] = {}
        self._patterns: list[tuple[BaseRoute, Access]] = []
        for route in routes:
            access, path = getattr(route, "access", None), str(getattr(route, "path", route))
            if not isinstance(access, Access):
                raise ConfigError(f"the route {path} does not say who may call it: give it an `access`")
            is_exact = isinstance(route, Route | WebSocketRoute) and not route.param_convertors
            (self._exact.setdefault(path, []) if is_exact else self._patterns).append((route, access))

    def access(self, scope: Scope) -> Access:
        """Return who may send this request. A path without a route is for people, who learn that there is none."""
        rename_path(scope)
        match = scope[MATCHED] = self._match(scope)
        return match.access

    def _match(self, scope: Scope) -> RouteMatch:
        partial: RouteMatch | None = None
        for route, access in (*self._exact.get(scope["path"], ()), *self._patterns):
            match, more = route.matches(scope)
            if match is Match.FULL:
                scope.update(more)
                return RouteMatch(access, route)
            # The strictest route of a path answers a wrong method, because its refusal says the least.
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

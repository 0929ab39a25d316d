"""Who may call a route stands on the route, and a route that does not say so keeps the server from starting."""

from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Scope

from kimi_proxy.api.guard import Guard, Rules
from kimi_proxy.api.routing import Access, DescribedRoute, PageRoute, RouteSpec, RouteTable, SocketRoute
from kimi_proxy.assembly.apps import behind_guard, proxy_app, pruner_app
from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.config import parse

TOKEN = {"authorization": "Bearer the-token"}


async def hello(request: Request) -> Response:
    return PlainTextResponse(f"hello {request.path_params}")


def route(method: str, path: str, access: Access) -> DescribedRoute:
    return DescribedRoute(method, path, hello, RouteSpec("Say hello", access=access))


async def statuses(app: ASGIApp, asked: Sequence[tuple[str, str]], headers: dict[str, str]) -> list[int]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8000") as client:
        return [(await client.request(method, path, headers=headers)).status_code for method, path in asked]


@pytest.mark.parametrize(
    "bare",
    [Route("/bare", hello), WebSocketRoute("/bare", hello), Mount("/bare", Response()), Route("/bare/{x}", hello)],
    ids=["route", "socket", "mount", "pattern"],
)
def test_a_route_that_does_not_say_who_may_call_it_does_not_start(bare: BaseRoute):
    with pytest.raises(Exception, match=r"the route /bare.* does not say who may call it"):
        behind_guard([route("GET", "/ok", Access.PEOPLE), bare], Rules())


def test_a_spec_without_access_cannot_be_made():
    with pytest.raises(TypeError, match="access"):
        RouteSpec("Say hello")  # type: ignore[call-arg]


async def test_without_a_token_only_routes_for_everyone_answer_and_an_unknown_path_is_like_any_other():
    app = behind_guard(
        [
            *(route("GET", "/open", Access.EVERYONE), PageRoute("/", hello, Access.VISITORS)),
            *(route("GET", "/ours", Access.PEOPLE), route("GET", "/ours/{x}", Access.ADMINS)),
        ],
        Rules(token="the-token"),
    )
    asked = [("GET", "/open"), ("GET", "/"), ("GET", "/ours"), ("GET", "/ours/1"), ("GET", "/no"), ("POST", "/ours")]

    assert await statuses(app, asked, {}) == [200, 200, 401, 401, 401, 401]
    assert await statuses(app, asked, TOKEN) == [200, 200, 200, 200, 404, 405]


async def test_a_wrong_method_is_answered_by_the_strictest_route_of_its_path():
    table = RouteTable([route("GET", "/settings", Access.PEOPLE), route("PATCH", "/settings", Access.ADMINS)])

    def access(method: str, path: str = "/settings") -> Access:
        return table.access({"type": "http", "method": method, "path": path, "headers": []})

    assert [access(method) for method in ("GET", "HEAD", "PATCH", "PUT")] == [
        *(Access.PEOPLE, Access.PEOPLE),
        *(Access.ADMINS, Access.ADMINS),
    ]
    assert access("GET", "/settings/") is Access.PEOPLE


async def test_a_socket_and_a_route_at_one_path_have_each_their_own_access():
    table = RouteTable([route("GET", "/both", Access.EVERYONE), SocketRoute("/both", hello, Access.ADMINS)])
    scope: Scope = {"method": "GET", "path": "/both", "headers": []}

    assert table.access({**scope, "type": "http"}) is Access.EVERYONE
    assert table.access({**scope, "type": "websocket"}) is Access.ADMINS


@pytest.mark.parametrize("app", [proxy_app, pruner_app])
async def test_no_pattern_hides_a_route_that_comes_after_it(app: Callable[[Runtime], ASGIApp], tmp_path: Path):
    """The table looks for exact paths first: what a path means must not depend on that."""
    async with running(parse("", {}, tmp_path)) as runtime:
        guard = app(runtime)
    assert isinstance(guard, Guard)
    assert isinstance(guard.app, Starlette)
    routes = [one for one in guard.app.routes if isinstance(one, Route)]
    patterns = [(at, one) for at, one in enumerate(routes) if one.param_convertors]

    for at, pattern in patterns:
        later = [one for one in routes[at + 1 :] if not one.param_convertors and one.methods == pattern.methods]
        assert [one.path for one in later if pattern.path_regex.match(one.path)] == [], pattern.path


async def test_no_other_routes_are_for_everyone_or_for_admins_than_these(tmp_path: Path):
    async with running(parse("", {}, tmp_path)) as runtime:
        apps = [app for app in (proxy_app(runtime), pruner_app(runtime)) if isinstance(app, Guard)]
    found: dict[str, set[str]] = {}
    for one in (each for app in apps for each in app.app.routes):  # type: ignore[attr-defined]
        methods = sorted(getattr(one, "methods", None) or {"WS"})
        found.setdefault(one.access.name, set()).add(f"{methods[0]} {one.path}")
    assert found.pop("PEOPLE")
    assert found == {
        "VISITORS": {"GET /", "GET /api/login/callback"},
        "EVERYONE": {
            *("GET /health", "GET /dashboard/{path:path}"),
            *("GET /api/login", "GET /api/login/start", "POST /api/logout"),
        },
        "ADMINS": {
            *(f"POST /api/mcp/servers/{each}" for each in ("up", "down", "restart")),
            *("GET /api/mcp/servers/{server_name}/logs", "POST /api/sanitizer/toggle", "PATCH /api/settings"),
            *("GET /api/team/people", "GET /api/audit-log", "GET /metrics"),
            *("POST /api/team/people", "DELETE /api/team/people/{person}", "GET /api/team/people/{person}/export"),
            *(f"POST /api/team/people/{{person}}/{each}" for each in ("rotate", "revoke", "erase")),
        },
    }

"""The proxy's application as a whole."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Route

from kimi_proxy.api.guard import Guard
from kimi_proxy.api.proxy import proxy_app
from kimi_proxy.core.config import parse
from kimi_proxy.services.runtime import running

PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text("utf-8")


async def test_every_route_of_the_proxy_is_documented(tmp_path: Path):
    async with running(parse("", {}, tmp_path)) as runtime:
        guard = proxy_app(runtime)
    assert isinstance(guard, Guard)
    assert isinstance(guard.app, Starlette)
    routes = [route for route in guard.app.routes if isinstance(route, Route)]
    served = {f"`{method} {route.path}`" for route in routes for method in (route.methods or set()) - {"HEAD"}}

    assert {line for line in served if line not in PAGE} == set()

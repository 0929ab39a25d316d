"""A catalog over HTTP: `/rpc`, `/mcp` and whatever else a server shows, behind the guard."""

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from kimi_proxy.api import rpc
from kimi_proxy.api.catalog import Catalog
from kimi_proxy.api.eras import MCP, RPC
from kimi_proxy.api.errors import on_fault, on_http_exception, on_own_error
from kimi_proxy.api.guard import Guard, Refusal, Rules
from kimi_proxy.core.errors import KimiProxyError


def site(
    catalog: Catalog,
    rules: Rules,
    routes: Sequence[Route],
    on_refusal: Callable[[Refusal], None],
    at_mcp: Catalog | None = None,
) -> ASGIApp:
    """`at_mcp` is what `/mcp` offers, if that is more than `/rpc` does."""
    doors = [
        Route("/rpc", rpc.endpoint(RPC, catalog), methods=["POST"]),
        Route("/mcp", rpc.endpoint(MCP, at_mcp or catalog), methods=["POST"]),
    ]
    return guarded([*doors, *routes], rules, on_refusal)


def guarded(routes: Sequence[BaseRoute], rules: Rules, on_refusal: Callable[[Refusal], None]) -> ASGIApp:
    """Routes behind the guard, their errors in our words."""
    app = Starlette(
        routes=list(routes),
        exception_handlers={
            KimiProxyError: on_own_error,
            HTTPException: on_http_exception,
            Exception: on_fault,
        },
    )
    # A redirect would repeat the request's Host header back to it.
    app.router.redirect_slashes = False
    return Guard(app, rules, on_refusal)

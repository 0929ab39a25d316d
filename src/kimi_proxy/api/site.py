"""A catalog over HTTP: `/rpc`, `/mcp`, `/health` and `/metrics`, behind the guard."""

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kimi_proxy.api import rpc
from kimi_proxy.api.catalog import Catalog
from kimi_proxy.api.eras import MCP, RPC
from kimi_proxy.api.errors import json_answer, on_fault, on_http_exception, on_own_error
from kimi_proxy.api.guard import Guard, Refusal, Rules
from kimi_proxy.core.errors import KimiProxyError

Endpoint = Callable[[Request], Awaitable[Response]]


def site(
    catalog: Catalog, rules: Rules, counted: Callable[[], bytes], on_refusal: Callable[[Refusal], None]
) -> ASGIApp:
    """`counted` is what `/metrics` shows; the catalog's tool `health` speaks for `/health`."""
    app = Starlette(
        routes=[
            Route("/rpc", rpc.endpoint(RPC, catalog), methods=["POST"]),
            Route("/mcp", rpc.endpoint(MCP, catalog), methods=["POST"]),
            Route("/health", _health(catalog), methods=["GET"]),
            Route("/metrics", _metrics(counted), methods=["GET"]),
        ],
        exception_handlers={
            KimiProxyError: on_own_error,
            HTTPException: on_http_exception,
            Exception: on_fault,
        },
    )
    # A redirect would repeat the request's Host header back to it.
    app.router.redirect_slashes = False
    return Guard(app, rules, on_refusal)


def _health(catalog: Catalog) -> Endpoint:
    async def health(request: Request) -> Response:
        return json_answer((await catalog.tool("health").call({})).structured)

    return health


def _metrics(counted: Callable[[], bytes]) -> Endpoint:
    async def metrics(request: Request) -> Response:
        return Response(counted(), media_type="text/plain; version=0.0.4")

    return metrics

"""The proxy's HTTP application: the chat APIs with their sessions, the gateway to MCP servers with what it hid."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from kimi_proxy import __version__
from kimi_proxy.api import (
    chat,
    compress,
    context,
    cuts,
    dashboard,
    export,
    gateway,
    masks,
    memory,
    playground,
    providers,
    sanitizer,
    servers,
    sessions,
    settings,
)
from kimi_proxy.api.app import rules_of
from kimi_proxy.api.errors import json_answer
from kimi_proxy.api.health import store_state
from kimi_proxy.api.live import Live
from kimi_proxy.api.site import guarded
from kimi_proxy.services.runtime import Runtime

SERVER = "kimi-proxy"


def proxy_app(runtime: Runtime) -> ASGIApp:
    routes: list[BaseRoute] = [
        *dashboard.routes(),
        *chat.routes(runtime.chat),
        *gateway.routes(runtime.gateway),
        *servers.routes(runtime.supervisor),
        *sessions.routes(runtime.sessions),
        *providers.routes(runtime.config, runtime.chat),
        *export.routes(runtime.sessions),
        Live(runtime.hub, runtime.sessions, runtime.metrics).route(),
        *sanitizer.routes(runtime.sanitizer),
        *cuts.routes(runtime.cuts),
        *playground.routes(runtime.pruner),
        *settings.routes(runtime.settings),
        *compress.routes(runtime.compressions),
        *context.routes(runtime.sessions, runtime.latest),
        *memory.routes(runtime.project_memory, runtime.sessions),
        Route("/api/mask/{mask_id}", masks.endpoint(runtime.gateway), methods=["GET"]),
        Route("/health", _health(runtime), methods=["GET"]),
    ]
    return guarded(routes, rules_of(runtime.config, runtime.config.proxy.host), lambda refusal: None)


def _health(runtime: Runtime) -> Callable[[Request], Awaitable[Response]]:
    async def health(request: Request) -> Response:
        state = await store_state(runtime.store)
        sick = {} if state == "ok" else {"store": state}
        return json_answer({"status": "healthy", "server": SERVER, "version": __version__, **sick})

    return health

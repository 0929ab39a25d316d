"""The pruner's HTTP application."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from kimi_proxy import __version__
from kimi_proxy.api import chat, compression, cuts, dashboard, gateway, metrics, rpc, sessions, settings
from kimi_proxy.api.errors import json_answer, on_fault, on_http_exception, on_own_error
from kimi_proxy.api.guard import LOOPBACK, Guard, Refusal, Rules
from kimi_proxy.api.live import Live
from kimi_proxy.api.mcp import MCP, RPC, Catalog, Observe, unobserved
from kimi_proxy.core.config import Config
from kimi_proxy.core.errors import ConfigError, KimiProxyError
from kimi_proxy.services.runtime import Runtime
from kimi_proxy.services.store import Store
from kimi_proxy.services.tools.agent import over_http

PATIENCE_S = 1.0


def endpoint(runtime: Runtime) -> Callable[[Request], Awaitable[Response]]:
    async def health(request: Request) -> Response:
        answer = await runtime.tools["health"].call({})
        state = await store_state(runtime.store)
        # Originals may be out of reach and the pruner still healthy: texts then go out whole.
        return json_answer({**(answer.structured or {}), **({} if state == "ok" else {"store": state})})

    return health


async def store_state(store: Store, patience_s: float = PATIENCE_S) -> str:
    try:
        async with asyncio.timeout(patience_s):
            return (await store.usage()).state
    except TimeoutError:
        return "degraded: the store does not answer"


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


HOST = "127.0.0.1"


def tools_app(runtime: Runtime) -> ASGIApp:
    """read, grep, bash and recover_text; bash too, so nobody gets in without the token."""
    if runtime.config.token is None:
        raise ConfigError("bash runs commands for whoever reaches its port: set KIMI_PROXY_TOKEN, or use --stdio")
    routes = [Route("/health", endpoint(runtime), methods=["GET"])]
    return site(tools_catalog(runtime), rules_of(runtime.config, HOST), routes, _unheard)


def _unheard(refusal: Refusal) -> None:
    """The one client that matters has the token."""


INSTRUCTIONS = (
    "prune_text keeps the lines of a long text that matter for your goal and puts a marker "
    "⟦PRUNÉ: prune_id=… lignes a-b …⟧ where others were. Nothing is lost: recover_text returns the "
    "original lines behind a marker, by its prune_id and line numbers."
)
TOOLS_INSTRUCTIONS = (
    "read, grep and bash take a context_focus_question: a full question, and they print only the lines that matter "
    "for it, with markers ⟦PRUNÉ: prune_id=… lignes a-b …⟧ for the rest. Locate with grep, read with a question, "
    "and when a marker hides what you need, call recover_text with its prune_id and line numbers."
)
EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - named to be left out of the hosts we answer to


def pruner_app(runtime: Runtime) -> ASGIApp:
    traffic = metrics.Traffic(runtime.metrics.registry)
    routes = [
        Route("/health", endpoint(runtime), methods=["GET"]),
        Route("/metrics", metrics.endpoint(runtime), methods=["GET"]),
        Route("/prune", cuts.endpoint(runtime), methods=["POST"]),
    ]
    rules = rules_of(runtime.config, runtime.config.mcp_pruner.host)
    catalog = pruner_catalog(runtime, traffic.called)
    more = {**catalog.tools, **over_http(runtime.agent_tools, runtime.config.tools)}
    return site(catalog, rules, routes, traffic.refused, replace(catalog, tools=more, ends_with_caller="bash" in more))


def pruner_catalog(runtime: Runtime, observe: Observe = unobserved) -> Catalog:
    return Catalog("mcp-pruner", __version__, INSTRUCTIONS, runtime.tools, observe)


def tools_catalog(runtime: Runtime) -> Catalog:
    """What an agent gets that wants tools, and the way back from their markers."""
    offered = {**runtime.agent_tools, "recover_text": runtime.tools["recover_text"]}
    return Catalog("kimi-proxy-tools", __version__, TOOLS_INSTRUCTIONS, offered)


def rules_of(config: Config, host: str) -> Rules:
    """The guard's rules for a server that is bound to `host`."""
    name = f"[{host}]" if ":" in host else host
    own = () if host in EVERYWHERE or name in LOOPBACK else (name,)
    return Rules(
        hosts=(*own, *config.access.allowed_hosts),
        token=config.token.get_secret_value() if config.token else None,
        max_body_bytes=config.access.max_body_bytes,
    )


SERVER = "kimi-proxy"


def proxy_app(runtime: Runtime) -> ASGIApp:
    routes: list[BaseRoute] = [
        *dashboard.routes(),
        *chat.routes(runtime.chat),
        *gateway.routes(runtime.gateway),
        *gateway.server_routes(runtime.supervisor),
        *sessions.routes(runtime.sessions),
        *settings.provider_routes(runtime.config, runtime.chat),
        *sessions.export_routes(runtime.sessions),
        Live(runtime.hub, runtime.sessions, runtime.metrics).route(),
        *compression.sanitizer_routes(runtime.sanitizer),
        *cuts.routes(runtime.cuts),
        *cuts.playground_routes(runtime.pruner),
        *settings.routes(runtime.settings),
        *compression.routes(runtime.compressions),
        *sessions.context_routes(runtime.sessions, runtime.latest_requests),
        *compression.memory_routes(runtime.project_memory, runtime.sessions),
        Route("/api/mask/{mask_id}", gateway.endpoint(runtime.gateway), methods=["GET"]),
        Route("/health", _health(runtime), methods=["GET"]),
    ]
    return guarded(routes, rules_of(runtime.config, runtime.config.proxy.host), lambda refusal: None)


def _health(runtime: Runtime) -> Callable[[Request], Awaitable[Response]]:
    async def health(request: Request) -> Response:
        state = await store_state(runtime.store)
        sick = {} if state == "ok" else {"store": state}
        return json_answer({"status": "healthy", "server": SERVER, "version": __version__, **sick})

    return health

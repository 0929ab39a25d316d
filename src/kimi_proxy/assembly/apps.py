"""The three HTTP applications, the pruner, the proxy and the agent tools of one run, and where they listen."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypedDict
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from kimi_proxy import __version__
from kimi_proxy.api import chat, context, dashboard, gateway, metrics, pruning, sessions, settings
from kimi_proxy.api.addon import Serving
from kimi_proxy.api.caller_watch import Headers
from kimi_proxy.api.errors import on_fault, on_http_exception, on_own_error
from kimi_proxy.api.forms import ClientForm
from kimi_proxy.api.guard import LOOPBACK, Guard, Refusal, Room, Rules, cookie_in, tokens_in
from kimi_proxy.api.live import Live
from kimi_proxy.api.mcp import MCP, RPC, Catalog
from kimi_proxy.api.mcp.catalogs import pruner_catalog, tools_catalog
from kimi_proxy.api.mcp.http import endpoint, rpc_spec
from kimi_proxy.api.openapi import with_description
from kimi_proxy.api.routing import Access, DescribedRoute, LateRoutes, RouteSpec, RouteTable, json_route
from kimi_proxy.api.server import serve, serve_all
from kimi_proxy.assembly import addons
from kimi_proxy.assembly.runtime import Runtime
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config import ADDON_SETTINGS, Config
from kimi_proxy.core.errors import ConfigError, KimiProxyError
from kimi_proxy.proxy.local_server import local_url, outward_address, port_owner
from kimi_proxy.proxy.memory import memory_limit
from kimi_proxy.services.background import announce
from kimi_proxy.services.store.protocols import Store
from kimi_proxy.services.tools.agent import over_http
from kimi_proxy.services.tools.prune_text import PrunerHealthBody, check_health

if TYPE_CHECKING:
    from kimi_proxy.team.logins import Logins
    from kimi_proxy.team.team import Team

TOOLS_HOST = "127.0.0.1"
ALL_INTERFACES = ("0.0.0.0", "::", "")  # noqa: S104 - named to be left out of the hosts we answer to
TEAM_PATHS = ("/api/me", "/api/report", "/api/team/", "/api/audit-log", "/api/login", "/api/logout")
STORE_TIMEOUT_S = 1.0
PROGRAMS_END_S = 3.5  # the time to stop programs that ignore both the end of their input and SIGTERM
WARM_AFTER_S = 0.2  # a call that waits for the servers asks them several times in it


HEALTH = RouteSpec("Report that the server is up", access=Access.EVERYONE)


class StoreProblem(TypedDict, total=False):
    store: str  # only while the store is not well


class HealthBody(StoreProblem):
    status: Literal["healthy"]
    server: str
    version: str


@dataclass(frozen=True, slots=True)
class Listener:
    """A server of ours: its name, its address, its application, and what to say of it."""

    name: str
    host: str
    port: int
    app: Callable[[Runtime], ASGIApp]
    about: str
    port_setting: str  # the option and the variable that choose another port
    is_public: bool = False  # it exposes no one's data, so it needs no token


def pruner_listener(config: Config, option: str = "--pruner-port") -> Listener:
    where = config.mcp_pruner
    about = "/mcp for MCP clients, /rpc, /health"
    return Listener("pruner", where.host, where.port, pruner_app, about, f"{option} PORT, MCP_PRUNER_PORT=PORT")


def proxy_listener(config: Config) -> Listener:
    where = config.proxy
    about = "/api/mcp-gateway/NAME/mcp for MCP clients, /health"
    return Listener("proxy", where.host, where.port, proxy_app, about, "--port PORT, KIMI_PROXY_PORT=PORT")


def metrics_listener(config: Config) -> Listener:
    where = config.metrics
    how = "KIMI_PROXY__METRICS__PORT=PORT"
    return Listener("metrics port", where.host, where.port, metrics_app, "/metrics", how, is_public=True)


async def listen(
    runtime: Runtime,
    listeners: Sequence[Listener],
    stop: asyncio.Event,
    remark: Callable[[str], None],
    on_ready: Callable[[Mapping[str, str]], None],
) -> None:
    """Serve until `stop` is set; `on_ready` gets all addresses by name. If one cannot listen, all stop."""
    addresses: dict[str, str] = {}
    async with AsyncExitStack() as alongside:

        def ready(listener: Listener, host: str, port: int) -> None:
            addresses[listener.name] = local_url(host, port)
            remark(f"the {listener.name} listens on {local_url(host, port)} ({listener.about})")
            if len(addresses) == len(listeners):
                on_ready(addresses)
                _start_background_work(runtime, addresses, alongside)

        config = runtime.config
        servers = [
            partial(
                serve,
                listener.app(runtime),
                listener.host,
                listener.port,
                stop=stop,
                shutdown=config.shutdown,
                token=is_closed(config),
                is_public=listener.is_public,
                on_ready=partial(ready, listener),
                occupant=port_owner,
                port_setting=listener.port_setting,
            )
            for listener in listeners
        ]
        served = asyncio.Event()
        programs = asyncio.create_task(_end_programs(runtime, stop, served))
        try:
            await serve_all(servers, stop)
        finally:
            stop.set()
            served.set()
            await programs


async def _end_programs(runtime: Runtime, stop: asyncio.Event, served: asyncio.Event) -> None:
    """Stop MCP servers while the last requests still run: one that resists takes several seconds."""
    shutdown = runtime.config.shutdown
    await stop.wait()
    with suppress(TimeoutError):
        async with asyncio.timeout(shutdown.notice_s + max(0.0, shutdown.drain_s - PROGRAMS_END_S)):
            await served.wait()
    await runtime.supervisor.close()
    await runtime.gateway.close()


def _start_background_work(runtime: Runtime, addresses: Mapping[str, str], alongside: AsyncExitStack) -> None:
    """Start background work that can wait until the servers are ready."""
    warming = asyncio.create_task(_warm(runtime))
    alongside.push_async_callback(asyncio.wait_for, warming, None)
    if "proxy" in addresses:
        alongside.enter_context(announce(runtime.config.home, addresses, runtime.config.file))
        runtime.supervisor.start()


async def _warm(runtime: Runtime) -> None:
    """Load what the first request would wait for, after health probes have been answered.

    The vocabulary takes a third of a second, during which no other thread runs.
    """
    await asyncio.sleep(WARM_AFTER_S)
    await runtime.pruner.warm()
    runtime.pruner.keep_spare()


def pruner_app(runtime: Runtime) -> ASGIApp:
    def count_refusal(refusal: Refusal) -> None:
        runtime.metrics.http_refusals.labels(refusal.code).inc()

    routes = [
        _pruner_health(runtime),
        metrics.route(runtime.metrics, runtime.store),
        pruning.swe_prune_route(runtime.pruner),
    ]
    rules = rules_of(runtime.config, runtime.config.mcp_pruner.host, runtime.team)
    catalog = pruner_catalog(runtime, runtime.metrics.count_tool_call)
    # They run as the server's user, who may read what everyone keeps: people of a team run their own, over stdio.
    files = {} if runtime.team else over_http(runtime.agent_tools, runtime.config.tools)
    catalog = replace(catalog, tools={**catalog.tools, **files}, ends_with_caller=bool(files))
    return mcp_app(catalog, rules, routes, count_refusal)


def metrics_app(runtime: Runtime) -> ASGIApp:
    """Return `/metrics` alone, for scrapers that call by the address of a pod and have no token."""
    rules = Rules(hosts=runtime.config.access.allowed_hosts, any_address=True)
    return behind_guard([metrics.route(runtime.metrics, runtime.store, Access.EVERYONE)], rules)


def tools_app(runtime: Runtime) -> ASGIApp:
    """Return read, grep, bash and recover_text. Raise ConfigError without a token, because bash runs commands."""
    if runtime.team:
        raise ConfigError("in a team, read and bash over a port would run with access to everyone's store: use --stdio")
    if not is_closed(runtime.config):
        raise ConfigError(
            "anyone who can reach the port could run commands with bash: set KIMI_PROXY_TOKEN, or use --stdio"
        )
    return mcp_app(
        tools_catalog(runtime), rules_of(runtime.config, TOOLS_HOST, runtime.team), [_pruner_health(runtime)]
    )


def proxy_app(runtime: Runtime) -> ASGIApp:
    async def health(request: Request) -> HealthBody:
        return {
            "status": "healthy",
            "server": "kimi-proxy",
            "version": __version__,
            **await _store_problem(runtime.store),
        }

    # The dashboard is served only here: a login's cookie is sent to every port, but counts on no other.
    rules = _with_logins(
        rules_of(runtime.config, runtime.config.proxy.host, runtime.team), runtime.team.logins if runtime.team else None
    )
    routes: list[BaseRoute] = [
        *dashboard.routes(),
        *chat.routes(runtime.chat, _client_form),
        *gateway.routes(runtime.gateway, pruner_catalog(runtime)),
        *gateway.server_routes(runtime.supervisor),
        *sessions.SessionRoutes(runtime.sessions).routes(),
        *settings.provider_routes(runtime.config, runtime.chat, runtime.model_windows),
        *sessions.export_routes(runtime.sessions),
        Live(runtime.hub, runtime.sessions, runtime.metrics).route(),
        *context.sanitizer_routes(runtime.sanitizer, runtime.settings),
        *pruning.cut_routes(runtime.cuts),
        pruning.playground_route(runtime.pruner),
        *settings.settings_routes(runtime.settings),
        settings.store_route(runtime.config, runtime.store),
        *context.compression_routes(runtime.compressions),
        *context.context_routes(runtime.sessions, runtime.latest_requests),
        *context.memory_routes(runtime.project_memory, runtime.sessions),
        *gateway.original_routes(runtime.recovery),
        json_route("GET", "/health", health, HEALTH),
    ]
    late = [*_addon_routes(runtime), LateRoutes(TEAM_PATHS, partial(_team_routes, runtime))]
    return behind_guard(with_description(routes, late), rules, late=late)


def _addon_routes(runtime: Runtime) -> Sequence[LateRoutes]:
    """Return the routes of all addons."""
    serving = Serving(runtime.chat, runtime.messages)

    def load(name: str) -> Sequence[BaseRoute]:
        make = addons.load(name).routes
        return make(runtime.given, serving) if make else ()

    return [LateRoutes(ADDON_SETTINGS[name].PATHS, partial(load, name)) for name in addons.INSTALLED]


def _client_form(path: str) -> ClientForm:
    """Return the form of requests to a path of the core; that of its API unless an addon has another."""
    for name in addons.INSTALLED:
        starts = ADDON_SETTINGS[name].FORMS
        if starts and path.startswith(starts):
            form_of = addons.load(name).client_form
            return form_of(path) if form_of else ClientForm()
    return ClientForm()


def _team_routes(runtime: Runtime) -> Sequence[BaseRoute]:
    """Return the team's routes; those too by which a server without a team says that it has none."""
    from kimi_proxy.team.routes import all_routes

    return all_routes(runtime.store, runtime.team, runtime.sessions, runtime.config.team.token_days)


def mcp_app(
    catalog: Catalog,
    rules: Rules,
    routes: Sequence[Route],
    on_refusal: Callable[[Refusal], None] = lambda refusal: None,
) -> ASGIApp:
    """Return an application with `routes`, and the same tools at `/rpc` and `/mcp`."""
    tool_routes = [
        DescribedRoute("POST", "/rpc", endpoint(RPC, catalog), rpc_spec("Call a tool by JSON-RPC")),
        DescribedRoute("POST", "/mcp", endpoint(MCP, catalog), rpc_spec("Speak MCP over Streamable HTTP")),
    ]
    return behind_guard(with_description([*tool_routes, *routes]), rules, on_refusal)


def behind_guard(
    routes: Sequence[BaseRoute],
    rules: Rules,
    on_refusal: Callable[[Refusal], None] = lambda refusal: None,
    late: Sequence[LateRoutes] = (),
) -> ASGIApp:
    """Return an application of these routes behind the guard, with our error answers.

    Raise ConfigError if a route does not say who may call it.
    """
    table = RouteTable(routes, late)
    app = Starlette(
        exception_handlers={
            KimiProxyError: on_own_error,
            HTTPException: on_http_exception,
            Exception: on_fault,
        },
    )
    app.router = table
    return Guard(app, rules, on_refusal, table.access, Room(memory_limit(), rules.max_body_bytes))


def is_closed(config: Config) -> bool:
    """Return whether callers need a token."""
    return config.token is not None or config.team.enabled


def rules_of(config: Config, host: str, people: "Team | None" = None) -> Rules:
    """Return the guard's rules for a server that is bound to `host`; with `people`, each has a token."""
    name = f"[{host}]" if ":" in host else host
    # On all interfaces, the address that the start message names is ours too; a rebound name is not.
    outward = outward_address(host) if host in ALL_INTERFACES else None
    own = () if name in LOOPBACK else (outward,) if outward else () if host in ALL_INTERFACES else (name,)
    return Rules(
        hosts=(*own, *config.access.allowed_hosts),
        token=config.token.get_secret_value() if config.token else None,
        max_body_bytes=config.access.max_body_bytes,
        identify=None if people is None else partial(_caller_in, people),
        on_denied=None if people is None else partial(_note_denied, people),
    )


def _note_denied(people: "Team", who: Caller, path: str) -> None:
    people.audit.add(who, "call", path, outcome="denied")


async def _caller_in(people: "Team", headers: Headers) -> Caller | None:
    return await people.people.identify(tokens_in(headers))


def _with_logins(rules: Rules, logins: "Logins | None") -> Rules:
    """Return `rules` that accept a dashboard login as identification if there is no token."""
    by_token = rules.identify
    if logins is None or by_token is None:
        return rules
    from kimi_proxy.team.routes import session_cookie

    cookie = session_cookie(logins)

    async def identify(headers: Headers) -> Caller | None:
        return await by_token(headers) or await logins.identify(cookie_in(headers, cookie))

    return replace(
        rules, hosts=(*rules.hosts, urlsplit(logins.settings.public_url.get_secret_value()).netloc), identify=identify
    )


def _pruner_health(runtime: Runtime) -> Route:
    async def health(request: Request) -> PrunerHealthBody:
        # The pruner is healthy without its store: texts are then sent uncut.
        return {**await check_health(), **await _store_problem(runtime.store)}

    return json_route("GET", "/health", health, HEALTH)


async def _store_problem(store: Store) -> StoreProblem:
    """Return `{"store": state}` if the store is not well or does not answer in time; `/api/store` says why."""
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            state = (await store.usage()).without_places().state  # everyone may ask
    except TimeoutError:
        state = "degraded: the store does not answer"
    return {} if state == "ok" else {"store": state}

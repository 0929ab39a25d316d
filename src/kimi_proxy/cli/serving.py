"""`kimi-proxy start` and `kimi-proxy pruner`: run the servers in the foreground."""

from __future__ import annotations

import gc
import os
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kimi_proxy.cli.config import sources
from kimi_proxy.cli.console import config_option, environment, load, remark

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from kimi_proxy.api.mcp import Catalog
    from kimi_proxy.assembly.apps import Listener
    from kimi_proxy.assembly.runtime import Runtime
    from kimi_proxy.assembly.tools import ToolsRuntime
    from kimi_proxy.core.caller import Caller
    from kimi_proxy.core.config import Config
    from kimi_proxy.services.configuration import LoadedSettings
    from kimi_proxy.services.pruner import Pruner


PORT = click.IntRange(0, 65_535)
CHECKS_WITHIN_S = 7 * 86_400
CHECKS_READ_S = 1.0  # the start does not wait longer for these figures


@click.command()
@config_option
@click.option("--port", type=PORT, help="Port of the proxy and the dashboard; 0 picks a free one.  [default: 8000]")
@click.option("--pruner-port", type=PORT, help="Port of the pruner; 0 picks a free one.  [default: 8006]")
@click.option("--observe", is_flag=True, help="Change no request, and count what would have been saved.")
def start(config_file: Path | None, port: int | None, pruner_port: int | None, observe: bool) -> None:
    """Run the proxy, the gateway, the pruner and the dashboard in the foreground until Ctrl-C.

    The proxy and the dashboard are on http://127.0.0.1:8000, the pruner is on http://127.0.0.1:8006. Settings come from
    these options, the environment and config.toml.
    """
    from kimi_proxy.assembly.apps import metrics_listener, proxy_listener, pruner_listener
    from kimi_proxy.core.config import require_keys

    ports = {"KIMI_PROXY_PORT": port, "MCP_PRUNER_PORT": pruner_port}
    options = {variable: str(chosen) for variable, chosen in ports.items() if chosen is not None}
    if observe:
        options["KIMI_PROXY__SANITIZER__MODE"] = "observe"
    settings = load(Path(), environment(config_file, options))
    require_keys(settings.config)
    config = settings.config
    figures = (metrics_listener(config),) if config.metrics.enabled else ()
    _serve(settings, (pruner_listener(config), proxy_listener(config), *figures))


@click.command()
@click.option("--stdio", is_flag=True, help="Speak MCP on standard input and output instead of a port.")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=PORT, help="Port; 0 picks a free one.  [default: 8006]")
def pruner(stdio: bool, host: str | None, port: int | None) -> None:
    """Run only the pruner, on a port or on standard input and output.

    --stdio is for MCP clients; the pruner runs until the client closes its standard input.
    """
    settings = load(None if stdio else Path())
    config = settings.config
    chosen = {"host": host, "port": port}
    changed = {key: value for key, value in chosen.items() if value is not None}
    config = config.model_copy(update={"mcp_pruner": config.mcp_pruner.model_copy(update=changed)})
    settings = replace(settings, config=config)
    if stdio:
        from kimi_proxy.api.mcp.catalogs import PRUNER, pruner_catalog

        serve_tools(settings, PRUNER, pruner_catalog)
    else:
        from kimi_proxy.assembly.apps import pruner_listener

        _serve(settings, (pruner_listener(config, "--port"),))


def run_runtime(settings: LoadedSettings, serve: Callable[[Runtime], Awaitable[None]]) -> None:
    """Run `serve` with a runtime and logging for these settings."""
    from kimi_proxy.api.server import run
    from kimi_proxy.assembly.runtime import running
    from kimi_proxy.core.logs import write_to_stderr

    write_to_stderr(settings.config.log)

    async def life() -> None:
        async with running(settings.config, env=settings.env) as runtime:
            await serve(runtime)

    run(life())


def serve_tools(
    settings: LoadedSettings, introduction: Catalog, catalog: Callable[[ToolsRuntime], Catalog], is_warmed: bool = False
) -> None:
    """Serve only the tools on standard input and output, with few imports because the agent waits for them."""
    import asyncio
    from importlib import import_module

    from kimi_proxy.api.mcp.stdio import serve_stdio
    from kimi_proxy.core.logs import write_to_stderr

    write_to_stderr(settings.config.log)

    @asynccontextmanager
    async def load() -> AsyncIterator[tuple[Catalog, Caller]]:
        await asyncio.to_thread(import_module, "kimi_proxy.assembly.tools")
        from kimi_proxy.assembly.tools import running_tools

        tools = running_tools(settings.config, settings.env)
        async with tools as runtime, warming(runtime.pruner) if is_warmed else nullcontext():
            yield catalog(runtime), runtime.caller

    asyncio.run(serve_stdio(introduction, load))


@asynccontextmanager
async def warming(pruner: Pruner) -> AsyncIterator[None]:
    """Load the pruner in the background, so that the first question is answered faster."""
    import asyncio

    task = asyncio.create_task(pruner.warm())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def _serve(settings: LoadedSettings, listeners: Sequence[Listener]) -> None:
    from kimi_proxy.api.server import refuse_exposure, run, stop_on_signals
    from kimi_proxy.assembly.apps import listen
    from kimi_proxy.assembly.runtime import running
    from kimi_proxy.core.logs import write_to_stderr
    from kimi_proxy.proxy.allocator import limit_arenas, trimming_memory

    config = settings.config
    for listener in listeners:
        if listener.is_public:
            continue
        chars = len(config.token.get_secret_value()) if config.token else 0
        refuse_exposure(listener.host, config.token is not None, chars)
    write_to_stderr(config.log)
    # Libraries read variables themselves: botocore its credentials, OpenTelemetry its attributes.
    os.environ.update(settings.env)
    say = _remarks_as(config.log.format)
    limit_arenas()

    async def life() -> None:
        with stop_on_signals() as stop:
            async with trimming_memory(), running(config, env=settings.env) as runtime:
                gc.freeze()  # otherwise a collection takes 100 ms, during which the event loop stands still
                checks = await _explain_safety_checks(runtime)
                welcome = partial(_welcome, settings, checks, say)
                await listen(runtime, listeners, stop, say, welcome)

    run(life())
    say("stopped")


def _remarks_as(format: str) -> Callable[[str], None]:
    """Return a function that prints remarks, as JSON events if the log format is JSON."""
    if format != "json":
        return remark

    def write_event(text: str) -> None:
        from kimi_proxy.core.logs import write_line

        write_line(text)

    return write_event


async def _explain_safety_checks(runtime: Runtime) -> str:
    """Return what Claude Code's auto mode needs with these providers, and what its checks have cost; "" if nothing."""
    import asyncio
    import time

    from kimi_proxy.connect.proxied import explain_auto_mode, who_answers
    from kimi_proxy.core.caller import LOCAL
    from kimi_proxy.core.errors import StoreUnavailable
    from kimi_proxy.features.accounting import describe_safety_checks, sum_safety_checks

    needs = explain_auto_mode(who_answers(runtime.config))
    if not needs:
        return ""
    try:
        async with asyncio.timeout(CHECKS_READ_S):
            lines = await runtime.store.sessions.accounts(LOCAL, time.time() - CHECKS_WITHIN_S)
    except (StoreUnavailable, TimeoutError):
        return needs
    checks = sum_safety_checks(lines)
    return f"{needs} ({describe_safety_checks(checks)} in the last 7 days)" if checks.requests else needs


def _welcome(
    settings: LoadedSettings, checks: str, remark: Callable[[str], None], addresses: Mapping[str, str]
) -> None:
    config = settings.config
    proxy = addresses.get("proxy")
    if proxy is not None:
        remark(f"the dashboard is on {proxy}/")
        remark(f"base URLs for chat: {proxy}/v1 (OpenAI chat completions and responses), {proxy} (Anthropic)")
        if config.sanitizer.mode == "observe":
            remark(
                "observing: requests are forwarded unchanged, and kimi-proxy report shows what would have been saved"
            )
        if config.cache.marks:
            remark("cache marks are added for Anthropic clients that set none ([cache] marks = false turns this off)")
        if checks:
            remark(checks)
    for line in _elsewhere(config, addresses):
        remark(line)
    for line in sources(settings):
        remark(line)
    for ignored in config.ignored:
        remark(ignored.warning)
    remark(f"originals are stored {_store_place(config)}")
    remark(f"try: curl -s {addresses['pruner']}/health")
    remark("press Ctrl-C to stop")


def _store_place(config: Config) -> str:
    from kimi_proxy.core.addresses import show_address

    store = config.store
    return f"in {show_address(store.url)}" if store.url else f"under {config.home}"


def _elsewhere(config: Config, addresses: Mapping[str, str]) -> Iterator[str]:
    """Yield the external addresses of servers that listen on all interfaces."""
    from kimi_proxy.proxy.local_server import ANY, outward_address

    hosts = {"pruner": config.mcp_pruner.host, "proxy": config.proxy.host}
    for name, host in hosts.items():
        address = addresses.get(name)
        outward = outward_address(host) if address and host in ANY else None
        if address is not None and outward is not None:
            port = address.rpartition(":")[2]
            yield f"from other machines, the {name} is on http://{outward}:{port} (with the token)"

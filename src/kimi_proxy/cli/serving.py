"""`kimi-proxy start` and `kimi-proxy pruner`: run the servers in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kimi_proxy.cli.console import load, remark, server_config

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kimi_proxy.api.apps import Listener
    from kimi_proxy.core.config import Config
    from kimi_proxy.services.runtime import Runtime


def start() -> None:
    """Run everything in the foreground until Ctrl-C: the pruner, the proxy with its gateway, and MCP servers behind it.

    Settings come from the environment and from config.toml; without any it listens on 127.0.0.1:8006 and :8000.
    """
    from kimi_proxy.api.apps import proxy_listener, pruner_listener

    config = server_config()
    _serve(config, (pruner_listener(config), proxy_listener(config)))


def pruner(
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Speak MCP on standard input and output instead of a port.")
    ] = False,
    host: Annotated[str | None, typer.Option(help="The address to listen on.  [default: 127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="The port; 0 takes a free one.  [default: 8006]")
    ] = None,
) -> None:
    """Run the pruner alone, on a port or on stdin and stdout.

    With --stdio it is meant to be started by an MCP client, which ends it by closing its standard input.
    """
    config = load(here=None if stdio else Path()).config
    chosen = {"host": host, "port": port}
    changed = {key: value for key, value in chosen.items() if value is not None}
    config = config.model_copy(update={"mcp_pruner": config.mcp_pruner.model_copy(update=changed)})
    if stdio:
        from kimi_proxy.api.apps import pruner_catalog
        from kimi_proxy.api.stdio import serve_stdio

        run_runtime(config, lambda runtime: serve_stdio(pruner_catalog(runtime)))
    else:
        from kimi_proxy.api.apps import pruner_listener

        _serve(config, (pruner_listener(config),))


def run_runtime(config: Config, serve: Callable[[Runtime], Awaitable[None]]) -> None:
    """Run `serve` with the runtime of these settings, and their logging."""
    from kimi_proxy.api.server import run
    from kimi_proxy.core.logs import write_to_stderr
    from kimi_proxy.services.runtime import running

    write_to_stderr(config.log)

    async def life() -> None:
        async with running(config) as runtime:
            await serve(runtime)

    run(life())


def _serve(config: Config, listeners: Sequence[Listener]) -> None:
    from kimi_proxy.api.apps import listen
    from kimi_proxy.api.server import refuse_exposure, run, stop_on_signals
    from kimi_proxy.core.logs import write_to_stderr
    from kimi_proxy.lab.log_watcher import running_with_logs

    for listener in listeners:
        refuse_exposure(listener.host, config.token is not None)
    write_to_stderr(config.log)

    async def life() -> None:
        with stop_on_signals() as stop:
            async with running_with_logs(config) as runtime:
                await listen(runtime, listeners, stop, remark, lambda addresses: _welcome(config, addresses["pruner"]))

    run(life())
    remark("stopped")


def _welcome(config: Config, address: str) -> None:
    remark(f"originals are kept under {config.home}")
    remark(f"try: curl -s {address}/health")
    remark("Ctrl-C stops it")

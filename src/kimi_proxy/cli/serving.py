"""Run the servers in the foreground until Ctrl-C."""

from __future__ import annotations

from io import FileIO
from typing import TYPE_CHECKING, Annotated

import typer

from kimi_proxy.cli.streams import remark

if TYPE_CHECKING:
    import asyncio

    from kimi_proxy.core.config import Config
    from kimi_proxy.services.runtime import Runtime


def start() -> None:
    """Run everything in the foreground until Ctrl-C: today, the pruner.

    Settings come from the environment and from config.toml; without any it listens on 127.0.0.1:8006.
    """
    from kimi_proxy.cli.settings import load

    _serve(load().config)


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
    from kimi_proxy.cli.settings import load

    config = load().config
    chosen = {"host": host, "port": port}
    changed = {key: value for key, value in chosen.items() if value is not None}
    config = config.model_copy(update={"mcp_pruner": config.mcp_pruner.model_copy(update=changed)})
    if stdio:
        _converse(config)
    else:
        _serve(config)


def _serve(config: Config) -> None:
    from kimi_proxy.api.server import refuse_exposure, run, stop_on_signals
    from kimi_proxy.core.logs import write_to_stderr
    from kimi_proxy.services.runtime import running

    refuse_exposure(config.mcp_pruner.host, config.token is not None)
    write_to_stderr(config.log)

    async def life() -> None:
        with stop_on_signals() as stop:
            async with running(config) as runtime:
                await _listen(runtime, stop)

    run(life())
    remark("stopped")


async def _listen(runtime: Runtime, stop: asyncio.Event) -> None:
    import asyncio

    from kimi_proxy.api.app import pruner_app
    from kimi_proxy.api.server import serve
    from kimi_proxy.proxy.occupant import occupant

    config = runtime.config
    warming: list[asyncio.Task[None]] = []

    def ready(host: str, port: int) -> None:
        _welcome(config, host, port)
        # Whoever waits for us is answered first; what the first prune needs is loaded after that.
        warming.append(asyncio.create_task(runtime.pruner.warm()))

    where, app = config.mcp_pruner, pruner_app(runtime)
    token = config.token is not None
    await serve(app, where.host, where.port, stop=stop, token=token, on_ready=ready, occupant=occupant)
    await asyncio.gather(*warming)


def _welcome(config: Config, host: str, port: int) -> None:
    from kimi_proxy.proxy.occupant import url

    address = url(host, port)
    remark(f"the pruner listens on {address} (/mcp for MCP clients, /rpc, /health)")
    remark(f"originals are kept under {config.home}")
    remark(f"try: curl -s {address}/health")
    remark("Ctrl-C stops it")


def _converse(config: Config) -> None:
    from kimi_proxy.api.server import run
    from kimi_proxy.api.stdio import serve_stdio
    from kimi_proxy.core.logs import write_to_stderr
    from kimi_proxy.services.runtime import running

    write_to_stderr(config.log)

    async def life() -> None:
        async with running(config) as runtime:
            await serve_stdio(runtime, FileIO(0, closefd=False), FileIO(1, "w", closefd=False))

    run(life())

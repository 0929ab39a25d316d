"""Run the servers in the foreground until Ctrl-C."""

from __future__ import annotations

from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kimi_proxy.cli.console import remark

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AsyncExitStack

    from starlette.types import ASGIApp

    from kimi_proxy.core.config import Config
    from kimi_proxy.services.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Door:
    """A server of ours: what it is called, where it listens, what it serves."""

    name: str
    host: str
    port: int
    app: Callable[[Runtime], ASGIApp]
    about: str


def start() -> None:
    """Run everything in the foreground until Ctrl-C: the pruner, the proxy with its gateway, and MCP servers behind it.

    Settings come from the environment and from config.toml; without any it listens on 127.0.0.1:8006 and :8000.
    """
    from kimi_proxy.cli.console import load

    config = load(here=Path()).config
    _serve(config, doors(config))


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
    from kimi_proxy.cli.console import load

    config = load(here=None if stdio else Path()).config
    chosen = {"host": host, "port": port}
    changed = {key: value for key, value in chosen.items() if value is not None}
    config = config.model_copy(update={"mcp_pruner": config.mcp_pruner.model_copy(update=changed)})
    if stdio:
        _converse(config)
    else:
        _serve(config, (_pruner_door(config),))


def doors(config: Config) -> Sequence[Door]:
    """All that `start` opens."""
    return _pruner_door(config), _proxy_door(config)


def _pruner_door(config: Config) -> Door:
    from kimi_proxy.api.apps import pruner_app

    where = config.mcp_pruner
    return Door("pruner", where.host, where.port, pruner_app, "/mcp for MCP clients, /rpc, /health")


def _proxy_door(config: Config) -> Door:
    from kimi_proxy.api.apps import proxy_app

    where = config.proxy
    return Door("proxy", where.host, where.port, proxy_app, "/api/mcp-gateway/NAME/mcp for MCP clients, /health")


def _serve(config: Config, doors: Sequence[Door]) -> None:
    from kimi_proxy.api.server import refuse_exposure, run, stop_on_signals
    from kimi_proxy.core.logs import write_to_stderr
    from kimi_proxy.lab.log_watcher import running_with_logs

    for door in doors:
        refuse_exposure(door.host, config.token is not None)
    write_to_stderr(config.log)

    async def life() -> None:
        with stop_on_signals() as stop:
            async with running_with_logs(config) as runtime:
                await listen(runtime, doors, stop, lambda addresses: _welcome(config, addresses["pruner"]))

    run(life())
    remark("stopped")


async def listen(
    runtime: Runtime, doors: Sequence[Door], stop: asyncio.Event, ready: Callable[[Mapping[str, str]], None]
) -> None:
    """Open every door, and tell `ready` their addresses by name; if one cannot be opened, all are closed."""
    import asyncio
    from contextlib import AsyncExitStack

    addresses: dict[str, str] = {}

    async with AsyncExitStack() as alongside:

        def opened(door: Door, address: str) -> None:
            addresses[door.name] = address
            remark(f"the {door.name} listens on {address} ({door.about})")
            if len(addresses) == len(doors):
                ready(addresses)
                _begin(runtime, addresses, alongside)

        work = (_open(door, runtime, stop, opened) for door in doors)
        endings = await asyncio.gather(*work, return_exceptions=True)
    for ending in endings:
        if ending is not None:
            raise ending


async def _open(door: Door, runtime: Runtime, stop: asyncio.Event, opened: Callable[[Door, str], None]) -> None:
    from kimi_proxy.api.server import serve
    from kimi_proxy.proxy.local_server import port_owner, url

    def ready(host: str, port: int) -> None:
        opened(door, url(host, port))

    token = runtime.config.token is not None
    try:
        await serve(
            door.app(runtime), door.host, door.port, stop=stop, token=token, on_ready=ready, occupant=port_owner
        )
    finally:
        stop.set()


def _begin(runtime: Runtime, addresses: Mapping[str, str], alongside: AsyncExitStack) -> None:
    """What can wait until we answer."""
    import asyncio

    from kimi_proxy.services.background import announced

    warming = asyncio.create_task(runtime.pruner.warm())
    alongside.push_async_callback(asyncio.wait_for, warming, None)
    if "proxy" in addresses:
        alongside.enter_context(announced(runtime.config.home, addresses))
        runtime.supervisor.start()


def _welcome(config: Config, address: str) -> None:
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

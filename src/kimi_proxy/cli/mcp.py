"""The MCP servers behind the gateway: `kimi-proxy mcp up`, `down`, `restart`, `status`, `logs`, and `gateway --stdio`.

A running kimi-proxy is controlled through its API. If none is running, `up` starts one in the background, and `down`
stops that one.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from kimi_proxy.cli import console

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kimi_proxy.api.mcp import Catalog
    from kimi_proxy.core.caller import Caller
    from kimi_proxy.core.config import Config
    from kimi_proxy.core.json import JsonObject
    from kimi_proxy.proxy.local_server import ControlClient
    from kimi_proxy.proxy.process import Pid


MARGIN_S = 15.0  # for a server to stop, and for the response to arrive
EXIT_NOT_READY = 1
GOING_WELL = ("ready", "starting", "off")
BUILT_IN = ("sequential-thinking", "fast-filesystem", "json-query", "task-master", "shrimp-task-manager")
COLOURS = {"ready": "32", "degraded": "31", "down": "33", "starting": "33"}

names_argument = click.argument(
    "names", nargs=-1, metavar="[NAME]...", help="Servers; without names, all that kimi-proxy runs."
)


@click.group(cls=console.CommandGroup)
def mcp() -> None:
    """Start, stop and inspect the MCP servers behind the gateway."""


@dataclass(frozen=True, slots=True)
class RunningProxy:
    """A running kimi-proxy; `background` is its process if `kimi-proxy mcp up` started it."""

    control: ControlClient
    background: Pid | None
    has_older_settings: bool = False


def running_proxy(config: Config) -> RunningProxy | None:
    """Return the running kimi-proxy of this home, or the one on its port."""
    from kimi_proxy.services import background

    running = background.running(config.home)
    if running is not None:
        ours = running.pid if background.is_background(config.home, running.pid) else None
        is_older = running.settings != background.settings_digest(config.file)
        return RunningProxy(_control(config, running.addresses["proxy"]), ours, is_older)
    address = console.proxy_address(config)
    return None if address is None else RunningProxy(_control(config, address), None)


def _control(config: Config, url: str) -> ControlClient:
    from kimi_proxy.proxy.local_server import ControlClient

    timeout_s = max(config.mcp.ready_timeout_s, config.compression.summary_timeout_s) + MARGIN_S
    return ControlClient(url, config.token, timeout_s)


@mcp.command()
@names_argument
@console.json_option
def up(names: tuple[str, ...], as_json: bool) -> None:
    """Start servers and wait until they are ready.

    A built-in server that is named is turned on, also for later starts: `down NAME --forget` turns it off again.
    fast-filesystem is kept to the current folder. Starts kimi-proxy in the background if it is not running.

    Exit code: 0 all are ready or still start, 1 some cannot run; the end of their output is then shown.
    """
    from kimi_proxy.core.config.servers import ALIASES
    from kimi_proxy.services import background

    config = console.server_config()
    proxy = _warn_if_edited(running_proxy(config))
    chosen = _turn_on(config, names)
    if chosen and proxy is not None and proxy.background is None:
        console.remark(f"restart kimi-proxy start to run {', '.join(chosen)}")
        names = tuple(name for name in names if ALIASES.get(name, name) not in chosen)
        if not names:
            return
    elif chosen and proxy is not None and proxy.background is not None:
        background.stop(config.home, proxy.background)
        proxy = None
    _report(_post(proxy or _start_proxy(config), "up", names), as_json)


def _turn_on(config: Config, names: Sequence[str]) -> list[str]:
    """Turn on the built-in servers among `names`; return those that a running kimi-proxy does not run yet."""
    from kimi_proxy.core.config.servers import ALIASES, can_turn_on, needs_root
    from kimi_proxy.services import turned_on

    chosen = [known for name in names if can_turn_on(known := ALIASES.get(name, name))]
    chosen = [name for name in chosen if name not in config.named_servers]
    before = turned_on.read(config.home)
    here = str(Path.cwd())
    new = [name for name in chosen if name not in before or (needs_root(name) and before[name].root != here)]
    if new:
        turned_on.remember(config.home, new, Path.cwd())
        place = turned_on.file_in(config.home)
        console.remark(f"turned on: {', '.join(new)}, in {here} (remembered in {place})")
    return new


@mcp.command()
@names_argument
@console.json_option
@click.option("--forget", is_flag=True, help="Also turn off the built-in servers that `up` turned on.")
def down(names: tuple[str, ...], as_json: bool, forget: bool) -> None:
    """Stop servers until the next `up`.

    Without names, this also stops a kimi-proxy that `up` started in the background.
    """
    from kimi_proxy.core.config.servers import ALIASES
    from kimi_proxy.services import background, turned_on

    config = console.server_config()
    if forget:
        gone = turned_on.forget(config.home, [ALIASES.get(name, name) for name in names])
        console.remark(f"turned off: {', '.join(gone) or 'none was turned on'}")
    proxy = running_proxy(config)
    servers = [] if proxy is None else _post(proxy, "down", names)
    if proxy is not None and proxy.background is not None and not names:
        background.stop(config.home, proxy.background)
        console.remark("stopped the kimi-proxy in the background")
    elif proxy is None:
        console.remark("kimi-proxy is not running, and neither are its servers")
    _report(servers, as_json, judge=False)


@mcp.command()
@names_argument
@console.json_option
def restart(names: tuple[str, ...], as_json: bool) -> None:
    """Restart servers.

    Without names, this also restarts a kimi-proxy that `up` started in the background, with the current settings.
    """
    from kimi_proxy.services import background

    config = console.server_config()
    proxy = running_proxy(config)
    if proxy is not None and proxy.background is not None and not names:
        background.stop(config.home, proxy.background)
        proxy = None
    action = "up" if proxy is None else "restart"
    _report(_post(proxy or _start_proxy(config), action, names), as_json)


@mcp.command()
@console.json_option
def status(as_json: bool) -> None:
    """Print the state of every configured server.

    Exit code: 0 all that kimi-proxy runs are ready, 1 some are not, 3 kimi-proxy is not running.
    """
    proxy = _warn_if_edited(running_proxy(console.server_config()))
    if proxy is None:
        console.remark("kimi-proxy is not running: kimi-proxy start runs it here, kimi-proxy mcp up in the background")
        raise click.exceptions.Exit(console.EXIT_NOT_RUNNING)
    _report(_servers(proxy.control.get("/api/mcp/servers")), as_json)


@mcp.command()
@click.argument("name", help="The server's name.")
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(1, 100_000),
    default=80,
    show_default=True,
    help="Number of lines to print.",
)
def logs(name: str, lines: int) -> None:
    """Print the last lines that a server wrote to standard error."""
    proxy = _warn_if_edited(running_proxy(console.server_config()))
    if proxy is None:
        console.remark("kimi-proxy is not running, and its servers' logs ended with it")
        raise click.exceptions.Exit(console.EXIT_NOT_RUNNING)
    answer = proxy.control.get(f"/api/mcp/servers/{quote(name, safe='', errors='replace')}/logs?lines={lines}")
    console.write(str(answer.get("log", "")))


def _warn_if_edited(proxy: RunningProxy | None) -> RunningProxy | None:
    """Return `proxy`; print a remark if the configuration changed after it was started."""
    if proxy is not None and proxy.has_older_settings:
        how = "kimi-proxy mcp restart" if proxy.background is not None else "stop it, and start it again"
        console.remark(
            f"the running kimi-proxy has older settings than {console.server_config().file}: {how} to apply these"
        )
    return proxy


def _start_proxy(config: Config) -> RunningProxy:
    import os

    from kimi_proxy.services import background

    command = [sys.executable, "-m", "kimi_proxy", "start"]
    if config.file is not None and config.file.is_file():
        command += ["--config", str(config.file)]
    running = background.start(config.home, command, os.environ, config.mcp.ready_timeout_s)
    console.remark(
        f"kimi-proxy is running in the background on {running.addresses['proxy']} and {running.addresses['pruner']}"
    )
    return RunningProxy(_control(config, running.addresses["proxy"]), running.pid)


def _post(proxy: RunningProxy, action: str, names: Sequence[str]) -> list[JsonObject]:
    return _servers(proxy.control.post(f"/api/mcp/servers/{action}", {"names": list(names)}))


def _servers(answer: JsonObject) -> list[JsonObject]:
    listed = answer.get("servers")
    return [server for server in listed if isinstance(server, dict)] if isinstance(listed, list) else []


def _report(servers: Sequence[JsonObject], as_json: bool, judge: bool = True) -> None:
    if as_json:
        console.write_json({"servers": servers})
    elif servers:
        console.write("".join(_row(server) for server in servers))
    else:
        console.remark(f"no servers are turned on; these are built in: kimi-proxy mcp up {' '.join(BUILT_IN)}")
    for server in servers:
        if server.get("log"):
            console.remark(f"last lines from {server['name']}:\n{server['log']}")
    starting = [str(server["name"]) for server in servers if server.get("run") and server["state"] == "starting"]
    if judge and starting:
        console.remark(f"still starting: {', '.join(starting)}; kimi-proxy mcp status shows when they are ready")
    if judge and any(server.get("run") and server["state"] not in GOING_WELL for server in servers):
        raise click.exceptions.Exit(EXIT_NOT_READY)


def _row(server: JsonObject) -> str:
    state = str(server["state"])
    shown = console.colour(f"{state:<9}", COLOURS.get(state, "0")) if state in COLOURS else f"{state:<9}"
    return f"{server['name']:<24} {shown} {_note(server)}".rstrip() + "\n"


def _note(server: JsonObject) -> str:
    place = f"pid {server['pid']}" if server.get("pid") else "" if server.get("run") else str(server.get("url", ""))
    tools = "" if server.get("tools") is None else f"{server['tools']} tools"
    latency = "" if server.get("latency_ms") is None else f"{server['latency_ms']} ms"
    restarts = f"{server['restarts']} restarts" if server.get("restarts") else ""
    retry = f"retry in {server['retry_in_s']} s" if server.get("retry_in_s") else ""
    problem = (
        str(server["last_error"]) if server.get("last_error") and server["state"] not in ("ready", "stopped") else ""
    )
    return ", ".join(part for part in (place, tools, latency, restarts, retry, problem) if part)


@click.command()
@click.option("--stdio", is_flag=True, required=True, help="Speak MCP on standard input and output.")
@click.option("--all", "lists_all", is_flag=True, help="List the tools of all servers instead of search_tools.")
def gateway(stdio: bool, lists_all: bool) -> None:
    """Offer the tools of all MCP servers behind the gateway as one server.

    For MCP clients to start; it runs until the client closes its standard input. The servers are those in config.toml;
    it starts its own copy of each that has a command.
    """
    import asyncio

    from kimi_proxy.api.mcp.gateway_catalog import GATEWAY, gateway_catalog
    from kimi_proxy.api.mcp.stdio import serve_stdio
    from kimi_proxy.core.logs import write_to_stderr

    settings = console.load()
    write_to_stderr(settings.config.log)

    @asynccontextmanager
    async def load_tools() -> AsyncIterator[tuple[Catalog, Caller]]:
        from kimi_proxy.assembly.tools import running_directory

        async with running_directory(settings.config, settings.env) as (directory, who):
            yield await gateway_catalog(directory, who, lists_all), who

    asyncio.run(serve_stdio(GATEWAY, load_tools))

"""The MCP servers behind the gateway: `kimi-proxy mcp up`, `down`, `restart`, `status` and `logs`.

A `start` that runs is told over its own API. If none runs, `up` starts one in the background, and `down` ends that one.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from kimi_proxy.cli.console import colour, remark, write, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_proxy.core.config import Config
    from kimi_proxy.core.json import JsonObject
    from kimi_proxy.proxy.local_server import ControlClient
    from kimi_proxy.proxy.process import Pid


EXIT_NOT_RUNNING = 3
MARGIN_S = 15.0  # what a server may take to end, and we to say so


@dataclass(frozen=True, slots=True)
class Host:
    """`background` is its process if `kimi-proxy mcp up` started it."""

    control: ControlClient
    background: Pid | None


def found(config: Config) -> Host | None:
    """The one of this home, else whoever is on its port."""
    from kimi_proxy.proxy.local_server import port_owner, url
    from kimi_proxy.services import background

    running = background.running(config.home)
    if running is not None:
        ours = running.pid if background.is_background(config.home, running.pid) else None
        return Host(control(config, running.addresses["proxy"]), ours)
    there = port_owner(config.proxy.host, config.proxy.port) if config.proxy.port else None
    if there is not None and there.server == "kimi-proxy":
        return Host(control(config, url(config.proxy.host, config.proxy.port)), None)
    return None


def control(config: Config, url: str) -> ControlClient:
    from kimi_proxy.proxy.local_server import ControlClient

    patience_s = max(config.mcp.ready_timeout_s, config.compression.summary_timeout_s)
    return ControlClient(url, config.token, patience_s + MARGIN_S)


# The MCP servers behind the gateway: `kimi-proxy mcp up`, `down`, `restart`, `status` and `logs`.
#

EXIT_NOT_READY = 1
COLOURS = {"ready": "32", "degraded": "31", "down": "33", "starting": "33"}

mcp = typer.Typer(
    name="mcp",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Start, stop and look at the MCP servers behind the gateway.",
)

Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Servers; all that we run if left out.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead, for programs.")]


@mcp.command()
def up(names: Names = None, as_json: Json = False) -> None:
    """Start servers and wait until they answer.

    If kimi-proxy does not run yet, it is started in the background. Exit code: 0 all are ready, 1 some are not: the
    end of what they said is shown.
    """
    config = _config()
    _report(_told(found(config) or _started(config), "up", names), as_json)


@mcp.command()
def down(names: Names = None, as_json: Json = False) -> None:
    """Stop servers, and leave them alone until `up`.

    Without names a kimi-proxy that `up` started in the background is stopped too.
    """
    from kimi_proxy.services import background

    config = _config()
    host = found(config)
    servers = [] if host is None else _told(host, "down", names)
    if host is not None and host.background is not None and not names:
        background.stop(config.home, host.background)
        remark("kimi-proxy in the background has stopped")
    elif host is None:
        remark("kimi-proxy does not run, and so does none of its servers")
    _report(servers, as_json, judge=False)


@mcp.command()
def restart(names: Names = None, as_json: Json = False) -> None:
    """Stop servers and start them again.

    Without names a kimi-proxy that `up` started in the background is started again too, with the settings of now.
    """
    from kimi_proxy.services import background

    config = _config()
    host = found(config)
    if host is not None and host.background is not None and not names:
        background.stop(config.home, host.background)
        host = None
    action = "up" if host is None else "restart"
    _report(_told(host or _started(config), action, names), as_json)


@mcp.command()
def status(as_json: Json = False) -> None:
    """Tell how every server of the settings is doing.

    Exit code: 0 all that we run are ready, 1 some are not, 3 kimi-proxy does not run.
    """
    host = found(_config())
    if host is None:
        remark("kimi-proxy does not run: kimi-proxy start runs it here, kimi-proxy mcp up in the background")
        raise typer.Exit(EXIT_NOT_RUNNING)
    _report(_servers(host.control.get("/api/mcp/servers")), as_json)


@mcp.command()
def logs(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The server.")],
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=100_000, help="How many of the last lines.")] = 80,
) -> None:
    """Print the end of what a server said on standard error."""
    host = found(_config())
    if host is None:
        remark("kimi-proxy does not run: what its servers said is gone with it")
        raise typer.Exit(EXIT_NOT_RUNNING)
    answer = host.control.get(f"/api/mcp/servers/{quote(name, safe='', errors='replace')}/logs?lines={lines}")
    write(str(answer.get("log", "")))


def _config() -> Config:
    from kimi_proxy.cli.console import load

    return load(here=Path()).config


def _started(config: Config) -> Host:
    import os

    from kimi_proxy.services import background

    command = [sys.executable, "-m", "kimi_proxy", "start"]
    running = background.start(config.home, command, os.environ, config.mcp.ready_timeout_s)
    remark(f"kimi-proxy runs in the background on {running.addresses['proxy']} and {running.addresses['pruner']}")
    return Host(control(config, running.addresses["proxy"]), running.pid)


def _told(host: Host, action: str, names: Sequence[str] | None) -> list[JsonObject]:
    return _servers(host.control.post(f"/api/mcp/servers/{action}", {"names": list(names or ())}))


def _servers(answer: JsonObject) -> list[JsonObject]:
    told = answer.get("servers")
    return [server for server in told if isinstance(server, dict)] if isinstance(told, list) else []


def _report(servers: Sequence[JsonObject], as_json: bool, judge: bool = True) -> None:
    if as_json:
        write_json({"servers": servers})
    elif servers:
        write("".join(_row(server) for server in servers))
    else:
        remark("there is no server to run: docs/gateway.md tells how to add one")
    for server in servers:
        if server.get("log"):
            remark(f"the end of what {server['name']} said:\n{server['log']}")
    if judge and any(server.get("run") and server["state"] not in ("ready", "off") for server in servers):
        raise typer.Exit(EXIT_NOT_READY)


def _row(server: JsonObject) -> str:
    state = str(server["state"])
    shown = colour(f"{state:<9}", COLOURS.get(state, "0")) if state in COLOURS else f"{state:<9}"
    return f"{server['name']:<24} {shown} {_note(server)}".rstrip() + "\n"


def _note(server: JsonObject) -> str:
    place = f"pid {server['pid']}" if server.get("pid") else "" if server.get("run") else str(server.get("url", ""))
    tools = "" if server.get("tools") is None else f"{server['tools']} tools"
    latency = "" if server.get("latency_ms") is None else f"{server['latency_ms']} ms"
    restarts = f"{server['restarts']} restarts" if server.get("restarts") else ""
    retry = f"tried again in {server['retry_in_s']} s" if server.get("retry_in_s") else ""
    problem = (
        str(server["last_error"]) if server.get("last_error") and server["state"] not in ("ready", "stopped") else ""
    )
    return ", ".join(part for part in (place, tools, latency, restarts, retry, problem) if part)

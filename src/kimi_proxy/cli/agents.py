"""`kimi-proxy run` and `kimi-proxy tools`: read, grep, bash and recover_text for an agent."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kimi_proxy.cli.console import home, load, load_of_server, proxy_address, remark, write_json
from kimi_proxy.cli.serving import run_runtime, serve_tools, warming

if TYPE_CHECKING:
    from kimi_proxy.assembly.runtime import Runtime
    from kimi_proxy.connect.agents import Agent
    from kimi_proxy.connect.runner import PrunerRun


@click.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, help="The agent and its arguments, as you would type them.")
@click.option(
    "--agent",
    type=click.Choice(["claude", "codex", "copilot", "other"]),
    help="Which agent it is.  [default: by the command's name]",
)
@click.option("--proxy", is_flag=True, help="Send its requests through the running proxy.")
def run(command: tuple[str, ...], agent: Agent | None, proxy: bool) -> None:
    """Run an agent with the tools read, grep, bash and recover_text, for this run only.

    None of your files change. Claude Code and Codex get the tools through their command line, other agents through
    KIMI_PROXY_MCP_URL, KIMI_PROXY_MCP_TOKEN and KIMI_PROXY_MCP_CONFIG. If the tools cannot be started, the agent runs
    without them. The exit code is the agent's own.

    Example: kimi-proxy run -- claude -p "why does test_login fail?"
    """
    import asyncio

    if os.name == "nt":
        raise click.BadParameter("kimi-proxy run needs Unix signals and terminals: use kimi-proxy init")

    from kimi_proxy.connect import runner
    from kimi_proxy.connect.runner import pruner_run, run_agent
    from kimi_proxy.core.config import LogSettings
    from kimi_proxy.core.logs import write_to_stderr
    from kimi_proxy.proxy.process import EXIT_NOT_FOUND

    if shutil.which(command[0]) is None:
        remark(f"{command[0]}: no such command")
        raise click.exceptions.Exit(EXIT_NOT_FOUND)
    folder = runner.new(home())
    with (folder / runner.EVENTS).open("a", encoding="utf-8") as events:
        write_to_stderr(LogSettings(format="json"), events)  # the terminal is the agent's
        tools = pruner_run(lambda: load().config, folder, os.environ, Path.cwd())
        line, env = _through_proxy([*command], agent) if proxy else ([*command], dict(os.environ))
        code = asyncio.run(run_agent(line, agent, env, tools, _announce))
    raise click.exceptions.Exit(code)


def _through_proxy(command: list[str], agent: Agent | None) -> tuple[list[str], dict[str, str]]:
    """Return the command and an environment that send requests through the proxy; unchanged if it is not running."""
    from kimi_proxy.connect.agents import recognise
    from kimi_proxy.connect.proxied import (
        UNLESS_SET,
        chosen_codex_provider,
        explain_auto_mode,
        proxied_run,
        proxy_target,
    )

    config = load_of_server(here=None).config
    address = proxy_address(config)
    place, found = (0, agent) if agent else recognise(command)
    target = proxy_target(address or "", config, os.environ)
    settings = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "config.toml"
    try:
        provider = chosen_codex_provider(settings.read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        provider = ""
    env, arguments = proxied_run(found, target, provider)
    env = {name: value for name, value in env.items() if name not in UNLESS_SET or name not in os.environ}
    if address is None or not (env or arguments):
        why = (
            "it is not running (kimi-proxy start)"
            if env or arguments
            else "only Claude Code, Codex and Copilot CLI support it"
        )
        remark(f"the agent's requests are not sent through the proxy: {why}")
        return command, dict(os.environ)
    if found == "claude" and (auto_mode := explain_auto_mode(target.answering)):
        remark(auto_mode)
    return [*command[: place + 1], *arguments, *command[place + 1 :]], {**os.environ, **env}


def _announce(run: PrunerRun) -> None:
    if run.url:
        remark(f"read, grep, bash and recover_text are available in this run; its log is in {run.folder}")
    else:
        remark(f"the agent runs without our tools: {run.problem}; the run's log is in {run.folder}")


@click.command()
@click.option("--stdio", is_flag=True, help="Speak MCP on standard input and output.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="Speak MCP over HTTP on 127.0.0.1; 0 takes a free port. Needs KIMI_PROXY_TOKEN.",
)
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Base directory for paths and commands.  [default: here]",
)
def tools(stdio: bool, port: int | None, cwd: Path | None) -> None:
    """Offer read, grep, bash and recover_text to the agent that starts this command.

    With --stdio it runs until the agent closes its standard input. With --port it prints its address on standard
    output, as one line of JSON, and runs until SIGTERM.
    """
    if stdio == (port is not None):
        raise click.BadParameter("choose a transport: --stdio or --port")
    settings = load()
    changed = {} if cwd is None else {"cwd": str(cwd.absolute())}
    chosen = settings.config.tools.model_copy(update=changed)
    settings = replace(settings, config=settings.config.model_copy(update={"tools": chosen}))
    if port is None:
        from kimi_proxy.api.mcp.catalogs import TOOLS, tools_catalog

        serve_tools(settings, TOOLS, tools_catalog, is_warmed=True)
    else:
        run_runtime(settings, lambda runtime: _listen(runtime, port))


async def _listen(runtime: Runtime, port: int) -> None:
    from kimi_proxy.api.server import serve, stop_on_signals
    from kimi_proxy.assembly.apps import TOOLS_HOST, tools_app
    from kimi_proxy.core.mcp import PRUNER_SERVER
    from kimi_proxy.proxy.local_server import local_url, port_owner

    def announce(host: str, taken: int) -> None:
        write_json({"server": PRUNER_SERVER, "url": local_url(host, taken)})

    app = tools_app(runtime)
    with stop_on_signals() as stop:
        async with warming(runtime.pruner):
            await serve(app, TOOLS_HOST, port, stop=stop, token=True, on_ready=announce, occupant=port_owner)

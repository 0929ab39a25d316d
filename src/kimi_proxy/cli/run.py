"""Run an agent with the tools beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kimi_proxy.cli.streams import remark

if TYPE_CHECKING:
    from kimi_proxy.services.runner import PrunerRun

ARGUMENTS = {"allow_interspersed_args": False, "ignore_unknown_options": True}


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="The agent and its arguments, as you would type them.")
    ],
    agent: Annotated[
        Literal["claude", "codex", "other"] | None,
        typer.Option(help="Which agent it is.  [default: told by the command's name]"),
    ] = None,
) -> None:
    """Run an agent that has read, grep, bash and recover_text, for this run alone.

    No file of yours is changed. Claude Code and Codex are told of the tools on their command line, others by
    KIMI_PROXY_MCP_URL, KIMI_PROXY_MCP_TOKEN and KIMI_PROXY_MCP_CONFIG. If the tools cannot be started, the agent runs
    without them. The exit code is the agent's own.

    Example: kimi-proxy run -- claude -p "why does test_login fail?"
    """
    import asyncio
    import os
    import shutil
    from pathlib import Path

    if os.name == "nt":
        raise typer.BadParameter("this needs the signals and terminals of Unix: use kimi-proxy init")

    from kimi_proxy.cli.settings import home, load
    from kimi_proxy.core.config import Log
    from kimi_proxy.core.logs import write_to_stderr
    from kimi_proxy.proxy.foreground import EXIT_NOT_FOUND
    from kimi_proxy.services import run_folder
    from kimi_proxy.services.agent import run_agent
    from kimi_proxy.services.runner import pruner_run

    if shutil.which(command[0]) is None:
        remark(f"{command[0]}: no such command")
        raise typer.Exit(EXIT_NOT_FOUND)
    folder = run_folder.new(home(os.environ))
    with (folder / run_folder.EVENTS).open("a", encoding="utf-8") as events:
        write_to_stderr(Log(format="json"), events)  # the terminal is the agent's
        tools = pruner_run(lambda: load().config, folder, os.environ, Path.cwd())
        code = asyncio.run(run_agent(command, agent, os.environ, tools, _tell))
    raise typer.Exit(code)


def _tell(run: PrunerRun) -> None:
    if run.url:
        remark(f"read, grep, bash and recover_text are there for this run; its log is in {run.folder}")
    else:
        remark(f"the agent runs without our tools: {run.problem}; the run's log is in {run.folder}")

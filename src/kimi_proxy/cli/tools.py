"""Run the agent tools for a client that is our parent process."""

from __future__ import annotations

from io import FileIO
from pathlib import Path
from typing import Annotated

import typer


def tools(
    stdio: Annotated[bool, typer.Option("--stdio", help="Speak MCP on standard input and output.")] = False,
    cwd: Annotated[
        Path | None, typer.Option(help="Where paths begin and commands run.  [default: here]", file_okay=False)
    ] = None,
) -> None:
    """Offer read, grep, bash and recover_text to an agent on stdin and stdout.

    The agent starts it, and ends it by closing its standard input.
    """
    from kimi_proxy.cli.settings import load

    if not stdio:
        raise typer.BadParameter("the tools speak on standard input and output only: add --stdio")
    config = load().config
    changed = {} if cwd is None else {"cwd": str(cwd.absolute())}
    config = config.model_copy(update={"tools": config.tools.model_copy(update=changed)})

    import asyncio

    from kimi_proxy.api.server import run
    from kimi_proxy.api.stdio import serve_tools_stdio
    from kimi_proxy.core.logs import write_to_stderr
    from kimi_proxy.services.runtime import running

    write_to_stderr(config.log)

    async def life() -> None:
        async with running(config) as runtime:
            # The first question waits for less when what it needs is loaded while the agent thinks.
            warming = asyncio.create_task(runtime.pruner.warm())
            await serve_tools_stdio(runtime, FileIO(0, closefd=False), FileIO(1, "w", closefd=False))
            warming.cancel()
            await asyncio.wait({warming})

    run(life())

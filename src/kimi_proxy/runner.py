"""For Python programs that start agents: gives each run our tools.

    from claude_agent_sdk import ClaudeAgentOptions, query
    from kimi_proxy.runner import pruner_run

    async with pruner_run(cwd="/path/to/project") as run:
        options = ClaudeAgentOptions(mcp_servers={**run.claude_mcp_servers()}, allowed_tools=["mcp__kimi-proxy__read"])
        async for message in query(prompt="…", options=options):
            …

The agent runs in any case. `run.state` and `run.problem` say whether it has the tools; the names of the log's events
and the folder of the run are described in docs/clients.md."""

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from kimi_proxy.connect import runner
from kimi_proxy.connect.agents import ClaudeServer
from kimi_proxy.connect.runner import PrunerRun, State
from kimi_proxy.services.configuration import home, load

__all__ = ["ClaudeServer", "PrunerRun", "State", "pruner_run"]


def pruner_run(cwd: str | Path = ".", env: Mapping[str, str] = os.environ) -> AbstractAsyncContextManager[PrunerRun]:
    """Offer read, grep, bash and recover_text, with paths relative to `cwd`, to the agent that is started inside.

    Settings come from `env` and the configuration file, as for every command. Nothing is raised if the tools are not
    available: the methods of the run then return empty values.
    """
    here = Path(cwd).absolute()
    return runner.pruner_run(lambda: load(env).config, runner.new(home(env)), env, here)

"""An agent of smolagents with a shell: `URL TASK`. Prints its answer and writes its history."""

import os
import subprocess
import sys
from pathlib import Path

from smolagents import OpenAIModel, ToolCallingAgent, tool

url, task = sys.argv[1:]


@tool
def shell(command: str) -> str:
    """Run a command.

    Args:
        command: what to run
    """
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False).stdout


agent = ToolCallingAgent(tools=[shell], model=OpenAIModel("kimi-x", api_base=f"{url}/v1", api_key="sk-x"))
print(agent.run(task))
(Path(os.environ["HOME"]) / "history.txt").write_text(repr(agent.memory.get_full_steps()))

"""An agent of pydantic-ai with a shell: `URL TASK`. Prints its answer and writes its history to `history.json`."""

import os
import subprocess
import sys
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

url, task = sys.argv[1:]
agent = Agent(OpenAIChatModel("kimi-x", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="sk-x")))


@agent.tool_plain
def shell(command: str) -> str:
    """Run a command."""
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False).stdout


result = agent.run_sync(task)
print(result.output)
(Path(os.environ["HOME"]) / "history.json").write_bytes(result.all_messages_json())

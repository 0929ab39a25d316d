"""An agent of LlamaIndex with a shell: `URL TASK`. Prints its answer and writes what it remembers."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.workflow import Context
from llama_index.llms.openai_like import OpenAILike

url, task = sys.argv[1:]


def shell(command: str) -> str:
    """Run a command."""
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False).stdout


async def main() -> None:
    model = OpenAILike(
        model="kimi-x",
        api_base=f"{url}/v1",
        api_key="sk-x",
        is_chat_model=True,
        is_function_calling_model=True,
        context_window=200_000,
    )
    agent = FunctionAgent(tools=[shell], llm=model)
    context = Context(agent)
    print(await agent.run(task, ctx=context))
    (Path(os.environ["HOME"]) / "history.txt").write_text(repr(context.to_dict()))


asyncio.run(main())

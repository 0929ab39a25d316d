"""An agent of LangChain on LangGraph with a shell: `URL TASK`. Prints its answer and writes its history."""

import os
import subprocess
import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.messages import messages_to_dict
from langchain_openai import ChatOpenAI

url, task = sys.argv[1:]


def shell(command: str) -> str:
    """Run a command."""
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False).stdout


model = ChatOpenAI(model="kimi-x", base_url=f"{url}/v1", api_key="sk-x", streaming=True)
said = create_agent(model, tools=[shell]).invoke({"messages": [("user", task)]})["messages"]
print(said[-1].content)
(Path(os.environ["HOME"]) / "history.txt").write_text(repr(messages_to_dict(said)))

"""An agent of CrewAI with a shell: `URL TASK`. Prints its answer and writes its history."""

import os
import subprocess
import sys
from pathlib import Path

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

url, task = sys.argv[1:]


@tool("shell")
def shell(command: str) -> str:
    """Run a command."""
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False).stdout


model = LLM(model="openai/kimi-x", base_url=f"{url}/v1", api_key="sk-x")
agent = Agent(role="Tester", goal="Find what fails", backstory="You read logs.", llm=model, tools=[shell])
work = Task(description=task, expected_output="One sentence.", agent=agent)
result = Crew(agents=[agent], tasks=[work]).kickoff()
print(result.raw)
(Path(os.environ["HOME"]) / "history.txt").write_text(repr([each.messages for each in result.tasks_output]))

"""An agent of the OpenHands SDK with its terminal: `URL TASK`. Prints its answer; it keeps its history below HOME."""

import os
import sys
from pathlib import Path

# LiteLLM imports it in threads, when it first logs, and they can lock each other out.
import litellm.rust_bridge.catalog  # noqa: F401
from openhands.sdk import LLM, Agent, Conversation, Tool
from openhands.tools.terminal import TerminalTool
from pydantic import SecretStr

url, task = sys.argv[1:]
model = LLM(model="openai/kimi-x", base_url=f"{url}/v1", api_key=SecretStr("sk-x"), usage_id="agent", num_retries=0)
agent = Agent(llm=model, tools=[Tool(name=TerminalTool.name)])
kept = Path(os.environ["HOME"]) / "kept"
conversation = Conversation(agent=agent, workspace=str(Path.cwd()), persistence_dir=str(kept))
conversation.send_message(task)
conversation.run()
conversation.close()

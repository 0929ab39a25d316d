"""A small agent with pydantic-ai, through the proxy: python pydantic_ai_agent.py FILE QUESTION"""

import os
import sys
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

PROXY = os.environ.get("KIMI_PROXY_URL", "http://127.0.0.1:8000")
MODEL = os.environ.get("MODEL", "gpt-5.2-mini")

agent = Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{PROXY}/v1")))


@agent.tool_plain
def read(path: str) -> str:
    """Read a file."""
    return Path(path).read_text()


def main(path: str, question: str) -> None:
    print(agent.run_sync(f"{question} Look into {path}.").output)


if __name__ == "__main__":
    main(*sys.argv[1:])

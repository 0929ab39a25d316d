"""A small agent with LangChain, through the proxy: python langchain_agent.py FILE QUESTION"""

import os
import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

PROXY = os.environ.get("KIMI_PROXY_URL", "http://127.0.0.1:8000")
MODEL = os.environ.get("MODEL", "gpt-5.2-mini")


def read(path: str) -> str:
    """Read a file."""
    return Path(path).read_text()


def main(path: str, question: str) -> None:
    agent = create_agent(ChatOpenAI(model=MODEL, base_url=f"{PROXY}/v1"), tools=[read])
    answer = agent.invoke({"messages": [("user", f"{question} Look into {path}.")]})
    print(answer["messages"][-1].content)


if __name__ == "__main__":
    main(*sys.argv[1:])

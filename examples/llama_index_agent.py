"""A small agent with LlamaIndex, through the proxy: python llama_index_agent.py FILE QUESTION"""

import asyncio
import os
import sys
from pathlib import Path

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike

PROXY = os.environ.get("KIMI_PROXY_URL", "http://127.0.0.1:8000")
MODEL = os.environ.get("MODEL", "gpt-5.2-mini")


def read(path: str) -> str:
    """Read a file."""
    return Path(path).read_text()


async def main(path: str, question: str) -> None:
    model = OpenAILike(
        model=MODEL,
        api_base=f"{PROXY}/v1",
        api_key=os.environ["OPENAI_API_KEY"],
        is_chat_model=True,
        is_function_calling_model=True,
    )
    print(await FunctionAgent(tools=[read], llm=model).run(f"{question} Look into {path}."))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A small agent with Anthropic's library, through the proxy: python anthropic_sdk.py FILE QUESTION"""

import os
import sys
from pathlib import Path

from anthropic import Anthropic

PROXY = os.environ.get("KIMI_PROXY_URL", "http://127.0.0.1:8000")
MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
READ = {
    "name": "read",
    "description": "Read a file.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


def main(path: str, question: str) -> None:
    client = Anthropic(base_url=PROXY)
    messages = [{"role": "user", "content": f"{question} Look into {path}."}]
    while True:
        answer = client.messages.create(model=MODEL, max_tokens=2000, messages=messages, tools=[READ])
        messages.append({"role": "assistant", "content": answer.content})
        calls = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            print("".join(block.text for block in answer.content if block.type == "text"))
            return
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": Path(call.input["path"]).read_text()}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    main(*sys.argv[1:])

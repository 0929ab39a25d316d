"""A small agent with OpenAI's library, through the proxy: python openai_sdk.py FILE QUESTION"""

import json
import os
import sys
from pathlib import Path

from openai import OpenAI

PROXY = os.environ.get("KIMI_PROXY_URL", "http://127.0.0.1:8000")
MODEL = os.environ.get("MODEL", "gpt-5.2-mini")
READ = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


def main(path: str, question: str) -> None:
    client = OpenAI(base_url=f"{PROXY}/v1")
    messages = [{"role": "user", "content": f"{question} Look into {path}."}]
    while True:
        answer = client.chat.completions.create(model=MODEL, messages=messages, tools=[READ])
        said = answer.choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            print(said.content)
            return
        for call in said.tool_calls:
            text = Path(json.loads(call.function.arguments)["path"]).read_text()
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Cut long tool results in your own program, without a proxy: python compress.py FILE QUESTION"""

import sys
from pathlib import Path

import kimi_proxy


def main(path: str, question: str) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": f'{{"path": "{path}"}}'}}
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": Path(path).read_text()},
    ]
    cut = kimi_proxy.compress(messages)
    print(f"{cut.tokens_before} -> {cut.tokens_after} tokens")
    for hashed in cut.hashes:
        print(f"kept whole: {hashed}, {len(kimi_proxy.original(hashed))} characters")


if __name__ == "__main__":
    main(*sys.argv[1:])

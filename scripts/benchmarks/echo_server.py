"""An MCP server on standard input and output that does as little as a server can, for benchmarks.

`echo` answers `size` characters of text, which begin with `salt`; `rows` answers as many of JSON with many
members; `read` answers the file at `path`.
"""

import json
import sys
from pathlib import Path

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "echo", "version": "1"},
}
ROW = {"id": 7, "name": "a name", "note": "a few words about it"}
TOOLS = {"tools": [{"name": "echo", "description": "Echo.", "inputSchema": {"type": "object"}}]}
LINE = "A line of a file that somebody wants to read, and is as long as lines are.\n"


def result(message: dict) -> object:
    match message["method"]:
        case "initialize":
            return HELLO
        case "tools/list":
            return TOOLS
        case "tools/call":
            asked = message["params"].get("arguments", {})
            if message["params"]["name"] == "read":
                return {"content": [{"type": "text", "text": Path(asked["path"]).read_bytes().decode()}]}
            size, salt = asked.get("size", 100), str(asked.get("salt", ""))
            if message["params"]["name"] == "rows":
                return {"content": [], "structuredContent": {"rows": [ROW] * (size // len(json.dumps(ROW)))}}
            return {"content": [{"type": "text", "text": (salt + LINE * (size // len(LINE) + 1))[:size]}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result(message)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()

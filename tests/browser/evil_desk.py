"""An MCP server on stdio whose every word is one of the payloads."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.browser.payloads import PAYLOADS


def answer(message: dict[str, object]) -> dict[str, object]:
    match message.get("method"):
        case "initialize":
            about = {"name": PAYLOADS[0], "version": PAYLOADS[1]}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            schema = {"type": "object", "properties": {}}
            return {"tools": [{"name": "tell", "description": PAYLOADS[10], "inputSchema": schema}]}
        case "tools/call":
            text = "\n".join(f"{payload} and so on" for payload in PAYLOADS * 6)
            return {"content": [{"type": "text", "text": text}]}
    return {}


def main() -> None:
    for payload in PAYLOADS:
        print(payload, file=sys.stderr, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}), flush=True)


if __name__ == "__main__":
    main()

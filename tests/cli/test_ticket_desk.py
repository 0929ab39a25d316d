"""The MCP server of the demo answers as one: two tools with long answers, the same each time."""

import json
import subprocess
import sys

ASKED = [
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "find_tickets", "arguments": {}}},
    {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "read_runbook", "arguments": {}}},
]


def answers() -> dict[int, dict[str, object]]:
    stdin = "".join(json.dumps(message) + "\n" for message in ASKED)
    command = [sys.executable, "-m", "kimi_proxy.lab.ticket_desk"]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=True)
    return {message["id"]: message["result"] for message in map(json.loads, done.stdout.splitlines())}


def test_it_lists_two_tools_and_answers_at_length():
    told = answers()

    assert [tool["name"] for tool in told[1]["tools"]] == ["find_tickets", "read_runbook"]  # type: ignore[attr-defined]
    texts = [told[id]["content"][0]["text"] for id in (2, 3)]  # type: ignore[index]
    assert "Invoice 1147: the VAT is one cent off" in texts[0]
    assert "## 15. Release notes" in texts[1]
    assert all(len(text) > 10_000 for text in texts)
    assert answers() == told

"""`kimi-proxy gateway --stdio`: the tools of all servers as one program."""

import json
import sys
from pathlib import Path

from .conftest import Cli

STDIO_SERVER = str(Path(__file__).parents[1] / "support" / "stdio_server.py")


def test_a_client_that_starts_it_searches_and_calls_the_tools_of_its_servers(cli: Cli, tmp_path: Path):
    settings = tmp_path / "gateway.toml"
    args = json.dumps(["-I", "-S", STDIO_SERVER])
    settings.write_text(f'[mcp.servers.script]\ncommand = "{sys.executable}"\nargs = {args}\n')
    calls = [
        {"method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}}},
        {"method": "tools/list"},
        {"method": "tools/call", "params": {"name": "describe_tool", "arguments": {"name": "echo"}}},
    ]
    messages = [{"jsonrpc": "2.0", "id": number, **call} for number, call in enumerate(calls)]
    text = "".join(json.dumps(message) + "\n" for message in messages)
    ran = cli("gateway", "--stdio", stdin=text.encode(), env={"KIMI_PROXY_CONFIG": str(settings)})

    answers = {answer["id"]: answer["result"] for answer in map(json.loads, ran.stdout.splitlines())}
    assert ran.returncode == 0
    assert answers[0]["serverInfo"]["name"] == "kimi-proxy-gateway"
    assert [tool["name"] for tool in answers[1]["tools"]][:1] == ["search_tools"]
    assert json.loads(answers[2]["content"][0]["text"])["name"] == "script__echo"

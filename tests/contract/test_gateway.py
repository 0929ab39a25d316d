"""The gateway's route, asked for each server of the document by its name."""

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest
from tests.support.api.proxy_world import proxy
from tests.support.shell_lines import Example, Shell, problems
from tests.support.upstream import Heard, answer, failure, handshake, scripted

from kimi_proxy.core.json import JsonObject, JsonValue

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

LINES = "".join(f"line {n} of a file\n" for n in range(1_000))
MARKER = re.compile(
    r"\n\.\.\. \[KIMI_PROXY_OBSERVATION_MASKED original_chars=(\d+) head=(\d+) tail=(\d+) id=(msk_\w+)\] \.\.\.\n"
)
DEEP: JsonObject = {"content": [{"type": "text", "text": "short"}], "structuredContent": {"files": [{"text": LINES}]}}


def call(server: str) -> str:
    return f"""curl -sS -X POST -H 'Content-Type: application/json' \
  -d '{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"read","arguments":{{"path":"big.txt"}}}}}}' \
  http://127.0.0.1:8000/api/mcp-gateway/{server}/rpc"""


SERVERS = ("fast-filesystem", "json-query", "sequential-thinking", "shrimp-task-manager")
ANSWERED = tuple(Example(name, call(name), {"jsonrpc": "2.0", "id": 7}) for name in SERVERS)
REFUSED = (
    Example("no such server", call("unknown"), {"id": 7, "error": {"code": -32001}}),
    Example("a server that is down", call("down"), {"id": 7, "error": {"code": -32002}}),
    Example(
        "no JSON",
        "curl -sS -X POST -H 'Content-Type: application/json' -d 'hello' "
        "http://127.0.0.1:8000/api/mcp-gateway/fast-filesystem/rpc",
        {"error": {"code": -32700}},
    ),
)


def read(heard: Heard) -> bytes:
    return answer(heard, DEEP) if heard.asked == "tools/call" else failure(heard, -32601)


async def test_the_route_answers_in_json_rpc_with_long_texts_masked(tmp_path: Path):
    async with scripted(handshake(read)) as upstream:
        toml = "".join(f'[mcp.servers.{name}]\nurl = "{upstream.url}"\n' for name in SERVERS)
        toml += '[mcp.servers.down]\nurl = "http://127.0.0.1:9/rpc"\n'
        async with proxy(tmp_path, toml) as world:
            shell = Shell.of(tmp_path, {8000: world.port})
            answers = {each: await asyncio.to_thread(shell.ask, each.command) for each in (*ANSWERED, *REFUSED)}

    assert problems(answers) == {}
    for example in ANSWERED:
        assert_masked(answers[example])


def assert_masked(answered: JsonValue) -> None:
    """Every long text has its head and its tail around the marker; all else is as the server said it."""
    shown = json.loads(json.dumps(answered))["result"]
    (file,) = shown["structuredContent"]["files"]
    marker = MARKER.search(file["text"])
    assert marker is not None
    assert [int(marker[n]) for n in (1, 2, 3)] == [len(LINES), 2000, 2000]
    assert file["text"] == LINES[:2000] + marker[0] + LINES[-2000:]
    assert shown["content"] == DEEP["content"]

"""The built-in MCP servers as npm has them: each offers as many tools as docs/gateway.md says."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from tests.support.checkout import ROOT
from tests.support.deep import deep

from kimi_proxy.core.config import parse
from kimi_proxy.core.json import JsonObject

START_S = 600  # with the download, on a busy machine
ROW = re.compile(r"^\| `([\w-]+)` \| `(?:run|enabled) = true` \|.*\| (\d+) \|$", re.M)


def documented() -> dict[str, int]:
    return {name: int(count) for name, count in ROW.findall((ROOT / "docs" / "gateway.md").read_text("utf-8"))}


def test_every_built_in_server_with_a_command_is_in_the_table():
    servers = parse("", {}, Path()).mcp.servers

    assert set(documented()) == {name for name, server in servers.items() if server.command}


async def tools_of(name: str, folder: Path) -> list[str]:
    server = parse("", {}, Path()).mcp.servers[name]
    command = [server.command, *(each.get_secret_value() for each in server.args)]
    env = {name: value.get_secret_value() for name, value in server.env.items()}
    process = await asyncio.create_subprocess_exec(
        *["env", *(f"{key}={value}" for key, value in env.items()), *command],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        limit=2**24,
        start_new_session=True,  # npx leaves its program behind
    )
    assert process.stdin is not None and process.stdout is not None

    async def ask(message: JsonObject) -> JsonObject:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        await process.stdin.drain()
        while line := await process.stdout.readline():
            answer = json.loads(line) if line.startswith(b"{") else {}
            if "method" in answer and "id" in answer:  # such as roots/list, which we do not offer
                error = {"code": -32601, "message": "Method not found"}
                refusal = {"jsonrpc": "2.0", "id": answer["id"], "error": error}
                process.stdin.write(json.dumps(refusal).encode() + b"\n")
            elif answer.get("id") == message.get("id"):
                return answer
        raise AssertionError(f"{name} ended with status {await process.wait()}")

    try:
        async with asyncio.timeout(START_S):
            about = {"name": "test", "version": "1"}
            params: JsonObject = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}
            await ask({"id": 1, "method": "initialize", "params": params})
            process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            listed = (await ask({"id": 2, "method": "tools/list", "params": {}}))["result"]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return [tool["name"] for tool in listed["tools"]]


@deep("it installs servers from npm and PyPI")
@pytest.mark.timeout(START_S + 300)
@pytest.mark.parametrize("name", list(documented()))
async def test_a_built_in_server_offers_as_many_tools_as_documented(name: str, tmp_path: Path):
    if shutil.which("npx") is None:
        pytest.skip("npx is not installed here")
    tools = await tools_of(name, tmp_path)

    assert len(tools) == documented()[name], tools
    if name == "task-master":
        assert "analyze_project_complexity" in tools

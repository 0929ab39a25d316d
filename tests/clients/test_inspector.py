"""The MCP Inspector's command line, at the gateway and at the pruner."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from tests.clients.text import LOG, QUESTION
from tests.support.api.proxy_world import proxy
from tests.support.clients.judges import inspector
from tests.support.clients.servers import INSTALL_S
from tests.support.deep import deep

from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.markers import read_mask

SCRIPT = str(Path(__file__).parents[1] / "support" / "stdio_server.py")
GATEWAY = f"[mcp.servers.x]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(['-I', '-S', SCRIPT])}\n"
LONG = "0123456789" * 1000

pytestmark = pytest.mark.timeout(INSTALL_S + 600)


@pytest.fixture(scope="session")
def command() -> list[str]:
    return inspector()


async def ran(command: list[str], home: Path, url: str, method: str, *more: str) -> tuple[int, JsonObject]:
    """The exit code and the printed result of one request."""
    process = await asyncio.create_subprocess_exec(
        *(*command, "--cli", url, "--transport", "http", "--method", method, *more),
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "MCP_CATALOG_PATH": str(home / "catalog.json")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await process.communicate()
    assert printed, said.decode()[-2000:]
    return process.returncode or 0, json.loads(printed)


def text_of(result: JsonObject) -> str:
    match result:
        case {"content": [{"text": str(text)}, *_]}:
            return text
    raise AssertionError(result)


@deep("the inspector of npm takes seconds to start; other clients make the same calls")
async def test_it_lists_calls_and_recovers_through_the_gateway(command: list[str], tmp_path: Path):
    async with proxy(tmp_path / "home", GATEWAY) as world:
        url = f"http://127.0.0.1:{world.port}/api/mcp-gateway/x/mcp"
        code, listed = await ran(command, tmp_path, url, "tools/list", "--strict")
        _, shown = await ran(command, tmp_path, url, "tools/call", "--tool-name", "echo", "--tool-arg", f"text={LONG}")
        marker = read_mask(text_of(shown))
        assert marker is not None
        asked = ("--tool-name", "recover_text", "--tool-arg", f"id={marker.mask_id}")
        _, whole = await ran(command, tmp_path, url, "tools/call", *asked)

    assert code == 0
    assert [tool["name"] for tool in listed["tools"]] == ["echo", "recover_text"]  # type: ignore[index,call-overload,union-attr]
    assert text_of(whole) == LONG


@deep("the inspector of npm takes seconds to start; other clients make the same calls")
async def test_it_finds_nothing_wrong_with_the_pruners_schemas_and_prunes(
    command: list[str], tmp_path: Path, port: int
):
    url = f"http://127.0.0.1:{port}/mcp"
    code, listed = await ran(command, tmp_path, url, "tools/list", "--strict")
    arguments = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in QUESTION.items()]
    _, pruned = await ran(command, tmp_path, url, "tools/call", "--tool-name", "prune_text", "--tool-arg", *arguments)

    assert (code, len(listed["tools"])) == (0, 5)  # type: ignore[arg-type]
    assert len(json.loads(text_of(pruned))["pruned_text"]) < len(LOG)

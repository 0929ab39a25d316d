"""The official client, current line: every era, over HTTP and stdio."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.clients import sdks
from tests.clients.conftest import STDIO
from tests.clients.text import EVERYTHING, LOG, QUESTION
from tests.support.deep import too
from tests.support.forks import warmth

if TYPE_CHECKING:
    from mcp import Client

MODERN, LEGACY = "2026-07-28", "2025-11-25"

# door, how the client negotiates, what both must end up speaking
WAYS = [
    ("/mcp", "auto", MODERN),
    ("/mcp", "legacy", LEGACY),
    ("/mcp", MODERN, MODERN),
    ("/rpc", "auto", LEGACY),
    ("/rpc", "legacy", LEGACY),
    ("stdio", "auto", MODERN),
    ("stdio", "legacy", LEGACY),
    ("stdio", MODERN, MODERN),
]
# Each of the last three starts a process: what does not depend on the negotiation is asked over stdio once.
FEWER = [*WAYS[:6], *(too(*way) for way in WAYS[6:])]


@asynccontextmanager
async def connected(door: str, mode: str, port: int, home: Path) -> AsyncIterator["Client"]:
    env = {"KIMI_PROXY_HOME": str(home), **warmth()}
    command = sdks.mcp.StdioServerParameters(command=STDIO[0], args=STDIO[1:], env=env)
    server = command if door == "stdio" else f"http://127.0.0.1:{port}{door}"
    async with sdks.mcp.Client(server, mode=mode, read_timeout_seconds=60) as client:
        yield client


@pytest.mark.parametrize(("door", "mode", "version"), WAYS)
async def test_a_client_prunes_and_recovers(door: str, mode: str, version: str, port: int, home: Path):
    async with connected(door, mode, port, home) as client:
        assert client.protocol_version == version
        listed = await client.list_tools()
        more = [] if door == "stdio" else ["read", "grep"]
        assert [tool.name for tool in listed.tools] == ["prune_text", "recover_text", "health", *more]
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in listed.tools)

        pruned = await client.call_tool("prune_text", QUESTION)
        assert not pruned.is_error
        assert json.loads(pruned.content[0].text) == pruned.structured_content
        assert "ERROR disk é is full" in pruned.structured_content["pruned_text"]
        assert pruned.structured_content["annotations"]

        asked = {
            "prune_id": pruned.structured_content["prune_id"],
            "ranges": EVERYTHING,
            "include_line_numbers": False,
        }
        recovered = await client.call_tool("recover_text", asked)
        assert recovered.structured_content["raw_text"] == LOG


@pytest.mark.parametrize(("door", "mode", "version"), [*WAYS[:3], *FEWER[5:]])
async def test_a_client_hears_of_mistakes_in_words(door: str, mode: str, version: str, port: int, home: Path):
    unknown = {"prune_id": "prn_0123456789abcdef", "ranges": EVERYTHING, "include_line_numbers": False}
    async with connected(door, mode, port, home) as client:
        wrong = await client.call_tool("prune_text", {"text": "a"})
        assert (wrong.is_error, wrong.content[0].text.partition(":")[0]) == (True, "invalid_params")
        missing = await client.call_tool("recover_text", unknown)
        assert (missing.is_error, missing.content[0].text.partition(":")[0]) == (True, "prune_id_not_found")
        with pytest.raises(sdks.mcp.MCPError) as caught:
            await client.call_tool("nothing", {})
        assert caught.value.code == -32602


async def test_a_client_of_rpc_gets_the_contracts_codes(port: int, home: Path):
    unknown = {"prune_id": "prn_0123456789abcdef", "ranges": EVERYTHING, "include_line_numbers": False}
    async with connected("/rpc", "auto", port, home) as client:
        with pytest.raises(sdks.mcp.MCPError) as caught:
            await client.call_tool("recover_range", unknown)
        assert (caught.value.code, caught.value.error.message) == (-32004, "prune_id_not_found")
        assert caught.value.error.data["reason"] == "unknown"


@pytest.mark.parametrize(("door", "mode", "version"), FEWER)
async def test_resources_and_prompts_are_empty_lists(door: str, mode: str, version: str, port: int, home: Path):
    async with connected(door, mode, port, home) as client:
        assert (await client.list_resources()).resources == []
        assert (await client.list_resource_templates()).resource_templates == []
        assert (await client.list_prompts()).prompts == []


@pytest.mark.parametrize("door", ["/mcp", too("/rpc"), too("stdio")])
async def test_a_result_of_megabytes_arrives(door: str, port: int, home: Path):
    question = {**QUESTION, "text": "\n".join(f"{LOG[:60]} {i} é" for i in range(20_000))}
    async with connected(door, "auto", port, home) as client:
        pruned = await client.call_tool(
            "prune_text", {**question, "options": {**QUESTION["options"], "max_prune_ratio": 0}}
        )

    assert pruned.structured_content["pruned_text"] == question["text"]

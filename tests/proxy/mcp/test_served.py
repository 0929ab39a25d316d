"""A server over HTTP that we run ourselves."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.deep import LOOPS
from tests.support.processes import runs, until

from kimi_proxy.core.errors import UpstreamTimeout, UpstreamUnreachable
from kimi_proxy.core.json import JsonObject
from kimi_proxy.proxy.mcp.http import StreamableHttp
from kimi_proxy.proxy.mcp.stdio import HttpProgramClient
from kimi_proxy.proxy.process import Command, OrphanCleanup

SCRIPT = str(Path(__file__).parents[2] / "support" / "http_server.py")
PATIENCE_S = 60.0
LIST: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@asynccontextmanager
async def served(
    mode: str = "", port: int = 0, start_timeout_s: float = PATIENCE_S
) -> AsyncIterator[HttpProgramClient]:
    orphans, port = OrphanCleanup(), port or free_port()
    command = Command((sys.executable, "-I", "-S", SCRIPT, str(port), mode), {"PATH": os.environ["PATH"]})
    url = f"http://127.0.0.1:{port}/mcp"
    client = HttpProgramClient(
        "script", url, command, lambda: StreamableHttp("script", url, 5), start_timeout_s, orphans
    )
    try:
        yield client
    finally:
        await client.close()
        orphans.close()


def call(name: str) -> JsonObject:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {}}}


async def pids(client: HttpProgramClient) -> list[int]:
    match await client.forward(call("pid"), PATIENCE_S):
        case {"result": {"pid": int(pid), "children": list(children)}}:
            return [pid, *(int(str(child)) for child in children)]
    raise AssertionError


@pytest.mark.parametrize("mode", ["", "late"])
async def test_it_is_started_waited_for_and_asked(mode: str):
    async with served(mode) as client:
        answer = await client.forward(LIST, PATIENCE_S)
        status = client.program.status()

    assert answer is not None
    assert [tool["name"] for tool in answer["result"]["tools"]] == ["pid", "die"]  # type: ignore[index,call-overload,union-attr]
    assert (status.state, status.starts, status.problem) == ("ready", 1, None)


async def test_one_that_dies_at_once_is_not_waited_for():
    began = time.monotonic()
    async with served("dies", start_timeout_s=60) as client:
        with pytest.raises(UpstreamUnreachable, match="ended with status 4") as caught:
            await client.forward(LIST, PATIENCE_S)
        assert "after saying: my configuration is nowhere" in caught.value.detail
        said, status = client.program.output, client.program.status()

    assert time.monotonic() - began < 60
    assert said.startswith("I am about to listen\nmy configuration is nowhere to be found\n[script ended with status 4")
    assert (status.state, status.pid) == ("down", None)


async def test_one_that_does_not_speak_mcp_is_not_ready():
    async with served("stranger", start_timeout_s=2) as client:
        with pytest.raises(UpstreamTimeout):
            await client.forward(LIST, PATIENCE_S)


async def test_a_port_that_another_server_holds_is_told_by_its_name():
    port = free_port()
    async with served(port=port) as first, served(port=port) as second:
        await first.forward(LIST, PATIENCE_S)
        with pytest.raises(UpstreamUnreachable, match="its port is taken") as caught:
            await second.forward(LIST, PATIENCE_S)
        assert f"http://127.0.0.1:{port}/… is used by http-script" in caught.value.detail

        assert await first.forward(LIST, PATIENCE_S) is not None


async def test_a_port_that_a_stranger_holds_is_told_too():
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        async with served(port=stranger.getsockname()[1]) as client:
            with pytest.raises(UpstreamUnreachable, match="its port is taken") as caught:
                await client.forward(LIST, PATIENCE_S)
    assert "is used by another program" in caught.value.detail


async def test_after_a_crash_it_is_started_again_with_a_new_session():
    async with served() as client:
        before = await pids(client)
        with pytest.raises(UpstreamUnreachable):
            await client.forward(call("die"), PATIENCE_S)
        await client.program.wait_ended()
        after = await pids(client)

        assert after[0] != before[0]
        assert "somebody told me to die" in client.program.output
        await until(lambda: not any(runs(pid) for pid in before))


async def test_closing_ends_it_and_what_it_started():
    async with served() as client:
        family = await pids(client)
    await until(lambda: not any(runs(pid) for pid in family))


async def test_one_that_is_stopped_says_how_it_is_started_again():
    async with served() as client:
        family = await pids(client)
        await client.program.stop()
        with pytest.raises(UpstreamUnreachable, match="kimi-proxy mcp up script"):
            await client.forward(LIST, PATIENCE_S)
        assert client.program.status().state == "stopped"
        await until(lambda: not any(runs(pid) for pid in family))

        client.program.resume()
        assert await pids(client) != family


async def test_it_can_be_stopped_while_it_starts():
    async with served("stranger", start_timeout_s=60) as client:
        starting = asyncio.create_task(client.forward(LIST, PATIENCE_S))
        await until(lambda: client.program.status().pid is not None)
        pid = client.program.status().pid
        await client.program.stop()
        with pytest.raises(UpstreamUnreachable, match="was stopped"):
            await starting

        assert pid is not None
        await until(lambda: not runs(pid))


async def test_one_that_is_frozen_is_ended_all_the_same():
    async with served() as client:
        family = await pids(client)
        os.kill(family[0], signal.SIGSTOP)
    await until(lambda: not any(runs(pid) for pid in family))

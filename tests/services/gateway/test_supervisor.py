"""MCP servers that are kept running."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from tests.support.processes import runs, until, with_variable
from tests.support.services.supervisor import in_state, status_of, supervised
from tests.support.upstream import answer, handshake, scripted

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import BadRequest, UnknownServer
from kimi_proxy.core.json import JsonObject, JsonValue

TESTS = Path(__file__).parents[2]


def stdio(mode: str = "", log: Path | None = None, name: str = "s", more: str = "") -> str:
    args = ["-I", "-S", str(TESTS / "support" / "stdio_server.py"), mode, *([str(log)] if log else [])]
    return f"[mcp.servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(args)}\n{more}\n"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def over_http(mode: str = "", name: str = "h") -> str:
    port = free_port()
    args = ["-I", "-S", str(TESTS / "support" / "http_server.py"), str(port), mode]
    where = f'url = "http://127.0.0.1:{port}/mcp"\n'
    return f"[mcp.servers.{name}]\n{where}command = {json.dumps(sys.executable)}\nargs = {json.dumps(args)}\n"


def call(tool: str, **arguments: JsonValue) -> JsonObject:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


async def test_servers_of_both_kinds_are_started_by_themselves(tmp_path: Path):
    async with supervised(stdio() + over_http(), tmp_path) as (supervisor, _):
        stdio_status = await in_state(supervisor, "s", "ready")
        http_status = await in_state(supervisor, "h", "ready")

    assert isinstance(stdio_status.pop("pid"), int)
    assert isinstance(stdio_status.pop("latency_ms"), float)
    assert isinstance(stdio_status.pop("up_s"), float)
    assert stdio_status == {
        "name": "s",
        "state": "ready",
        "transport": "stdio",
        "run": True,
        "command": sys.executable,
        "restarts": 0,
        "tools": 1,
        "calls": 0,
        "failures": 0,
        "masked": {"texts": 0, "chars": 0},
        "last_error": None,
        "last_error_code": None,
        "last_error_s_ago": None,
        "retry_in_s": None,
    }
    assert (http_status["transport"], http_status["tools"]) == ("streamable", 2)


async def test_one_that_dies_is_started_again_though_nobody_calls(tmp_path: Path):
    async with supervised(stdio(), tmp_path) as (supervisor, _):
        first = await in_state(supervisor, "s", "ready")
        os.kill(int(str(first["pid"])), signal.SIGKILL)
        await until(lambda: not runs(int(str(first["pid"]))))
        second = await in_state(supervisor, "s", "ready")
        while second["pid"] == first["pid"]:
            second = await in_state(supervisor, "s", "ready")

    assert second["restarts"] == 1


async def test_one_that_always_crashes_is_degraded_and_rests(tmp_path: Path):
    log = tmp_path / "log"
    async with supervised(stdio("crash", log), tmp_path) as (supervisor, _):
        status = await in_state(supervisor, "s", "degraded", within_s=60)
        said = supervisor.logs("s")

    assert log.read_text().split().count("start") == 5
    assert "cannot find my configuration" in str(status["last_error"])
    assert float(str(status["retry_in_s"])) > 0
    assert "cannot find my configuration\n[s ended with status 7" in said


async def test_up_of_one_that_cannot_start_shows_the_end_of_its_log_at_once(tmp_path: Path):
    toml = "[mcp]\nready_timeout_s = 60\n" + stdio("crash") + over_http("dies")
    began = time.monotonic()
    async with supervised(toml, tmp_path, keep=False) as (supervisor, _):
        crashed, died = await supervisor.up()

    assert time.monotonic() - began < 60
    assert "cannot find my configuration" in str(crashed["log"])
    assert "my configuration is nowhere to be found" in str(died["log"])
    assert "ended with status 4" in str(died["last_error"])
    assert died["last_error_code"] == "upstream_unreachable"


async def test_up_gives_a_slow_one_its_time_and_then_says_that_it_starts(tmp_path: Path):
    toml = "[mcp]\nready_timeout_s = 0.3\n" + stdio("silent")
    async with supervised(toml, tmp_path, keep=False) as (supervisor, _):
        (status,) = await supervisor.up(["s"])

    assert (status["state"], status["log"]) == ("starting", "")


async def test_down_ends_it_and_calls_say_how_to_start_it(tmp_path: Path):
    async with supervised(stdio(), tmp_path) as (supervisor, gateway):
        first = await in_state(supervisor, "s", "ready")
        (down,) = await supervisor.stop(["s"])
        refused = await gateway.handle_rpc(LOCAL, "s", call("pid"))
        await asyncio.sleep(0.2)
        still = await status_of(supervisor, "s")

        assert not runs(int(str(first["pid"])))
        assert (down["state"], still["state"]) == ("stopped", "stopped")
        assert "kimi-proxy mcp up s" in refused["error"]["message"]  # type: ignore[index,call-overload]

        (up,) = await supervisor.up(["s"])
        answered = await gateway.handle_rpc(LOCAL, "s", call("pid"))

    assert up["state"] == "ready"
    assert answered["result"] == up["pid"]  # type: ignore[index,call-overload]


async def test_calls_work_at_once_after_up_however_many_failed_before(tmp_path: Path):
    async with supervised(stdio(), tmp_path) as (supervisor, gateway):
        await supervisor.stop()
        for _ in range(12):
            await gateway.handle_rpc(LOCAL, "s", call("pid"))
        blocked = await status_of(supervisor, "s")
        await supervisor.up()
        answered = await gateway.handle_rpc(LOCAL, "s", call("pid"))

    assert float(str(blocked["retry_in_s"])) > 0
    assert "result" in answered  # type: ignore[operator]


async def test_restart_is_a_new_process(tmp_path: Path):
    async with supervised(stdio() + over_http(), tmp_path) as (supervisor, _):
        before = [await in_state(supervisor, name, "ready") for name in ("s", "h")]
        after = await supervisor.restart()

    assert [status["state"] for status in after] == ["ready", "ready"]
    assert {status["pid"] for status in before}.isdisjoint({status["pid"] for status in after})


async def test_what_was_masked_and_what_went_wrong_is_counted(tmp_path: Path):
    async with supervised(stdio(), tmp_path) as (supervisor, gateway):
        await gateway.answer(LOCAL, "s", call("text", piece="0123456789", times=1000))
        await gateway.handle_rpc(LOCAL, "s", call("die"))
        status = await in_state(supervisor, "s", "ready")

    assert (status["calls"], status["failures"]) == (2, 1)
    assert status["masked"] == {"texts": 1, "chars": 10_000}
    assert "out of memory, or so" in str(status["last_error"])


async def test_servers_that_others_run_are_asked_but_not_touched(tmp_path: Path):
    tools: JsonValue = {"tools": [{"name": "a"}, {"name": "b"}]}
    async with scripted(handshake(lambda heard: answer(heard, tools))) as upstream:
        toml = f'[mcp.servers.there]\nurl = "{upstream.url}"\n[mcp.servers.off]\nurl = "http://a"\nenabled = false\n'
        async with supervised(toml, tmp_path) as (supervisor, _):
            statuses = {str(status["name"]): status for status in await supervisor.status(LOCAL)}
            with pytest.raises(BadRequest, match="not run here, but elsewhere, at"):
                await supervisor.stop(["there"])
            with pytest.raises(BadRequest, match="off is turned off: set enabled = true"):
                await supervisor.up(["off"])
            with pytest.raises(BadRequest, match=r"set run = true in \[mcp.servers.json-query\]"):
                await supervisor.up(["json-query"])
            with pytest.raises(UnknownServer):
                await supervisor.up(["nobody"])

    assert (statuses["there"]["state"], statuses["there"]["tools"]) == ("ready", 2)
    assert (statuses["json-query"]["state"], "tools" in statuses["json-query"]) == ("off", False)
    assert statuses["off"] == {
        "name": "off",
        "state": "off",
        "transport": "streamable",
        "run": False,
        "url": "http://a",
    }


async def test_a_server_that_lists_its_tools_page_by_page_is_counted_whole(tmp_path: Path):
    def pages(heard: object) -> bytes:
        params = heard.message.get("params")  # type: ignore[attr-defined]
        page = int(params.get("cursor", 0))
        more = {"nextCursor": str(page + 1)} if page < 2 else {}
        return answer(heard, {"tools": [{"name": f"t{page}"}], **more})  # type: ignore[arg-type]

    async with (
        scripted(handshake(pages)) as upstream,
        supervised(f'[mcp.servers.there]\nurl = "{upstream.url}"\n', tmp_path) as (supervisor, _),
    ):
        status = await status_of(supervisor, "there")

    assert status["tools"] == 3


OWNER = """
import asyncio, os, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from tests.support.services.supervisor import in_state, supervised

async def main():
    async with supervised(sys.argv[1], Path(sys.argv[2])) as (supervisor, gateway):
        pids = [str((await in_state(supervisor, name, "ready"))["pid"]) for name in ("s", "h")]
        print(*pids, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""

KILLS = 50 if "KIMI_PROXY_DEEP" in os.environ else 4


@pytest.mark.timeout(600 + 30 * KILLS)
async def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path):
    mark = f"KILLED_IN={tmp_path}"
    marked = f"env = {{ KILLED_IN = {json.dumps(str(tmp_path))} }}\n"
    for turn in range(KILLS):
        owner = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", OWNER, stdio() + marked + over_http() + marked),
            *(str(tmp_path / "home"), str(TESTS.parent)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert owner.stdout is not None
        # Every second one is killed while it starts its servers, at one moment or another.
        if turn % 2:
            await asyncio.sleep(0.3 + 0.1 * (turn % 8))
        else:
            pids = [int(pid) for pid in (await owner.stdout.readline()).split()]
            assert {*pids} < with_variable(mark)  # one of them has a child
        owner.kill()
        await owner.wait()

        await until(lambda: not with_variable(mark), within_s=60)

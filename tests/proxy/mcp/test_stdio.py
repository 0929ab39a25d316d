"""A server that we run ourselves."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.deep import LOOPS
from tests.support.processes import is_guard, parent_of, runs, until

from kimi_proxy.core import jsonrpc
from kimi_proxy.core.errors import UpstreamError, UpstreamTimeout, UpstreamUnreachable, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject, JsonValue, encode
from kimi_proxy.proxy.mcp.stdio import StdioClient
from kimi_proxy.proxy.process import Command, OrphanCleanup

SCRIPT = str(Path(__file__).parents[2] / "support" / "stdio_server.py")
PATIENCE_S = 60.0


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Child processes are where event loops differ."""
    return "asyncio", {"use_uvloop": request.param}


def command(*arguments: str, env: dict[str, str] | None = None, cwd: str | None = None) -> Command:
    return Command((sys.executable, "-I", "-S", SCRIPT, *arguments), env or {"PATH": os.environ["PATH"]}, cwd)


@asynccontextmanager
async def running(what: Command, start_timeout_s: float = PATIENCE_S) -> AsyncIterator[StdioClient]:
    orphans = OrphanCleanup()
    client = StdioClient("script", what, start_timeout_s, orphans)
    try:
        yield client
    finally:
        await client.close()
        orphans.close()


def call(name: str, call_id: JsonValue = 1, **arguments: JsonValue) -> JsonObject:
    return {"jsonrpc": "2.0", "id": call_id, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


async def result(client: StdioClient, message: JsonObject, timeout_s: float = PATIENCE_S) -> JsonValue:
    got = await client.forward(message, timeout_s)
    assert got is not None
    assert got["id"] == message["id"]
    return got["result"]


async def test_a_client_that_never_said_hello_is_served(tmp_path: Path):
    async with running(command("", str(tmp_path / "log"))) as client:
        got = await client.forward({"jsonrpc": "2.0", "id": "é", "method": "tools/list"}, PATIENCE_S)
        assert got is not None

        assert (got["id"], "tools" in got["result"]) == ("é", True)  # type: ignore[operator]
    assert (tmp_path / "log").read_text().split() == [
        "start",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "end",
    ]


async def test_a_clients_own_hello_is_answered_from_memory(tmp_path: Path):
    hello: JsonObject = {"id": 5, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
    async with running(command("", str(tmp_path / "log"))) as client:
        for _ in range(3):
            assert await result(client, hello) == {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "script", "version": "1"},
            }
        assert await client.forward({"jsonrpc": "2.0", "method": "notifications/initialized"}, PATIENCE_S) is None
    assert (tmp_path / "log").read_text().split().count("initialize") == 1


async def test_a_client_of_the_stateless_era_is_served_by_a_server_of_the_other():
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "goal": "g",
    }
    async with running(command()) as client:
        discovered = await result(client, {"id": 1, "method": "server/discover", "params": {"_meta": meta}})
        called = await result(client, {"id": 2, "method": "tools/call", "params": {"name": "meta", "_meta": meta}})

    assert discovered == {
        "supportedVersions": ("2026-07-28",),
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
        "resultType": "complete",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "script", "version": "1"}},
    }
    assert called == {
        "meta": {"goal": "g"},
        "resultType": "complete",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "script", "version": "1"}},
    }


async def test_a_server_of_the_stateless_era_serves_clients_of_the_other():
    async with running(command("stateless")) as client:
        hello = await result(client, {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}})
        called = await result(client, call("meta"))
        pinged = await result(client, {"id": 1, "method": "ping"})

    assert (hello["protocolVersion"], hello["capabilities"]) == ("2025-11-25", {"tools": {}})  # type: ignore[index,call-overload]
    assert called["meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"  # type: ignore[index,call-overload]
    assert pinged == {}


async def test_eighty_calls_with_one_id_all_get_their_own_answers():
    async with running(command()) as client:
        got = await asyncio.gather(*(result(client, call("slow", 1, seconds=0.05, n=n)) for n in range(80)))

    assert [g["n"] for g in got] == list(range(80))  # type: ignore[index,call-overload]


async def test_an_answer_to_another_id_and_all_other_noise_is_overheard():
    async with running(command()) as client:
        assert await result(client, call("wrong_id")) == "yours"
        assert await result(client, call("noise")) == "found"


async def test_a_servers_own_requests_get_a_polite_answer():
    async with running(command()) as client:
        replies = await result(client, call("asks"))

    assert replies == [
        {"jsonrpc": "2.0", "id": "p", "result": {}},
        {
            "jsonrpc": "2.0",
            "id": "r",
            "error": {"code": -32601, "message": "kimi-proxy does not offer this to servers"},
        },
    ]


async def test_progress_is_told_to_whoever_waits_though_two_chose_the_same_token():
    async def heard_by(who: str, client: StdioClient) -> tuple[list[JsonObject], JsonValue]:
        told: list[JsonObject] = []
        jsonrpc.listen(told.append)
        message = call("progress", who=who)
        message["params"]["_meta"] = {"progressToken": "t", "kept": who}  # type: ignore[index,call-overload]
        return told, await result(client, message)

    async with running(command()) as client:
        both = await asyncio.gather(*(heard_by(who, client) for who in "ab"))

    for who, (told, got) in zip("ab", both, strict=True):
        assert [notice["params"] for notice in told] == [
            {"progressToken": "t", "progress": step, "message": who} for step in range(3)
        ]
        assert got != {"content": [{"type": "text", "text": "t"}]}


async def test_without_a_listener_progress_is_overheard():
    message = call("progress")
    message["params"]["_meta"] = {"progressToken": 1}  # type: ignore[index,call-overload]
    async with running(command()) as client:
        assert await result(client, message) is not None
        assert await result(client, call("progress")) == {"content": [{"type": "text", "text": "None"}]}


async def test_fifty_megabytes_and_ten_thousand_levels_pass():
    async with running(command()) as client:
        big = await result(client, call("text", piece="0123456789", times=5_000_000), 60)
        deep = await result(client, call("deep", depth=10_000))

    assert len(big["content"][0]["text"]) == 50_000_000  # type: ignore[index,call-overload]
    assert encode({"result": deep}) == b'{"result":' + b"[" * 10_000 + b"]" * 10_000 + b"}"


async def test_a_large_request_passes():
    async with running(command()) as client:
        got = await result(client, call("echo", text="x" * 5_000_000))

    assert len(got["content"][0]["text"]) > 5_000_000  # type: ignore[index,call-overload]


async def test_a_server_killed_in_the_middle_of_a_call_is_an_error_and_the_next_call_works():
    async with running(command()) as client:
        pid = await result(client, call("pid"))
        waiting = asyncio.create_task(client.forward(call("nothing"), PATIENCE_S))
        await asyncio.sleep(0.05)
        os.kill(int(str(pid)), signal.SIGKILL)
        with pytest.raises(UpstreamUnreachable, match="script ended with status -9"):
            await waiting

        assert await result(client, call("pid")) != pid


async def test_the_last_words_of_a_server_that_dies_are_passed_on():
    async with running(command()) as client:
        with pytest.raises(UpstreamUnreachable) as caught:
            await client.forward(call("die"), PATIENCE_S)
    assert "status 3 after saying: out of memory, or so" in caught.value.full


async def test_what_was_answered_before_the_end_is_not_lost():
    async with running(command()) as client:
        assert await result(client, call("last_words")) == "x" * 1_000_000


async def test_an_answer_whose_line_was_not_ended_before_the_end_is_not_lost():
    async with running(command()) as client:
        assert await result(client, call("unended")) == "no newline"


@pytest.mark.parametrize("kind", ["text", "fraction"])
async def test_a_server_may_write_the_number_that_we_gave_in_its_own_way(kind: str):
    async with running(command()) as client:
        assert await result(client, call("other_id", kind=kind)) == "yours"


async def test_a_call_that_takes_too_long_is_cancelled_and_the_server_lives_on(tmp_path: Path):
    log = tmp_path / "log"
    async with running(command("", str(log))) as client:
        pid = await result(client, call("pid"))
        with pytest.raises(UpstreamTimeout, match=r"script did not answer within 0\.2 s"):
            await client.forward(call("nothing"), 0.2)

        assert await result(client, call("pid")) == pid
    assert "notifications/cancelled" in log.read_text()


async def test_a_cancellation_by_a_clients_id_is_not_passed_on(tmp_path: Path):
    log = tmp_path / "log"
    async with running(command("", str(log))) as client:
        await result(client, call("pid"))
        cancelled: JsonObject = {"method": "notifications/cancelled", "params": {"requestId": 1}}

        assert await client.forward(cancelled, PATIENCE_S) is None
    assert "notifications/cancelled" not in log.read_text()


async def test_a_program_that_does_not_exist_is_an_error_that_says_so():
    async with running(Command(("/no/such/program",), {})) as client:
        with pytest.raises(UpstreamUnreachable) as caught:
            await client.forward(call("pid"), PATIENCE_S)
    assert "program '/no/such/program' not found: install it, or correct command" in caught.value.full


async def test_a_folder_that_does_not_exist_is_named_and_not_the_program(tmp_path: Path):
    async with running(command(cwd=str(tmp_path / "absent"))) as client:
        with pytest.raises(UpstreamUnreachable) as caught:
            await client.forward(call("pid"), PATIENCE_S)
    assert f"the folder {str(tmp_path / 'absent')!r} does not exist: correct root in" in caught.value.full


async def test_a_program_that_never_introduces_itself_is_ended():
    async with running(command("silent"), start_timeout_s=0.5) as client:
        with pytest.raises(UpstreamTimeout):
            await client.forward(call("pid"), PATIENCE_S)


async def test_a_program_that_refuses_is_an_error_that_says_why():
    async with running(command("refuse")) as client:
        with pytest.raises(UpstreamError, match="script refused the handshake: Method not found"):
            await client.forward(call("pid"), PATIENCE_S)


async def test_a_program_that_crashes_at_once_is_not_restarted_forever(tmp_path: Path):
    log = tmp_path / "log"
    problems = []
    async with running(command("crash", str(log))) as client:
        for _ in range(8):
            with pytest.raises(UpstreamUnreachable) as caught:
                await client.forward(call("pid"), PATIENCE_S)
            problems.append(caught.value)

    assert "cannot find my configuration" in problems[0].full
    assert "crashed 5 times in a row" in str(problems[-1])
    assert 0 < (problems[-1].retry_after_s or 0) <= 30
    assert log.read_text().split().count("start") == 5


async def test_an_endless_line_ends_the_program_and_not_us():
    async with running(command()) as client:
        with pytest.raises(UpstreamUnreadable, match="wrote a line of more than"):
            await client.forward(call("endless"), 60)

        assert await result(client, call("echo")) is not None


async def test_a_call_that_is_given_up_during_the_start_leaves_the_start_to_others():
    async with running(command()) as client:
        first = asyncio.create_task(client.forward(call("pid"), PATIENCE_S))
        await asyncio.sleep(0)
        second = asyncio.create_task(client.forward(call("pid"), PATIENCE_S))
        await asyncio.sleep(0.001)
        first.cancel()

        assert (await second or {})["result"] is not None


async def test_the_environment_is_what_was_chosen():
    async with running(command(env={"PATH": "/usr/bin:/bin", "CHOSEN": "yes"}, cwd="/")) as client:
        env = await result(client, call("environment"))

        assert {name: env[name] for name in ("PATH", "CHOSEN")} == {"PATH": "/usr/bin:/bin", "CHOSEN": "yes"}  # type: ignore[index,call-overload]
        assert set(env) <= {"PATH", "CHOSEN", "LC_CTYPE"}  # type: ignore[arg-type]
        assert await result(client, call("where")) == "/"


CHILDREN = pytest.mark.parametrize("child", ["child", "adrift"])


@CHILDREN
async def test_closing_ends_the_program_and_what_it_started(child: str):
    async with running(command()) as client:
        pids = await result(client, call(child))
    await until(lambda: not any(runs(pids[name]) for name in ("pid", "child")))  # type: ignore[index,call-overload]


@CHILDREN
async def test_a_program_that_dies_takes_its_children_along(child: str):
    async with running(command()) as client:
        pids = await result(client, call(child))
        os.kill(pids["pid"], signal.SIGKILL)  # type: ignore[index,call-overload]
        await until(lambda: not runs(pids["child"]))  # type: ignore[index,call-overload]


OWNER = """
import asyncio, json, sys
from kimi_proxy.proxy.process import Command, OrphanCleanup
from kimi_proxy.proxy.mcp.stdio import StdioClient

async def main():
    client = StdioClient("script", Command(json.loads(sys.argv[1]), {"PATH": "/usr/bin:/bin"}), 20, OrphanCleanup())
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": sys.argv[2], "arguments": {}}}
    print(json.dumps((await client.forward(message, 20))["result"]), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@CHILDREN
async def test_when_we_are_killed_nothing_is_left_behind(child: str):
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, json.dumps(command().argv), child, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    pids = json.loads(await owner.stdout.readline())
    owner.kill()
    await owner.wait()

    await until(lambda: not any(runs(pids[name]) for name in ("pid", "child")), within_s=60)


def guards_of(pid: int) -> dict[str, int]:
    """The two processes that stand between us and a server."""
    second = parent_of(pid)
    assert second is not None
    first = parent_of(second)
    assert first is not None
    assert is_guard(first)
    assert is_guard(second)
    return {"first": first, "second": second}


async def pid_of(client: StdioClient) -> JsonValue:
    try:
        return await result(client, call("pid"))
    except UpstreamUnreachable:  # it came before the end was seen
        await asyncio.sleep(0.01)
        return None


GUARDS = pytest.mark.parametrize("guard", ["first", "second"])


@GUARDS
async def test_a_killed_guard_leaves_nothing_behind_and_the_next_call_works(guard: str):
    async with running(command()) as client:
        pids = await result(client, call("adrift"))
        os.kill(guards_of(pids["pid"])[guard], signal.SIGKILL)  # type: ignore[index,call-overload,arg-type]

        await until(lambda: not any(runs(pids[name]) for name in ("pid", "child")))  # type: ignore[index,call-overload]
        async with asyncio.timeout(PATIENCE_S):
            while (again := await pid_of(client)) is None:
                pass
        assert again != pids["pid"]  # type: ignore[index,call-overload]


@GUARDS
async def test_a_guard_that_is_killed_with_us_leaves_nothing_behind(guard: str):
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, json.dumps(command().argv), "adrift", stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    pids = json.loads(await owner.stdout.readline())
    os.kill(guards_of(pids["pid"])[guard], signal.SIGKILL)
    owner.kill()
    await owner.wait()

    await until(lambda: not any(runs(pids[name]) for name in ("pid", "child")), within_s=60)

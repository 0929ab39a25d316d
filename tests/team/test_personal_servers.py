"""A program on standard input and output that keeps a state: in a team it keeps one for each person."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.support.api.team import Team, team
from tests.support.processes import runs, until

from kimi_proxy.core.caller import Caller
from kimi_proxy.services.gateway import clients

SERVER = Path(__file__).parents[1] / "support" / "stdio_server.py"


@asynccontextmanager
async def with_notes(home: Path, per: str = "") -> AsyncIterator[Team]:
    program = f'command = "{sys.executable}"\nargs = ["-I", "-S", "{SERVER}"]\n{per}\n'
    async with team(home, f"[mcp.servers.notes]\n{program}") as t:
        yield t


async def process_of(client: httpx.AsyncClient) -> int:
    """The id of the process that answers."""
    called = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pid"}}
    return int((await client.post("/api/mcp-gateway/notes/rpc", json=called)).json()["result"])


@pytest.mark.parametrize(("per", "is_shared"), [("", False), ('per = "person"', False), ('per = "server"', True)])
async def test_one_person_s_state_is_read_by_no_other(tmp_path: Path, per: str, is_shared: bool):
    async with with_notes(tmp_path, per) as t, t.person("ada") as ada, t.person("ben") as ben:
        first, again, other = await process_of(ada), await process_of(ada), await process_of(ben)

    assert first == again
    assert (first == other) is is_shared


async def test_a_server_that_is_stopped_ends_for_everybody(tmp_path: Path):
    async with with_notes(tmp_path) as t, t.person("ada") as ada:
        process = await process_of(ada)
        await t.proxy.runtime.supervisor.stop(["notes"])
        await until(lambda: not runs(process))
        called = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pid"}}
        answer = await ada.post("/api/mcp-gateway/notes/rpc", json=called)

    assert "was stopped" in answer.text


async def test_the_process_used_longest_ago_makes_room_for_another_person(tmp_path: Path):
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pid"}}
    async with with_notes(tmp_path) as t:
        servers = t.proxy.runtime.gateway.clients

        async def pid(person: str) -> object:
            who = Caller(person_id=person)
            return (await servers.forward_jsonrpc("notes", dict(message), who) or {})["result"]

        first = await pid("psn_0")
        others = [await pid(f"psn_{number}") for number in range(1, clients.MAX_PEOPLE + 1)]
        await until(lambda: not runs(int(str(first))))

    assert len({first, *others}) == clients.MAX_PEOPLE + 1

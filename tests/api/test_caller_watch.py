"""What runs for a person ends when their token does: answers, sockets and tool calls, on every server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.support.api.command import command
from tests.support.api.team import TEAM, Team, team, teams
from tests.support.api.watching import MODEL
from tests.support.evil import Heard, Line
from tests.support.processes import until
from tests.support.services.store import postgres_server

PIECE = b'data: {"choices":[{"delta":{"content":"h"}}]}\n\n'
PATIENCE_S = 60


async def begin_and_wait(heard: Heard, line: Line) -> None:
    """Begin an answer, and wait for the client to leave."""
    await line.stream(PIECE, ends=False)
    await line.until_left(PATIENCE_S)


@asynccontextmanager
async def reading(client: httpx.AsyncClient, name: str) -> AsyncIterator["asyncio.Task[str]"]:
    """Ask for an answer that does not end; the task returns how reading it ended."""
    began = asyncio.Event()

    async def read() -> str:
        body = {"model": MODEL, "messages": [{"role": "user", "content": f"hello from {name}"}], "stream": True}
        try:
            async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                assert answer.status_code == 200
                async for _ in answer.aiter_bytes():
                    began.set()
        except httpx.HTTPError:
            return "broken off"
        return "ended"

    task = asyncio.create_task(read())
    async with asyncio.timeout(PATIENCE_S):
        await began.wait()
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _ends_for_ada(t: Team, home: Path, url: str) -> None:
    """Revoke ada by a command: all of hers ends, and nothing of ben's."""
    async with (
        t.person("ada") as ada,
        t.person("ben") as ben,
        t.watched_by("ada") as seen_by_ada,
        t.watched_by("ben") as seen_by_ben,
        reading(ada, "ada") as of_ada,
        reading(ben, "ben") as of_ben,
    ):
        await command(home, url, "team", "revoke", "ada")

        assert await asyncio.wait_for(of_ada, PATIENCE_S) == "broken off"
        await until(lambda: len(t.provider.left_at) == 1)  # the provider stops, too
        async with asyncio.timeout(PATIENCE_S):
            await seen_by_ada.socket.wait_closed()
        assert (seen_by_ada.socket.close_code, seen_by_ada.socket.close_reason) == (1008, "log in again")
        assert not of_ben.done() and seen_by_ben.socket.close_code is None
        assert (await ada.get("/api/me")).status_code == 401


async def test_a_command_beside_a_running_server_ends_what_runs_for_a_person(tmp_path: Path):
    async with team(tmp_path, script=begin_and_wait) as t:
        await _ends_for_ada(t, tmp_path / "0", "")


async def test_a_command_ends_what_runs_on_servers_that_share_a_database(tmp_path: Path):
    with postgres_server.serving() as server:
        url = postgres_server.url_of(server, tmp_path)
        async with teams(tmp_path, "", TEAM, url, url, script=begin_and_wait) as (_, other):
            await _ends_for_ada(other, tmp_path / "elsewhere", url)


@pytest.mark.parametrize("ends", ["rotate", "DELETE"])
async def test_what_runs_with_a_token_ends_with_that_token_alone(tmp_path: Path, ends: str):
    async with team(tmp_path, script=begin_and_wait) as t, t.person("ada") as ada, t.person("dee") as dee:
        made = (await ada.post("/api/me/tokens", json={"label": "laptop"})).json()
        async with t.person("ada") as laptop, t.person("ada") as desk:
            laptop.headers["authorization"] = f"Bearer {made['token']}"
            async with reading(laptop, "laptop") as with_made, reading(desk, "desk") as with_own:
                if ends == "DELETE":
                    await ada.delete(f"/api/me/tokens/{made['id']}")
                else:
                    await dee.post("/api/team/people/ada/rotate")

                assert await asyncio.wait_for(with_made, PATIENCE_S) == "broken off"
                if ends == "rotate":
                    assert await asyncio.wait_for(with_own, PATIENCE_S) == "broken off"
                else:
                    assert not with_own.done()


async def test_who_has_no_answer_yet_is_told_that_the_token_has_ended(tmp_path: Path):
    async def never_answer(heard: Heard, line: Line) -> None:
        await line.until_left(PATIENCE_S)

    async with team(tmp_path, script=never_answer) as t, t.person("ada") as ada, t.person("dee") as dee:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
        asked = asyncio.create_task(ada.post("/v1/chat/completions", json=body))
        await until(lambda: len(t.provider.heard) == 1)
        await dee.post("/api/team/people/ada/revoke")

        answer = await asyncio.wait_for(asked, PATIENCE_S)
        assert (answer.status_code, "has ended" in answer.json()["error"]["message"]) == (401, True)

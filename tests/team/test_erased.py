"""Of a person whose data was erased, with answers under way, running servers keep nothing and write nothing more."""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import psycopg
import pytest
from tests.support.api.command import command
from tests.support.api.team import OPTIONS, TEAM, Team, teams
from tests.support.api.watching import MODEL, completion, listed
from tests.support.deep import deep
from tests.support.evil import Heard, Line, http
from tests.support.objects import texts_with
from tests.support.processes import until
from tests.support.services.store import postgres_server

from kimi_proxy.core.json import JsonObject
from kimi_proxy.services.store.sql import zstd

CANARY = ("canary", "that", "was", "erased")  # one word
PATIENCE_S = 60
FLUSH_S = 2.5  # after which a server has written what it noted
PIECE = b'data: {"choices":[{"delta":{"content":"h"}}]}\n\n'
ZSTD = b"\x28\xb5\x2f\xfd"
SETTINGS = "[record]\nenabled = true\n[memory]\ninject = true\n[sanitizer]\nbudget_ms = 60_000\n"
SHARED = TEAM + 'share = "team"\n'


def canary() -> str:
    return "".join(CANARY)


def long_text() -> str:
    return "\n".join(f"INFO step {n} took {n} ms" for n in range(3000)) + f"\nERROR {canary()} failed\n"


async def answer_some(heard: Heard, line: Line) -> None:
    """Answer; an answer that is asked for as a stream begins, and waits for the client to leave."""
    if not json.loads(heard.body).get("stream"):
        await line.send(http(completion()))
        line.finish()  # else the connection's coroutine holds the request
        return
    await line.stream(PIECE, ends=False)
    del heard
    await line.until_left(PATIENCE_S)


def conversation(turn: int, *, stream: bool = False) -> JsonObject:
    """A question, the long output of a command, and words that do not fit the window of the model."""
    call = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    question = {"role": "user", "content": f"why does the {canary()} fail? {'In a stream.' * stream}"}
    output = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": long_text()},
    ]
    said = [{"role": role, "content": f"{canary()} in other words. " * 60} for role in ("assistant", "user")] * 12
    messages = [[question], [question, *output], [question, *output, *said]][turn]
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    return {"model": MODEL, "messages": messages, "tools": tools, "stream": stream}


async def stream_until_ended(client: httpx.AsyncClient, began: asyncio.Event) -> None:
    try:
        async with client.stream("POST", "/v1/chat/completions", json=conversation(1, stream=True)) as answer:
            assert answer.status_code == 200
            async for _ in answer.aiter_bytes():
                began.set()
    except httpx.HTTPError:
        return
    raise AssertionError("the stream was not broken off")


@asynccontextmanager
async def streaming(client: httpx.AsyncClient) -> AsyncIterator["asyncio.Task[None]"]:
    """Have an answer under way."""
    began = asyncio.Event()
    task = asyncio.create_task(stream_until_ended(client, began))
    async with asyncio.timeout(PATIENCE_S):
        await began.wait()
    yield task


async def use_everything(t: Team, client: httpx.AsyncClient) -> None:
    """Keep a text in every place that there is for a person's texts.

    The conversation does not fit the model's window, so that it is compressed.
    """
    named = {"x-session-id": f"work on {canary()}"}
    assert (await client.post("/api/memory/save", json={"content": f"remember {canary()}"})).status_code == 200
    for turn in range(3):
        answer = await client.post("/v1/chat/completions", json=conversation(turn), headers=named)
        assert answer.status_code == 200
    session = (await listed(client, "/api/sessions", "sessions", 1))[0]["id"]
    renamed = await client.patch(f"/api/sessions/{session}", json={"title": f"all of {canary()}"})
    assert renamed.status_code == 200
    assert (await client.post("/api/me/tokens", json={"label": canary()})).status_code == 201
    given = {"messages": conversation(1)["messages"], "session_id": f"compress {canary()}"}
    assert (await client.post("/v1/compress", json=given)).status_code == 200


async def prune_outside_conversations(t: Team) -> None:
    """A team that shares keeps such a text."""
    arguments = {"text": long_text(), "goal_hint": canary(), "source_type": "logs", "options": OPTIONS}
    params = {"name": "prune_text", "arguments": arguments}
    async with t.at_pruner("ada") as pruner:
        answer = await pruner.post("/rpc", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        assert "prn_" in answer.text


def texts_of(value: object) -> Iterator[bytes]:
    """Yield what a column holds; of a compressed text, the text."""
    if isinstance(value, memoryview | bytearray):
        value = bytes(value)
    if isinstance(value, bytes):
        yield zstd.decompress(value) if value.startswith(ZSTD) else value
    elif value is not None:
        yield str(value).encode("utf-8", "replace")


def in_rows(name: str, rows: Sequence[tuple[object, ...]]) -> Iterator[str]:
    if any(canary().encode() in text for row in rows for value in row for text in texts_of(value)):
        yield f"table {name}"


def in_state(home: Path, url: str) -> set[str]:
    """Return every table and file of the servers below a folder that holds the canary."""
    found = set[str]()
    for path in home.rglob("*"):
        if path.is_file() and (canary() in str(path) or canary().encode() in path.read_bytes()):
            found.add(f"file *{path.suffix}")
        if path.suffix == ".sqlite3":
            with closing(sqlite3.connect(path)) as database:
                names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
                for (name,) in names:
                    found.update(in_rows(name, database.execute(f"SELECT * FROM {name}").fetchall()))
    if url:
        with psycopg.connect(url) as database:
            names = database.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
            for (name,) in names:
                found.update(in_rows(name, database.execute(f"SELECT * FROM {name}".encode()).fetchall()))
    return found


IN_TABLES = {"text", "record", "decision", "fact", "sessions", "project_memory", "token", "compression_log"}

Erase = Callable[[], Awaitable[JsonObject]]


async def use_and_erase(home: Path, url: str, servers: Sequence[Team], erase: Erase) -> None:
    """Erase ada while answers are under way on every server."""
    first, last = servers[0], servers[-1]
    async with first.person("ada") as ada, last.person("ada") as elsewhere, first.watched_by("ada") as watcher:
        await use_everything(first, ada)
        async with streaming(ada) as at_first, streaming(elsewhere) as at_last:
            for server in servers:
                await server.proxy.runtime.sessions.caught_up()
            await until(lambda: canary() in "".join(watcher.frames))
            before = in_state(home, url)
            assert int(str((await erase())["sessions"])) > 0
            await asyncio.wait_for(asyncio.gather(at_first, at_last), PATIENCE_S)
        watcher.frames.clear()
        watcher.events.clear()
    assert {f"table {name}" for name in IN_TABLES} <= before
    assert ("file *.jsonl" in before, "table event_batch" in before) == (True, bool(url))


async def find_nothing(home: Path, url: str, servers: Sequence[Team]) -> None:
    """Wait until what was under way is over, and look again when everything is written that ever will be."""
    for server in servers:
        server.provider.heard.clear()
    end = time.monotonic() + PATIENCE_S
    while left := [*await asyncio.to_thread(in_state, home, url), *await asyncio.to_thread(texts_with, CANARY)]:
        assert time.monotonic() < end, left
        await asyncio.sleep(0.5)
    for server in servers:
        await server.proxy.runtime.sessions.caught_up()
    await asyncio.sleep(FLUSH_S)
    assert in_state(home, url) == set()


async def let_the_next_of_the_name_look(server: Team) -> None:
    async with server.person("dee") as dee:
        made = await dee.post("/api/team/people", json={"name": "ada", "team": "x"})
        server.tokens["ada"] = made.json()["token"]
    async with server.person("ada") as ada, server.watched_by("ada") as watcher:
        assert (await ada.get("/api/sessions")).json()["sessions"] == []
        assert (await ada.get("/api/memory/load")).json()["content"] == ""
        lines = (await ada.get("/api/me/export")).text.splitlines()
        assert {json.loads(line)["kind"] for line in lines} == {"person", "audit"}  # of this export
        assert canary() not in "".join(watcher.frames)


async def test_a_command_beside_a_running_server_leaves_nothing_of_a_person(tmp_path: Path):
    async with teams(tmp_path, SETTINGS, TEAM, "", script=answer_some) as servers:

        async def erase() -> JsonObject:
            output = await command(tmp_path / "0", "", "team", "erase", "ada", "--yes", "--json", settings=SETTINGS)
            erased: JsonObject = json.loads(output)["erased"]
            return erased

        await prune_outside_conversations(servers[0])
        await use_and_erase(tmp_path, "", servers, erase)
        await find_nothing(tmp_path, "", servers)
        await let_the_next_of_the_name_look(servers[0])


# In one scope each, everything but the events of the other server is as beside a command.
@pytest.mark.parametrize(
    "settings",
    [SHARED, pytest.param(TEAM, marks=deep("in scopes of their own, all but the events is as beside a command"))],
    ids=["shared", "each their own"],
)
async def test_an_admin_leaves_nothing_of_a_person_on_servers_that_share_a_database(tmp_path: Path, settings: str):
    with postgres_server.serving() as server:
        url = postgres_server.url_of(server, tmp_path)
        async with teams(tmp_path, SETTINGS, settings, url, url, script=answer_some) as servers:
            async with servers[0].person("dee") as dee:

                async def erase() -> JsonObject:
                    """The answers that are under way learn of it later."""
                    await dee.post("/api/team/people/ada/revoke")
                    erased: JsonObject = (await dee.post("/api/team/people/ada/erase")).json()
                    return erased

                await use_and_erase(tmp_path, url, servers, erase)
            await find_nothing(tmp_path, url, servers)
            await let_the_next_of_the_name_look(servers[1])

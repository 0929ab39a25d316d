"""What one person of a team does with the ids of another: nothing that the other would notice or have read."""

import json
from hashlib import blake2b
from pathlib import Path

import httpx
import pytest
from tests.support.api.team import LONG, OPTIONS, SECRET, TEAM, Team, ask, team, teams
from tests.support.api.watching import listed
from tests.support.services.store import postgres_server

from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.markers import new_id, quoted_ids

NAME = "plan"


def public_id(scope: str, *pieces: bytes) -> str:
    """Return what the id of a session was before it was keyed: anyone can work it out."""
    digest = blake2b()
    for piece in (scope.encode(), *pieces):
        digest.update(len(piece).to_bytes(8, "big") + piece)
    return new_id("ses", lambda size: digest.digest()[:size])


async def own_sessions(client: httpx.AsyncClient, count: int) -> list[JsonObject]:
    return await listed(client, "/api/sessions", "sessions", count)


async def test_a_session_cannot_be_taken_over_before_it_begins(tmp_path: Path):
    wanted = public_id("person/ben", b"named", NAME.encode())
    async with team(tmp_path) as t, t.person("ada") as ada, t.person("ben") as ben:
        assert (await ask(ada, wanted)).status_code == 200
        await own_sessions(ada, 1)
        for _ in range(2):
            assert (await ask(ben, NAME)).status_code == 200
        (of_ada,), (of_ben,) = await own_sessions(ada, 1), await own_sessions(ben, 1)
        assert of_ada["id"] not in (wanted, of_ben["id"])
        assert (of_ada["requests"], of_ben["requests"], of_ben["name"]) == (1, 2, NAME)

        for id in (wanted, str(of_ben["id"])):
            made = await ada.post("/api/sessions", json={"external_session_id": id})
            assert (made.status_code, made.json()["id"] == id) == (201, False)
            assert (await ask(ada, id)).status_code == 200
            for door in ("", "/metrics", "/memory", "/context"):
                assert (await ada.get(f"/api/sessions/{id}{door}")).status_code == 404
            assert (await ada.patch(f"/api/sessions/{id}", json={"title": "mine"})).status_code == 404
            assert (await ada.request("DELETE", "/api/sessions", json={"ids": [id]})).json()["deleted"] == 0
        await own_sessions(ada, 2)  # the id of another is a name like any other
        assert await own_sessions(ben, 1) == [of_ben]


async def test_another_persons_delete_forgets_no_session_and_publishes_nothing_of_it(tmp_path: Path):
    async with team(tmp_path) as t, t.person("ada") as ada, t.person("ben") as ben:
        await ask(ben, NAME)
        (of_ben,) = await own_sessions(ben, 1)
        async with t.watched_by("ben") as seen_by_ben, t.watched_by("ada") as seen_by_ada:
            await ada.request("DELETE", "/api/sessions", json={"ids": [of_ben["id"]]})
            await ada.request("DELETE", "/api/sessions", json={"all": True})
            await ask(ben, NAME)
            await seen_by_ben.until("metric_updated")
        kinds = {event["type"] for event in seen_by_ben.events}
        assert "session_created" not in kinds and "session_deleted" not in kinds
        assert of_ben["id"] not in "".join(seen_by_ada.frames)
        assert (await ben.get(f"/api/sessions/{of_ben['id']}/context")).status_code == 200


async def called(client: httpx.AsyncClient, way: str, tool: str, arguments: JsonObject) -> str:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {"accept": "application/json, text/event-stream"}
    return (await client.post(f"/api/mcp-gateway/pruner/{way}", json=call, headers=headers)).text


async def _gateway_pruner(here: Team, elsewhere: Team, way: str) -> None:
    everything = [{"start_line": 1, "end_line": 3001}]
    goal = f"why does {SECRET} fail?"
    text = {"text": LONG, "goal_hint": goal, "source_type": "logs", "options": OPTIONS}
    async with here.person("ada") as ada, elsewhere.person("ada") as ada_elsewhere:
        answer = json.loads(await called(ada, way, "prune_text", text))
        pruned = str(answer["result"]["structuredContent"]["prune_id"])
        await ask(ada)
        (cut,) = quoted_ids(here.provider.heard[-1].body.decode())
        ids = [pruned, cut]
        for id in ids:
            asked = {"prune_id": id, "ranges": everything}
            assert SECRET in await called(ada_elsewhere, way, "recover_text", asked)
            for name in ("ben", "cy", "dee"):
                async with elsewhere.person(name) as other:
                    guess = new_id(id[:3])
                    refused, unknown = [
                        await called(other, way, "recover_text", {**asked, "prune_id": one}) for one in (id, guess)
                    ]
                    assert refused.replace(id, "") == unknown.replace(guess, "")
        tables = elsewhere.proxy.runtime.team  # where everything was recovered
        assert tables
        noted = [entry async for entry in tables.audit.entries(0.0, 100)]
        assert {entry.person for entry in noted if entry.subject == pruned} == {"ada", "ben", "cy", "dee"}


@pytest.mark.parametrize("way", ["rpc", "mcp"])
async def test_the_gateways_own_pruner_acts_for_whoever_calls_it(tmp_path: Path, way: str):
    async with team(tmp_path) as t:
        await _gateway_pruner(t, t, way)


async def test_the_gateways_own_pruner_acts_for_whoever_calls_it_on_two_servers(tmp_path: Path):
    with postgres_server.serving() as server:
        url = postgres_server.url_of(server, tmp_path)
        async with teams(tmp_path, "", TEAM, url, url) as (one, other):
            await _gateway_pruner(one, other, "mcp")

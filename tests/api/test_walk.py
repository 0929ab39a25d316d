"""No call gives a person another's text, changes it, or tells another's id from one that nobody has.

The calls are generated (tests/api/walk.py): a route or a tool that is added is walked, or the walk fails.
"""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from tests.api.people_world import TEAM, PeopleServer, PeopleWorld, people_world
from tests.api.walk import LONG, OPTIONS, RESPONSES, SECRET, Call, calls_of, conversation, unknown_like
from tests.api.watching import Watcher, listed
from websockets.asyncio.client import connect

from kimi_proxy.api.apps import proxy_app, pruner_app
from kimi_proxy.api.guard import Guard
from kimi_proxy.api.routing import Access
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.markers import quoted_ids

SETTINGS = "[sanitizer]\nbudget_ms = 60000\n"
# Where an admin sees that a session is there, with its figures and without a word of it.
ADMINS_SEE = frozenset[str]()
# What is never twice the same: ids that are made, moments, durations.
VOLATILE = re.compile(
    r"\b(?:ses|prn|msk|cmp|req|resp|rs|msgbatch|file|container)_[0-9a-z]{8,}|\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z|\+00:00)?"
    r'|"(?:\w+_ms|seq|at|created|created_at|last_used|duration\w*|requests|\w*tokens\w*|commits|bytes\w*)": ?[\d.]+'
)


@dataclass(frozen=True)
class Walker:
    """A person at a server: with a client for the proxy, and one for the pruner."""

    name: str
    proxy: httpx.AsyncClient
    pruner: httpx.AsyncClient

    async def make(self, call: Call) -> httpx.Response:
        client = self.pruner if call.is_pruner else self.proxy
        accept = {"accept": "application/json, text/event-stream"}
        given = {} if call.body is None else {"json": call.body}
        return await client.request(
            call.method, call.path, params=dict(call.query), headers={**accept, **call.headers}, **given
        )


@asynccontextmanager
async def walker(server: PeopleServer, name: str) -> AsyncIterator[Walker]:
    transport = httpx.ASGITransport(pruner_app(server.proxy.runtime))
    token = {"x-kimi-proxy-token": server.tokens[name]} if name else {}
    at_pruner = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8006", headers=token)
    async with server.person(name) as client, at_pruner:
        yield Walker(name, client, at_pruner)


@asynccontextmanager
async def watched(server: PeopleServer, name: str) -> AsyncIterator[Watcher]:
    token = base64.urlsafe_b64encode(server.tokens[name].encode()).decode().rstrip("=")
    offered = ["kimi-proxy", f"bearer.{token}"]
    async with connect(f"ws://127.0.0.1:{server.proxy.port}/ws", proxy=None, subprotocols=offered) as socket:  # type: ignore[arg-type]
        watcher = Watcher(socket)
        taking = asyncio.create_task(watcher.take())
        try:
            await watcher.until("init")
            yield watcher
        finally:
            taking.cancel()
            await asyncio.wait([taking])


async def make_one_of_each(ada: Walker, world: PeopleWorld) -> dict[str, str]:
    """Let a person keep one of everything that has an id; return the ids by their kind."""
    turn = await ada.proxy.post("/v1/chat/completions", json=conversation(), headers={"x-session-id": "adas-work"})
    assert turn.status_code == 200, turn.text
    (cut,) = quoted_ids(world.provider.heard[-1].body.decode())
    arguments: JsonObject = {"text": LONG, "goal_hint": f"why {SECRET}?", "source_type": "logs", "options": OPTIONS}
    params: JsonObject = {"name": "prune_text", "arguments": arguments}
    pruned = await ada.pruner.post("/rpc", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    given = {"messages": conversation()["messages"], "session_id": "adas-guardrail"}
    compressed = (await ada.proxy.post("/v1/compress", json=given)).json()
    said = {**RESPONSES, "input": [{"role": "user", "content": SECRET}]}
    response = (await ada.proxy.post("/v1/responses", json=said)).json()
    batch = (await ada.proxy.post("/v1/messages/batches", json={"requests": [{"custom_id": SECRET}]})).json()
    await ada.proxy.post("/api/memory/save", json={"content": f"remember the {SECRET}"})
    sessions = await listed(ada.proxy, "/api/sessions", "sessions", 2)
    (session,) = [one for one in sessions if one["name"] == "adas-work"]
    return {
        "session": str(session["id"]),
        "name": "adas-work",
        "mask": cut,
        "prune": str(pruned.json()["result"]["structuredContent"]["prune_id"]),
        "hash": compressed["ccr_hashes"][0],
        "response": response["id"],
        "item": response["output"][0]["id"],
        "batch": batch["id"],
    }


async def state_of(ada: Walker, ids: Mapping[str, str], world: PeopleWorld) -> JsonValue:
    """Return what a person finds of their own, without when it was last used."""
    session = ids["session"]
    paths = [
        *(f"/api/sessions/{session}{each}" for each in ("", "/memory", "/metrics", "/context")),
        *(f"/api/mask/{ids[kind]}" for kind in ("mask", "prune")),
        *(f"/v1/retrieve/{ids['hash']}", "/api/memory/load", f"/api/compress/{session}/stats", "/api/mask"),
        *(f"/v1/responses/{ids['response']}", f"/v1/messages/batches/{ids['batch']}"),
    ]
    found = [await ada.proxy.get(path) for path in paths]
    assert [answer.status_code for answer in found] == [200] * len(paths), [answer.text[:200] for answer in found]
    read = [re.sub(r'"(?:last_used\w*|age_s|idle_s)":"?[^",}]*"?', "", answer.text) for answer in found]
    kept = {id: one for id, one in world.keeper.kept.items() if SECRET in json.dumps(one)}
    return [*read, json.dumps(kept)]


def compared(answer: httpx.Response, ids: Mapping[str, str]) -> tuple[int, str]:
    """Return an answer without what is its own each time."""
    text = answer.text
    for kind, id in sorted(ids.items(), key=lambda pair: -len(pair[1])):
        text = text.replace(id, f"<{kind}>")
    return answer.status_code, VOLATILE.sub("…", text)


async def walk(person: Walker, calls: Sequence[Call], ids: Mapping[str, str]) -> list[str]:
    """Return every call by which a person learns something of what is another's."""
    wrong: list[str] = []
    for call in calls:
        theirs = await person.make(call.about(ids))
        where = f"{person.name or 'no one'}: {call.method} {call.path} {call.query} {str(call.body)[:200]}"
        if SECRET in theirs.text.replace(json.dumps(call.body), "") and "q" not in call.query:
            wrong.append(f"{where} shows it: {theirs.text[:300]}")
        if call.kinds and not (person.name == "dee" and call.route in ADMINS_SEE):
            unknown = unknown_like(ids)
            none = await person.make(call.about(unknown))
            if compared(theirs, ids) != compared(none, unknown):
                wrong.append(f"{where} tells it apart: {compared(theirs, ids)} {compared(none, unknown)}"[:900])
        if person.name in ("", "eve") and call.access >= Access.PEOPLE and theirs.status_code != 401:
            wrong.append(f"{where} needs no token: {theirs.status_code}")
        if person.name in ("ben", "cy") and call.access is Access.ADMINS and theirs.status_code != 403:
            wrong.append(f"{where} is for admins: {theirs.status_code}")
    return wrong


def all_calls(server: PeopleServer) -> list[Call]:
    runtime = server.proxy.runtime
    proxy, pruner = proxy_app(runtime), pruner_app(runtime)
    assert isinstance(proxy, Guard)
    assert isinstance(pruner, Guard)
    return [*calls_of(proxy, runtime.tools), *calls_of(pruner, runtime.tools, is_pruner=True)]


async def walk_all(world: PeopleWorld, names: Sequence[str]) -> None:
    """Ada keeps things at the first server, and others look for them at the last."""
    first, last = world.servers[0], world.servers[-1]
    async with AsyncExitStack() as alive:
        known = [name for name in names if name not in ("", "eve")]
        watchers = {name: await alive.enter_async_context(watched(last, name)) for name in known}
        ada = await alive.enter_async_context(walker(first, "ada"))
        ids = await make_one_of_each(ada, world)
        before, calls = await state_of(ada, ids, world), all_calls(last)
        wrong: list[str] = []
        for name in names:
            person = await alive.enter_async_context(walker(last, name))
            wrong += await walk(person, calls, ids)
        after = await state_of(ada, ids, world)
        shown = [name for name, watcher in watchers.items() if SECRET in "".join(watcher.frames)]
    assert wrong == [], "\n".join(wrong)
    assert after == before
    assert shown == []


async def test_no_call_shows_changes_or_tells_apart_what_is_anothers(tmp_path: Path):
    async with people_world(tmp_path, TEAM + SETTINGS) as world:
        await walk_all(world, ("ben", "cy", "dee", "eve", ""))

"""No call gives a person another's text, changes it, or tells another's id from one that nobody has.

The calls are generated (tests/api/walk.py): a route or a tool that is added is walked, or the walk fails.
"""

import json
import os
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import httpx
import pytest
from pydantic import BaseModel
from starlette.responses import Response
from starlette.routing import BaseRoute
from tests.api.people_world import REVOKED, SHARED, TEAM, PeopleServer, PeopleWorld, people_world
from tests.api.walk import (
    KIND,
    LONG,
    OPTIONS,
    RESPONSES,
    SECRET,
    Call,
    calls_of,
    conversation,
    filled,
    tool_calls,
    unknown_like,
)
from tests.api.walkers import Walker, all_calls, guards_of, walker, watched
from tests.support.api.watching import listed
from tests.support.deep import IS_DEEP, deep
from tests.support.services.store import postgres_server

from kimi_proxy.api.guard import Guard, Rules
from kimi_proxy.api.mcp.catalogs import pruner_catalog, tools_catalog
from kimi_proxy.api.mcp.http import RpcMessage
from kimi_proxy.api.routing import Access, DescribedRoute, RouteSpec, SocketRoute
from kimi_proxy.assembly.apps import behind_guard
from kimi_proxy.assembly.tools import ToolsRuntime, running_tools
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import AccessDenied, KimiProxyError
from kimi_proxy.core.json import JsonObject, JsonValue, OpenObject
from kimi_proxy.core.markers import quoted_ids
from kimi_proxy.features.tool import Tool, ToolAnswer

SETTINGS = "[sanitizer]\nbudget_ms = 60000\n"
# Where an admin sees that a session is there, with its figures and without a word of it.
ADMINS_SEE = ("/api/sessions", "/api/session/", "/api/export/", "/api/compress/", "/api/compaction/")
# What is never twice the same: ids that are made, moments, durations.
VOLATILE = re.compile(
    r"\b(?:ses|prn|msk|cmp|req|resp|rs|msgbatch|file|container)_[0-9a-z]{8,}|\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z|\+00:00)?"
    r'|"(?:\w+_ms|seq|at|created|created_at|last_used|duration\w*|requests|\w*tokens\w*|commits|bytes\w*)": ?[\d.]+'
)


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
    batch = world.keeper.make("msgbatch", {"requests": [{"custom_id": SECRET}]})  # made with the key, by nobody here
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
        "batch": str(batch["id"]),
    }


async def state_of(ada: Walker, ids: Mapping[str, str], world: PeopleWorld) -> JsonValue:
    """Return what a person finds of their own, without when it was last used."""
    session = ids["session"]
    paths = [
        *(f"/api/sessions/{session}{each}" for each in ("", "/memory", "/metrics", "/context")),
        *(f"/api/mask/{ids[kind]}" for kind in ("mask", "prune")),
        *(f"/v1/retrieve/{ids['hash']}", "/api/memory/load", f"/api/compress/{session}/stats", "/api/mask"),
    ]
    found = [await ada.proxy.get(path) for path in paths]
    assert [answer.status_code for answer in found] == [200] * len(paths), [answer.text[:200] for answer in found]
    read = [re.sub(r'"(?:last_used\w*|age_s|idle_s)":"?[^",}]*"?', "", answer.text) for answer in found]
    kept = {id: one for id, one in world.keeper.kept.items() if SECRET in json.dumps(one)}
    return [*read, json.dumps(kept)]


def compared(answer: httpx.Response, ids: Mapping[str, str], name: str) -> tuple[int, str]:
    """Return an answer without what is its own each time. Of a session of one's own only the status counts."""
    text = "" if f'"person":"{name}"' in answer.text or ids.keys() == {"name"} else answer.text
    for kind, id in sorted(ids.items(), key=lambda pair: -len(pair[1])):
        text = text.replace(id, f"<{kind}>")
    return answer.status_code, VOLATILE.sub("…", text)


async def walk(person: Walker, calls: Sequence[Call], ids: Mapping[str, str]) -> list[str]:
    """Return every call by which a person learns something of what is another's."""
    wrong: list[str] = []
    for call in calls:
        theirs = await person.make(call.about(ids))
        where = f"{person.name}: {call.method} {call.path} {call.query} {str(call.body)[:200]}"
        if SECRET in theirs.text.replace(json.dumps(call.body), "") and "q" not in call.query:
            wrong.append(f"{where} shows it: {theirs.text[:300]}")
        is_figures = person.name == "dee" and call.route.startswith(ADMINS_SEE) and call.method == "GET"
        if call.kinds and not is_figures:
            named = {kind: ids[kind] for kind in call.kinds}
            unknown = unknown_like(named)
            none = await person.make(call.about(unknown))
            both = compared(theirs, named, person.name), compared(none, unknown, person.name)
            if both[0] != both[1]:
                wrong.append(f"{where} tells it apart: {both}"[:900])
        if person.name in ("ben", "cy") and call.access is Access.ADMINS and theirs.status_code != 403:
            wrong.append(f"{where} is for admins: {theirs.status_code}")
    return wrong


async def try_without_a_token(server: PeopleServer, name: str, calls: Sequence[Call]) -> list[str]:
    """Return every route that answers someone who has no token, or one that was revoked, without being for everyone.

    Each call has a guard of its own, because many wrong tokens wait for each other.
    """
    token, wrong = {"x-kimi-proxy-token": server.tokens[name]} if name else {}, list[str]()
    guards = guards_of(server)
    for call in {(call.route, call.method, call.is_pruner): call for call in calls}.values():
        known = guards[call.is_pruner]
        transport = httpx.ASGITransport(Guard(known.app, known.rules, access=known.access))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=token) as client:
            answer = await Walker(name, client, client).make(call.about(unknown_like(dict.fromkeys(call.kinds, "x_1"))))
        is_refused = answer.status_code == 401
        if is_refused is not (call.access >= Access.PEOPLE):
            wrong.append(f"{name or 'no one'}: {call.method} {call.path}: {answer.status_code}")
    return wrong


async def walk_all(world: PeopleWorld, names: Sequence[str]) -> None:
    """Ada keeps things at the first server, and others look for them at the last."""
    first, last = world.servers[0], world.servers[-1]
    async with AsyncExitStack() as alive:
        watchers = {name: await alive.enter_async_context(watched(last, name)) for name in names}
        ada = await alive.enter_async_context(walker(first, "ada"))
        ids = await make_one_of_each(ada, world)
        before, calls = await state_of(ada, ids, world), all_calls(last)
        wrong = [each for name in (REVOKED, "") for each in await try_without_a_token(last, name, calls)]
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
        await walk_all(world, ("ben", "cy", "dee"))


async def test_an_admin_sees_the_figures_of_anothers_session_and_changes_nothing_of_it(tmp_path: Path):
    async with (
        people_world(tmp_path, TEAM + SETTINGS) as world,
        walker(world.servers[0], "ada") as ada,
        walker(world.servers[0], "dee") as dee,
    ):
        session = (await make_one_of_each(ada, world))["session"]
        shown = await dee.proxy.get(f"/api/sessions/{session}")
        tried = [
            await dee.proxy.patch(f"/api/sessions/{session}", json={"title": "mine"}),
            await dee.proxy.delete(f"/api/sessions/{session}"),
            *[await dee.proxy.post(f"/api/compress/{session}{each}") for each in ("", "/simulate", "/undo")],
        ]

    assert (shown.json()["requests"], shown.json()["title"]) == (1, "")
    assert [(one.status_code, one.json()["error"]["code"]) for one in tried] == [(404, "session_not_found")] * 5


async def test_a_team_that_shares_shares_with_its_own_people_alone(tmp_path: Path):
    async with people_world(tmp_path, SHARED + SETTINGS) as world:
        if IS_DEEP:
            await walk_all(world, ("cy", "dee"))
        (server,) = world.servers
        async with walker(server, "ada") as ada, walker(server, "ben") as ben, walker(server, "cy") as cy:
            ids = await make_one_of_each(ada, world)
            paths = [f"/api/mask/{ids['prune']}", f"/api/sessions/{ids['session']}"]
            found = [[(await one.proxy.get(path)).status_code for path in paths] for one in (ada, ben, cy)]

    assert found == [[200] * 2, [200] * 2, [404] * 2]


async def test_no_tool_over_stdio_shows_or_tells_apart_what_is_anothers(tmp_path: Path):
    async with people_world(tmp_path, TEAM + SETTINGS) as world:
        (server,) = world.servers
        async with walker(server, "ada") as ada:
            ids = await make_one_of_each(ada, world)
        names = ("ben", "cy", "dee") if IS_DEEP else ("cy",)
        wrong = [each for name in names for each in await walk_stdio(server, name, ids, tmp_path / "0")]
        for token in (server.tokens[REVOKED], ""):
            with pytest.raises(AccessDenied):
                async with stdio_of(token, tmp_path / "0"):
                    pass

    assert wrong == []


def stdio_of(token: str, home: Path) -> AbstractAsyncContextManager[ToolsRuntime]:
    """Return what `--stdio` starts, for the person of a token."""
    return running_tools(parse(TEAM, {"KIMI_PROXY_TOKEN": token} if token else {}, home), os.environ)


async def walk_stdio(server: PeopleServer, name: str, ids: Mapping[str, str], home: Path) -> list[str]:
    wrong: list[str] = []
    async with stdio_of(server.tokens[name], home) as runtime:
        offered = {**pruner_catalog(runtime).tools, **tools_catalog(runtime).tools}

        async def answer(tool: str, arguments: JsonObject) -> str:
            try:
                said = await offered[tool].call(runtime.caller, arguments)
                return f"{said.text} {said.structured}"
            except KimiProxyError as e:
                return f"{e.code} {e.data()} {e}"

        for tool, arguments in tool_calls(offered):
            kinds = KIND.findall(json.dumps(arguments))
            unknown = unknown_like({kind: ids[kind] for kind in kinds})
            theirs, none = [await answer(tool, filled(arguments, each)) for each in (ids, unknown)]  # type: ignore[arg-type]
            for kind in kinds:
                theirs, none = theirs.replace(ids[kind], kind), none.replace(unknown[kind], kind)
            if SECRET in theirs or (kinds and theirs != none):
                wrong.append(f"{name}: {tool} {arguments}: {theirs[:200]} {none[:200]}")
    return wrong


@deep("the whole walk once more, with PostgreSQL: the walk of one server always runs")
async def test_no_call_at_another_server_shows_changes_or_tells_apart_what_is_anothers(tmp_path: Path):
    with postgres_server.serving() as server:
        url = postgres_server.url_of(server, tmp_path)
        async with people_world(tmp_path, TEAM + SETTINGS, (url, url)) as world:
            await walk_all(world, ("ben", "cy", "dee"))


@deep("it measures milliseconds, which needs a quiet machine")
async def test_no_time_tells_anothers_id_from_one_that_nobody_has(tmp_path: Path):
    """The medians of calls that take turns differ by less than calls of one kind do among themselves."""
    async with people_world(tmp_path, TEAM + SETTINGS) as world:
        (server,) = world.servers
        async with walker(server, "ada") as ada, walker(server, "cy") as cy:
            ids = await make_one_of_each(ada, world)
            calls = [call for call in all_calls(server) if call.kinds and call.method == "GET" and not call.query]
            slow = [call.path for call in calls if await is_told_by_time(cy, call, ids)]

    assert slow == []


async def is_told_by_time(person: Walker, call: Call, ids: Mapping[str, str]) -> bool:
    """Return whether one of two kinds of calls took longer, in three measurements one after the other."""
    unknown = unknown_like({kind: ids[kind] for kind in call.kinds})
    for _ in range(3):
        took: tuple[list[float], list[float]] = ([], [])
        for at in range(60):
            began = time.perf_counter()
            await person.make(call.about(ids if at % 2 else unknown))
            took[at % 2].append(time.perf_counter() - began)
        quartiles = [statistics.quantiles(each, n=4) for each in took]
        spread = max(last - first for first, _, last in quartiles)
        if abs(quartiles[0][1] - quartiles[1][1]) <= spread:
            return False
    return True


def a_guard(*routes: BaseRoute) -> Guard:
    guard = behind_guard(routes, Rules())
    assert isinstance(guard, Guard)
    return guard


class NewQuery(BaseModel):
    whose: str


def a_route(path: str, query: type[BaseModel] | None = None, body: object = None) -> DescribedRoute:
    return DescribedRoute("POST", path, Response(), RouteSpec("New", query=query, body=body, access=Access.PEOPLE))


async def say_nothing(who: Caller, asked: NewQuery) -> ToolAnswer:
    return ToolAnswer("")


@pytest.mark.parametrize(
    "route",
    [
        *(a_route("/api/new/{new_id}"), a_route("/api/new", query=NewQuery), a_route("/api/new", body=NewQuery)),
        *(a_route("/api/new", body=OpenObject), a_route("/v1/new/{rest:path}")),
    ],
    ids=["path", "query", "body", "free body", "relayed"],
)
def test_a_route_with_something_new_is_walked_or_the_walk_fails(route: DescribedRoute):
    with pytest.raises((AssertionError, KeyError)):
        list(calls_of(a_guard(route), {}))


def test_a_tool_with_something_new_is_walked_or_the_walk_fails():
    tool = Tool("new", "", {}, NewQuery, say_nothing)
    with pytest.raises(AssertionError, match="whose"):
        list(calls_of(a_guard(a_route("/mcp", body=RpcMessage)), {"new": tool}))


async def test_every_socket_is_watched_or_refuses(tmp_path: Path):
    async with people_world(tmp_path) as world:
        routes = [one for guard in guards_of(world.servers[0]) for one in guard.app.routes]  # type: ignore[attr-defined]

    assert sorted(one.path for one in routes if isinstance(one, SocketRoute)) == [
        "/v1/realtime",
        "/v1/responses",
        "/ws",
    ]

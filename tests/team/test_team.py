"""A team on one server: tokens, roles, budgets, the audit log, and that no door gives one person another's text."""

import asyncio
import json
from collections import Counter
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

import httpx
import pytest
from tests.support.api.team import LONG, OPTIONS, SECRET, TEAM, Team, ask, conversation, team, teams
from tests.support.api.watching import MODEL, listed
from tests.support.deep import IS_DEEP
from tests.support.fakes import Clock
from tests.support.processes import until
from tests.support.replicas.fleet import cut_ids
from tests.support.services.store import postgres_server
from tests.support.services.store.making import opened

from kimi_proxy.core.caller import ANONYMOUS, LOCAL, Caller
from kimi_proxy.core.errors import PruneIdNotFound
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.markers import new_id, quoted_ids
from kimi_proxy.services.store.protocols import NEWEST
from kimi_proxy.team.audit import AuditLog
from kimi_proxy.team.tables import team_tables

RECORD = "[record]\nenabled = true\n"
GUESSES = 1_000_000 if IS_DEEP else 10_000


async def pruned(client: httpx.AsyncClient, goal: str = f"why does {SECRET} fail?") -> str:
    """Return the prune id of a long text."""
    arguments = {"text": LONG, "goal_hint": goal, "source_type": "logs", "options": OPTIONS}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "prune_text", "arguments": arguments}}
    answer = await client.post("/rpc", json=call)
    assert "result" in answer.json(), answer.text
    return str(answer.json()["result"]["structuredContent"]["prune_id"])


async def recovered(client: httpx.AsyncClient, prune_id: str) -> str:
    arguments = {"prune_id": prune_id, "ranges": [{"start_line": 1, "end_line": 3001}]}
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "recover_text", "arguments": arguments},
    }
    return (await client.post("/rpc", json=call)).text


async def test_no_door_of_another_server_gives_a_person_the_text_of_another(tmp_path: Path):
    with postgres_server.serving() as server:
        url = postgres_server.url_of(server, tmp_path)
        async with teams(tmp_path, RECORD, TEAM, url, url) as (one, other):
            await _try_every_door(one, other, tmp_path)


async def _try_every_door(t: Team, elsewhere: Team, home: Path) -> None:
    """Ada keeps texts on one server, and all watch and knock at the other."""
    async with t.person("ada") as ada, t.at_pruner("ada") as at_ada, elsewhere.person("ada") as ada_elsewhere:
        async with (
            elsewhere.watched_by("ada") as own,
            elsewhere.watched_by("cy") as other,
            elsewhere.watched_by("dee") as admin,
        ):
            # Again, because a server may not listen to the other one yet.
            async with asyncio.timeout(60):
                while not (own.said("metric_updated") and admin.said("metric_updated")):
                    assert (await ask(ada)).status_code == 200
                    await asyncio.sleep(0.2)
            prune_id = await pruned(at_ada)
            await ada.post("/api/memory/save", json={"content": f"remember the {SECRET}"})
        (cut,) = quoted_ids(t.provider.heard[0].body.decode()) - {prune_id}
        (session,) = await listed(ada_elsewhere, "/api/sessions", "sessions", 1)
        shown = (await ada_elsewhere.get(f"/api/cuts/{cut}")).text
        assert SECRET in shown and SECRET in await recovered(at_ada, prune_id) and SECRET in session["title"]
        assert SECRET in "".join(own.frames)

        for name in ("cy", "ben", "dee"):
            texts = await _answers(elsewhere, name, session["id"], cut, prune_id)
            # The words of a question come back where it says what it did not find.
            assert not [text for text in texts if "failed" in text or f"why does the {SECRET}" in text], name
        assert SECRET not in "".join([*other.frames, *admin.frames])
        assert {event["type"] for event in other.events} == {"init"}
        assert (await ada.get(f"/api/sessions/{session['id']}")).json()["title"] == session["title"]
        everyone = {(await t.caller(name)).person_id for name in ("ada", "ben", "cy", "dee")}
        await until(lambda: {path.parent.name for path in home.rglob("recordings/*/*.jsonl")} == everyone)


async def _answers(t: Team, name: str, session: str, cut: str, prune_id: str) -> list[str]:
    """Return what every door answers to a person who knows another's ids."""
    doors = [
        *(f"/api/mask/{id}" for id in (cut, prune_id)),
        *(f"/api/cuts/{id}" for id in (cut, prune_id)),
        *("/api/cuts", "/api/mask", f"/api/cuts/search?q={SECRET}", "/api/sessions", f"/api/sessions?q={SECRET}"),
        *(f"/api/sessions/{session}{each}" for each in ("", "/metrics", "/memory", "/context", "/context/0")),
        *(f"/api/session/{session}/health", "/api/memory/load", "/api/memory/stats", "/api/export/json"),
        *("/api/export/csv", f"/api/export/json?session={session}", f"/api/compress/{session}/stats"),
        *("/api/sanitizer/stats", "/api/report?by=person,model,day", f"/v1/retrieve/{cut}", "/api/me"),
    ]
    async with t.person(name) as client, t.at_pruner(name) as at:
        return [
            *[(await client.get(door)).text for door in doors],
            await recovered(at, prune_id),
            (await client.post(f"/api/compress/{session}?force=true", json={})).text,
            (await client.patch(f"/api/sessions/{session}", json={"title": "mine"})).text,
            (await client.request("DELETE", "/api/sessions", json={"ids": [session]})).text,
            (await ask(client, session)).text,
        ]


async def test_the_tools_that_read_files_are_not_offered_on_the_port_of_a_team(tmp_path: Path):
    async with team(tmp_path, "[tools]\nbash_over_http = true\n") as t, t.at_pruner("ada") as ada:
        headers = {"accept": "application/json, text/event-stream"}
        listed = await ada.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers=headers)
        assert {"read", "grep", "bash"}.isdisjoint(tool["name"] for tool in listed.json()["result"]["tools"])
        assert "recover_text" in listed.text


async def test_guessed_ids_give_nothing_and_an_id_of_another_is_as_unknown_as_a_guess(tmp_path: Path):
    async with team(tmp_path) as t, t.at_pruner("ada") as at_ada:
        prune_id = await pruned(at_ada)
        runtime = t.proxy.runtime
        assert runtime.team
        ben = await runtime.team.people.identify([t.tokens["ben"].encode()])
        assert ben
        store = runtime.store
        for who in (ben, LOCAL, ANONYMOUS):
            with pytest.raises(PruneIdNotFound) as error:
                await store.originals.get(who, prune_id)
            assert error.value.reason == "unknown"
        for _ in range(GUESSES // 1000):
            assert not await store.originals.live(ben, [prune_id, *(new_id("prn") for _ in range(999))])


async def test_who_has_no_token_or_a_revoked_one_is_refused_on_loopback_too(tmp_path: Path):
    async with team(tmp_path) as t, t.person("ben") as ben:
        assert (await t.proxy.http.get("/api/sessions")).status_code == 401
        assert (await t.proxy.http.get("/health")).status_code == 200
        assert (await ben.get("/api/sessions")).status_code == 200
        assert t.proxy.runtime.team
        await t.proxy.runtime.team.people.revoke("ben")
        async with asyncio.timeout(60):
            while (await ben.get("/api/sessions")).status_code != 401:  # noqa: ASYNC110
                await asyncio.sleep(0.1)


async def test_an_open_websocket_is_cut_when_its_person_is_revoked_and_others_stay(tmp_path: Path):
    async with team(tmp_path) as t, t.watched_by("ada") as ada, t.watched_by("cy") as cy, t.person("cy") as client:
        assert t.proxy.runtime.team
        await t.proxy.runtime.team.people.revoke("ada")
        async with asyncio.timeout(60):
            await ada.socket.wait_closed()
        assert (ada.socket.close_code, ada.socket.close_reason) == (1008, "log in again")
        assert (await ask(client)).status_code == 200
        await cy.until("metric_updated")


async def test_an_admin_sees_everyones_figures_and_members_only_their_own(tmp_path: Path):
    async with team(tmp_path) as t, t.person("ada") as ada, t.person("cy") as cy, t.person("dee") as dee:
        for client in (ada, cy, cy):
            assert (await ask(client, "same-name")).status_code == 200

        async def rows(client: httpx.AsyncClient, by: str = "person") -> list[tuple[str, int]]:
            found = (await client.get(f"/api/report?by={by}")).json()["rows"]
            return sorted((row[by], row["requests"]) for row in found)

        assert await rows(dee) == [("ada", 1), ("cy", 2)]
        assert (await rows(cy), await rows(dee, "team")) == ([("cy", 2)], [("x", 1), ("y", 2)])
        listed = (await dee.get("/api/sessions")).json()["sessions"]
        assert sorted((one["person"], one["title"]) for one in listed) == [("ada", ""), ("cy", "")]
        assert len({one["id"] for one in listed}) == 2
        for path in ("/api/audit-log", "/api/team/people", "/api/mcp/servers/x/logs"):
            assert (await cy.get(path)).status_code == 403
        assert (await cy.patch("/api/settings", json={"sanitizer.enabled": False})).status_code == 403
        people = (await dee.get("/api/team/people")).json()["people"]
        assert [one["name"] for one in people] == ["ada", "ben", "cy", "dee"]
        assert (await dee.get("/api/me")).json() == {"is_team": True, "person": "dee", "team": "", "role": "admin"}


async def test_a_team_that_shares_recovers_what_its_people_kept_and_no_other_does(tmp_path: Path):
    async with (
        team(tmp_path, settings='[team]\nenabled = true\nshare = "team"\n') as t,
        t.at_pruner("ada") as ada,
        t.at_pruner("ben") as ben,
        t.at_pruner("cy") as cy,
        t.at_pruner("dee") as dee,
    ):
        prune_id = await pruned(ada)
        assert SECRET in await recovered(ben, prune_id)
        for other in (cy, dee):
            assert "failed" not in await recovered(other, prune_id)


async def test_who_deletes_all_sessions_deletes_none_of_their_colleagues(tmp_path: Path):
    async with (
        team(tmp_path, settings='[team]\nenabled = true\nshare = "team"\n') as t,
        t.person("ada") as ada,
        t.person("ben") as ben,
        t.watched_by("ben") as watcher,
    ):
        for one, name in ((ada, "hers"), (ada, "also hers"), (ben, "his")):
            said = json.loads(json.dumps(conversation()).replace("INFO step", f"INFO {name} step"))
            asked = await one.post("/v1/chat/completions", json=said, headers={"x-session-id": name})
            assert asked.status_code == 200
        names = {one["name"]: one["id"] for one in (await ada.get("/api/sessions")).json()["sessions"]}
        masks = [cut_ids(heard.body)[0] for heard in t.provider.heard]
        gone = await ada.request("DELETE", "/api/sessions", json={"all": True})
        deleted = await watcher.until("session_deleted", 2)
        left = [await one.get(f"/api/mask/{id}") for one in (ada, ben) for id in masks]
        listed = [one["name"] for one in (await ben.get("/api/sessions")).json()["sessions"]]

    assert gone.json() == {"deleted": 2, "originals_deleted": 2}
    assert listed == ["his"]
    assert {one["session_id"] for one in deleted} == {names["hers"], names["also hers"]}
    assert [one.status_code for one in left] == [404, 404, 200] * 2


async def test_the_token_of_a_person_never_reaches_a_provider(tmp_path: Path):
    async with team(tmp_path) as t, t.person("ada") as ada:
        await ada.post("/v1/chat/completions", json=conversation(), headers={"x-api-key": t.tokens["ada"]})
        assert "kpt_" not in json.dumps(t.provider.heard[0].headers)


async def test_a_hard_budget_refuses_in_the_apis_shape_until_its_day_is_over(tmp_path: Path):
    budget = '[team.budgets.each]\nperson = "*"\nrequests = 2\nwarn_at = 0.5\n'
    async with team(tmp_path, budget) as t, t.person("ada") as ada, t.person("ben") as ben:
        async with t.watched_by("ada") as watcher:
            answers = [await ask(ada) for _ in range(3)]
            (alert, *_) = await watcher.until("budget_alert", 2)
        assert [one.status_code for one in answers] == [200, 200, 429]
        assert [one.headers.get("x-kimi-proxy-budget") for one in answers] == [
            "each; used=50%",
            "each; used=100%",
            None,
        ]
        assert 0 < int(answers[2].headers["retry-after"]) <= 86_400
        assert answers[2].json()["error"]["code"] == "budget_exceeded"
        assert (alert["budget"], alert["level"]) == ("each", "near")
        said = [{"role": "user", "content": "hello"}]
        refused = await ada.post("/v1/messages", json={"model": MODEL, "max_tokens": 9, "messages": said})
        assert (await ask(ben)).status_code == 200
        assert len(t.provider.heard) == 3
        assert (refused.status_code, refused.json()["type"]) == (429, "error")
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert "budget" in refused.json()["error"]["message"]
        assert 0 < int(refused.headers["retry-after"]) <= 86_400


async def test_a_budget_of_few_requests_warns_with_the_last_and_its_refusal_names_what_was_used(tmp_path: Path):
    """A budget of 3 requests never warned, and its refusal spoke of money that nobody had spent."""
    budget = '[team.budgets.each]\nperson = "*"\nrequests = 3\nusd = 100\n'
    async with team(tmp_path, budget) as t, t.person("ada") as ada:
        answers = [await ask(ada) for _ in range(4)]

    assert [one.headers.get("x-kimi-proxy-budget") for one in answers] == [None, None, "each; used=100%", None]
    assert "the 3 requests of this day are used" in answers[3].json()["error"]["message"]


async def test_a_soft_budget_of_money_warns_and_lets_through(tmp_path: Path):
    budget = '[team.budgets.model]\nmodel = "*"\nper = "month"\nusd = 0.000001\nhard = false\n'
    async with team(tmp_path, budget) as t, t.person("ada") as ada:
        assert "x-kimi-proxy-budget" not in (await ask(ada)).headers
        await t.proxy.runtime.sessions.caught_up()
        last = await ask(ada)
        assert last.status_code == 200 and last.headers["x-kimi-proxy-budget"].startswith("model; used=")


async def test_the_audit_log_says_who_recovered_exported_and_changed_what(tmp_path: Path):
    async with team(tmp_path) as t, t.person("dee") as dee, t.at_pruner("ada") as at_ada, t.person("ada") as ada:
        prune_id = await pruned(at_ada)
        await recovered(at_ada, prune_id)
        await ada.get("/api/export/csv")
        await ada.get(f"/api/cuts/search?q={SECRET}")
        await dee.patch("/api/settings", json={"sanitizer.enabled": False})
        answer = await dee.get("/api/audit-log")
        entries = [(one["person"], one["action"], one["subject"]) for one in answer.json()["entries"]][::-1]
    assert entries == [
        ("ada", "recover", prune_id),
        ("ada", "export", "all"),
        ("ada", "search", ""),
        ("dee", "change_settings", ""),
    ]
    assert SECRET not in answer.text


async def test_a_guesser_of_ids_leaves_a_few_entries_and_their_number(tmp_path: Path):
    clock, ada = Clock(), Caller("person/ada", "ada")
    async with opened(tmp_path) as store:
        audit = AuditLog(team_tables(store), 1, clock)
        for number in range(1000):
            audit.add(ada, "recover", f"prn_{number}", outcome="unknown")
        audit.add(ada, "recover", "prn_own")
        clock.at += 61
        audit.add(ada, "recover", "prn_x", outcome="unknown")
        entries = [entry async for entry in audit.entries(0.0, 100)][::-1]
        await audit.close()

    assert [entry.subject for entry in entries] == [*(f"prn_{n}" for n in range(10)), "prn_own", "prn_x"]
    assert entries[-1].detail == "990 more before"


async def test_an_admin_neither_reads_nor_compresses_the_conversation_of_another(tmp_path: Path):
    said: list[JsonObject] = []
    for number in range(12):
        said += [
            {"role": "user", "content": f"Question {number} about the {SECRET} " + "and the importer " * 4},
            {"role": "assistant", "content": f"Answer {number} about the {SECRET} " * 4},
        ]
    async with team(tmp_path) as t, t.person("ada") as ada, t.person("dee") as dee:
        body: JsonObject = {"model": MODEL, "messages": [*said, {"role": "user", "content": "And now?"}]}
        assert (await ada.post("/v1/chat/completions", json=body)).status_code == 200
        (session,) = (await ada.get("/api/sessions")).json()["sessions"]
        paths = [
            f"/api/{kind}/{session['id']}{what}?force=true"
            for kind in ("compress", "compaction")
            for what in ("/simulate", "", "/undo")
        ]
        answers = [await dee.post(path, json={}) for path in paths]
        answers += [
            await dee.get(f"/api/sessions/{session['id']}/context{each}") for each in ("", "/0", "/summarized/0")
        ]
        assert {answer.status_code for answer in answers} == {404}
        assert not [answer for answer in answers if SECRET in answer.text]
        assert (await ada.get(f"/api/compress/{session['id']}/stats")).json()["compressions"] == 0
        assert (await ada.post(f"/api/compaction/{session['id']}?force=true", json={})).status_code == 200


async def test_files_that_the_provider_keeps_for_all_of_a_team_are_not_passed_on(tmp_path: Path):
    form = {"content-type": "multipart/form-data; boundary=b0"}
    async with team(tmp_path) as here, here.person("ada") as ada:
        shared = [
            await ada.post("/v1/files", content=b"--b0--", headers=form),
            await ada.get("/v1/files/file-1/content"),
            await ada.get("/v1/batches"),
        ]
        asked = len(here.provider.heard)
        spoken = await ada.post("/v1/audio/transcriptions", content=b'--b0\x00"file_id"--', headers=form)

    assert ([each.status_code for each in shared], asked) == ([403] * 3, 0)
    assert (spoken.status_code, here.provider.heard[0].body) == (200, b'--b0\x00"file_id"--')


async def _audit(client: httpx.AsyncClient) -> list[tuple[str, str, str, str]]:
    entries = (await client.get("/api/audit-log")).json()["entries"]
    return [(one["person"], one["action"], one["subject"], one["outcome"]) for one in entries]


async def test_an_admin_exports_and_erases_a_person_and_nothing_of_theirs_is_left(tmp_path: Path):
    async with team(tmp_path, RECORD) as t, t.person("ada") as ada, t.person("ben") as ben, t.person("dee") as dee:
        for client in (ada, ben):
            await ask(client, "work")
        async with t.at_pruner("ada") as at_pruner:
            prune_id = await pruned(at_pruner)
        await ada.post("/api/me/tokens", json={"label": "laptop"})
        (session,) = (await ada.get("/api/sessions")).json()["sessions"]
        gone = await t.caller("ada")

        exported = await dee.get("/api/team/people/ada/export")
        lines = [json.loads(line) for line in exported.text.splitlines()]
        kinds = {line["kind"] for line in lines}
        assert kinds >= {"person", "token", "session", "request", "decision", "original", "recording", "usage", "audit"}
        assert {line["id"] for line in lines if line["kind"] == "session"} == {session["id"]}
        assert {line["text"] for line in lines if line["kind"] == "original"} == {LONG}
        assert "kpt_" not in exported.text
        assert (await ada.get("/api/me/export")).text.count(SECRET) >= exported.text.count(SECRET) > 2
        assert (await ben.get("/api/team/people/ada/export")).status_code == 403

        assert (await dee.post("/api/team/people/ada/erase")).status_code == 400  # the token still works
        await dee.post("/api/team/people/ada/revoke")
        erased = (await dee.post("/api/team/people/ada/erase")).json()
        assert (erased["sessions"], erased["decisions"], erased["recordings"]) == (1, 1, 1) and erased["originals"] >= 2

        assert (await dee.get("/api/team/people/ada/export")).status_code == 400
        store = t.proxy.runtime.store
        assert await store.originals.page(gone, NEWEST, 10) == []
        assert await store.decisions.page(gone, 0, 10) == []
        assert await store.sessions.newest(gone, 10) == []
        assert not list((tmp_path / "0").rglob(f"{session['id']}.jsonl"))
        with pytest.raises(PruneIdNotFound):
            await store.originals.get(gone, prune_id)
        # The other person's own of the same conversation stays, and so do the figures.
        assert len((await ben.get("/api/sessions")).json()["sessions"]) == 1
        assert len(list((tmp_path / "0").rglob("ses_*.jsonl"))) == 1
        rows = (await dee.get("/api/report?by=person")).json()["rows"]
        assert {row["person"]: row["requests"] for row in rows} == {"": 1, "ben": 1}
        assert ("dee", "erase_person", "ada", "ok") in await _audit(dee)
        assert ("ben", "call", "/api/team/people/ada/export", "denied") in await _audit(dee)


@pytest.mark.parametrize("has_postgres", [False, True], ids=["sqlite", "postgres"])
async def test_where_a_team_shares_an_export_holds_what_is_kept_for_this_person_alone(
    tmp_path: Path, has_postgres: bool
):
    with postgres_server.serving() if has_postgres else nullcontext("") as server:
        url = postgres_server.url_of(server, tmp_path) if has_postgres else ""
        async with (
            teams(tmp_path, RECORD, TEAM + 'share = "team"\n', url) as (t,),
            t.person("ada") as ada,
            t.person("ben") as ben,
        ):
            sessions = set[str]()
            for client, name in ((ada, "ada"), (ben, "ben")):
                await ask(client, f"work of {name}")
                await client.post("/v1/compress", json={**conversation(), "session_id": f"help {name}"})
                async with t.at_pruner(name) as at_pruner:
                    await pruned(at_pruner, f"what did {name} do?")
                ids = {one["id"] for one in await listed(ada, "/api/sessions", "sessions", len(sessions) + 1)}
                if name == "ada":
                    sessions = ids
            exported = (await ada.get("/api/me/export")).text
            lines = [json.loads(line) for line in exported.splitlines()]

    kinds = Counter(line["kind"] for line in lines)
    assert {line["id"] for line in lines if line["kind"] == "session"} == sessions
    assert (kinds["session"], kinds["request"], kinds["recording"]) == (1, 1, 1)
    assert kinds["fact"] > 0
    # Of the conversation, of the one at the other gateway, and of the text that was pruned.
    assert (kinds["decision"], kinds["original"]) == (2, 3)
    assert {line["text"] for line in lines if line["kind"] == "original"} == {LONG}


async def test_people_are_managed_over_http_and_a_removed_name_can_be_given_again(tmp_path: Path):
    async with team(tmp_path) as t, t.person("dee") as dee, t.person("ben") as ben:
        made = await dee.post("/api/team/people", json={"name": "fay", "team": "x"})
        assert (made.status_code, made.json()["person"]["name"]) == (201, "fay")
        assert (await ben.post("/api/team/people", json={"name": "gus"})).status_code == 403
        assert (await dee.post("/api/team/people", json={"name": "fay"})).status_code == 400
        headers = {"authorization": f"Bearer {made.json()['token']}"}
        assert (await t.proxy.http.get("/api/me", headers=headers)).json()["person"] == "fay"
        rotated = (await dee.post("/api/team/people/fay/rotate")).json()["token"]
        assert rotated != made.json()["token"]

        assert (await dee.delete("/api/team/people/fay")).status_code == 400
        assert (await dee.post("/api/team/people/fay/revoke")).json()["revoked"] is True
        removed = (await dee.delete("/api/team/people/fay")).json()
        assert removed == {"name": "fay", "id": made.json()["person"]["id"], "removed": True}
        again = (await dee.post("/api/team/people", json={"name": "fay"})).json()
        assert again["person"]["id"] != removed["id"]


async def test_the_next_person_of_a_removed_name_has_nothing_of_the_one_before(tmp_path: Path):
    async with team(tmp_path, RECORD) as t, t.person("ada") as ada, t.person("dee") as dee:
        await ask(ada, "work")
        (session,) = (await ada.get("/api/sessions")).json()["sessions"]
        await dee.post("/api/team/people/ada/revoke")
        removed = (await dee.delete("/api/team/people/ada")).json()["id"]
        t.tokens["ada"] = (await dee.post("/api/team/people", json={"name": "ada", "team": "x"})).json()["token"]

        async with t.person("ada") as next_ada:
            await ask(next_ada, "work")
            (own,) = (await next_ada.get("/api/sessions")).json()["sessions"]
            exported = (await next_ada.get("/api/me/export")).text
            rows = (await next_ada.get("/api/report?by=person")).json()["rows"]
        assert session["id"] != own["id"]
        assert session["id"] not in exported and exported.count('"kind":"session"') == 1
        assert exported.count('"kind":"recording"') == 1
        assert [(row["person"], row["requests"]) for row in rows] == [("ada", 1)]

        # The id of the removed person still finds the data that is left.
        left = (await dee.get(f"/api/team/people/{removed}/export")).text
        assert session["id"] in left and own["id"] not in left
        erased = (await dee.post(f"/api/team/people/{removed}/erase")).json()
        assert (erased["sessions"], erased["recordings"]) == (1, 1)
        left = (await dee.get(f"/api/team/people/{removed}/export")).text
        assert {json.loads(line)["kind"] for line in left.splitlines()} <= {"person", "audit"}


async def test_a_token_of_ones_own_works_until_it_is_ended(tmp_path: Path):
    async with team(tmp_path) as t, t.person("ada") as ada, t.person("ben") as ben:
        made = (await ada.post("/api/me/tokens", json={"label": "laptop", "days": 7})).json()
        headers = {"authorization": f"Bearer {made['token']}"}
        assert (await t.proxy.http.get("/api/me", headers=headers)).json()["person"] == "ada"
        (listed_token,) = (await ada.get("/api/me/tokens")).json()["tokens"]
        assert (listed_token["label"], "token" in listed_token) == ("laptop", False)
        assert (await ben.delete(f"/api/me/tokens/{made['id']}")).status_code == 400
        assert (await ada.delete(f"/api/me/tokens/{made['id']}")).json() == {"id": made["id"], "ended": True}
        assert (await ada.get("/api/me/tokens")).json()["tokens"] == []
        too_long = (await ada.post("/api/me/tokens", json={"days": 3000})).json()
        lasts = datetime.fromisoformat(too_long["expires_at"]) - datetime.fromisoformat(too_long["created_at"])
        assert lasts.days == 90


async def test_what_only_a_deleted_session_used_is_expired_and_refusals_are_in_the_log(tmp_path: Path):
    async with team(tmp_path) as t, t.person("ada") as ada, t.person("ben") as ben, t.person("dee") as dee:
        await ask(ada, "work")
        async with t.at_pruner("ada") as at_pruner:
            prune_id = await pruned(at_pruner)
        (session,) = (await ada.get("/api/sessions")).json()["sessions"]
        (cut,) = [one for one in (await ada.get("/api/mask")).json()["masks"] if one["id"] != prune_id]

        assert (await ben.delete(f"/api/sessions/{session['id']}")).status_code == 404
        assert (await ben.delete(f"/api/mask/{cut['id']}")).status_code == 404
        deleted = (await ada.delete(f"/api/sessions/{session['id']}")).json()
        assert deleted == {"deleted": 1, "originals_deleted": 1}
        expired = await ada.get(f"/api/mask/{cut['id']}")
        assert (expired.status_code, expired.json()["error"]["reason"]) == (404, "expired")
        assert (await ada.get(f"/api/mask/{prune_id}")).status_code == 200
        assert (await ada.delete(f"/api/mask/{prune_id}")).json() == {"id": prune_id, "deleted": True}
        assert (await ada.get(f"/api/mask/{prune_id}")).json()["error"]["reason"] == "expired"
        assert (await ada.delete(f"/api/mask/{prune_id}")).status_code == 404
        # The conversation goes on: what was cut comes whole, or under an id that recovers.
        again = await ask(ada, "work")
        assert again.status_code == 200
        sent = t.provider.heard[-1].body.decode()
        for id in quoted_ids(json.loads(sent)["messages"][2]["content"]):
            assert (await ada.get(f"/api/mask/{id}")).status_code == 200
        log = await _audit(dee)
        assert ("ben", "delete_original", cut["id"], "unknown") in log
        assert ("ada", "recover", cut["id"], "expired") in log
        assert ("ada", "delete_session", session["id"], "ok") in log

"""Sessions over HTTP: who is who, what they cost, and what people may do with them."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.support.api.watching import MODEL, World, models, watching, world
from tests.support.services.store.making import a_metric, a_session

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.accounting import Account


def by_tokens(sessions: object) -> list[tuple[JsonValue, JsonValue]]:
    assert isinstance(sessions, list)
    return sorted((each["requests"], each["input_tokens"]) for each in sessions)


async def test_two_conversations_of_one_client_that_interleave_are_two_sessions(tmp_path: Path):
    async with world(tmp_path) as w:
        for turn in range(3):
            await asyncio.gather(
                w.ask("fix the parser", *["and then?"] * 2 * turn), w.ask("write the docs", *["go on"] * 2 * turn)
            )
        assert by_tokens(await w.sessions(6)) == [(3, 2700), (3, 2700)]


async def test_one_conversation_of_two_clients_is_one_session(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("fix the parser")
        await w.ask("fix the parser", "done", "thanks", user="another", temperature=0)
        assert by_tokens(await w.sessions(2)) == [(2, 1800)]


@pytest.mark.parametrize("name", ["team/feature", "a/b/c", "50%2F50", "/"])
async def test_a_session_whose_name_holds_a_slash_can_be_reached(name: str, tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("hi", name=name)
        (session,) = await w.sessions(1)
        assert isinstance(session, dict)
        for address in (quote(name, safe=""), str(session["id"])):
            found = await w.proxy.http.get(f"/api/sessions/{address}")
            assert (found.status_code, found.json()["id"]) == (200, session["id"])
        metrics = await w.proxy.http.get(f"/api/sessions/{quote(name, safe='')}/metrics")
        assert (metrics.status_code, len(metrics.json()["metrics"])) == (200, 1)
        assert (await w.proxy.http.get(f"/api/sessions/{quote(name, safe='')}/no-such")).status_code == 404


async def test_who_names_its_session_has_it_whatever_it_says(tmp_path: Path):
    async with world(tmp_path) as w:
        await asyncio.gather(
            w.ask("hi", name="mine"),
            w.ask("bye", name="mine"),
            w.ask("hi", metadata={"session_id": "mine"}),
            w.ask("hi", external_session_id="yours"),
            w.ask("hi"),
        )
        found = {(each["name"], each["requests"]) for each in await w.sessions(5)}
        assert found == {("mine", 3), ("yours", 1), ("", 1)}
        assert (await w.get("/api/sessions/mine"))["requests"] == 3


async def test_a_session_that_somebody_made_is_found_by_its_id(tmp_path: Path):
    async with world(tmp_path) as w:
        made = (await w.proxy.http.post("/api/sessions", json={"title": "the parser"})).json()
        await w.ask("hi", name=made["id"])
        await w.sessions(1)
        found = await w.get(f"/api/sessions/{made['id']}")
    assert (found["title"], found["requests"], found["model"]) == ("the parser", 1, MODEL)


async def test_a_session_that_somebody_made_under_a_name_is_found_by_its_name(tmp_path: Path):
    async with world(tmp_path) as w:
        made = await w.proxy.http.post("/api/sessions", json={"title": "t", "external_session_id": "mine"})
        await w.ask("hi", name="mine")
        (found,) = await w.sessions(1)
    assert made.status_code == 201
    assert (found["id"], found["title"], found["name"]) == (made.json()["id"], "t", "mine")


async def test_sessions_survive_a_restart(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("hi")
        before = await w.sessions(1)
    async with world(tmp_path) as w:
        assert await w.sessions(1) == before
        await w.ask("hi", "hello", "and now?")
        assert by_tokens(await w.sessions(2)) == [(2, 1800)]


async def test_a_session_says_how_full_its_window_is(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("hi", name="mine")
        await w.sessions(1)
        health = await w.get("/api/session/mine/health")
    assert {name: health[name] for name in ("level", "percent", "tokens", "max_context", "counted_by")} == {
        "level": "warning",
        "percent": 90.0,
        "tokens": 900,
        "max_context": 1000,
        "counted_by": "provider",
    }


async def test_a_window_of_unknown_size_is_unknown_and_not_invented(tmp_path: Path):
    async with world(tmp_path, toml="# no models") as w:
        await w.ask("hi", name="mine")
        await w.sessions(1)
        health = await w.get("/api/session/mine/health")
    assert (health["level"], health["percent"], health["tokens"]) == ("unknown", None, 900)
    assert "max_context_size" in str(health["hint"])


async def test_the_share_is_of_the_newest_request_and_never_of_the_sum(tmp_path: Path):
    async with world(tmp_path) as w:
        for _ in range(4):
            await w.ask("hi", name="mine")
        await w.sessions(4)
        assert (await w.get("/api/session/mine/health"))["percent"] == 90.0
        assert (await w.get("/api/sessions/mine"))["input_tokens"] == 3600


async def test_a_title_can_be_changed_and_is_one_printable_line(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("hi", name="mine")
        await w.sessions(1)
        renamed = await w.proxy.http.patch("/api/sessions/mine", json={"title": " <b>it</b>\n\x00is\u202e mine "})
    assert (renamed.status_code, renamed.json()["title"]) == (200, "<b>it</b>  is  mine")


async def test_one_or_many_or_all_sessions_can_be_deleted(tmp_path: Path):
    async def names(w: World) -> set[JsonValue]:
        return {each["name"] for each in await w.sessions()}

    async with world(tmp_path) as w:
        http = w.proxy.http
        for name in "abcde":
            await w.ask("hi", name=name)
        ids = {each["name"]: each["id"] for each in await w.sessions(5)}
        one, two = ({"deleted": n, "originals_deleted": 0} for n in (1, 2))
        assert (await http.delete("/api/sessions/a")).json() == one
        many: JsonObject = {"ids": [ids["b"], "c", "nobody"]}
        assert (await http.request("DELETE", "/api/sessions", json=many)).json() == two
        assert await names(w) == {"d", "e"}
        assert (await w.get("/api/export/json"))["metrics"] != []
        assert (await http.request("DELETE", "/api/sessions", json={"all": True})).json() == two
        assert await names(w) == set()
        assert (await w.get("/api/export/json"))["metrics"] == []
        await w.ask("hi", name="a")
        assert [each["requests"] for each in await w.sessions(1)] == [1]


async def test_sessions_come_in_pages(tmp_path: Path):
    async with world(tmp_path) as w:
        for name in "abcde":
            await w.ask("hi", name=name)
        await w.sessions(5)
        first = await w.get("/api/sessions?limit=3")
        rest = await w.get(f"/api/sessions?limit=3&after={first['after']}")
    found = [each["name"] for page in (first, rest) for each in page["sessions"]]  # type: ignore[union-attr, index, call-overload]
    assert (found, first["total"], rest["after"]) == (list("edcba"), 5, None)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/api/sessions/nobody", None, 404, "session_not_found"),
        ("PATCH", "/api/sessions/nobody", {"title": "x"}, 404, "session_not_found"),
        ("DELETE", "/api/sessions/nobody", None, 404, "session_not_found"),
        ("GET", "/api/session/nobody/health", None, 404, "session_not_found"),
        ("GET", "/api/export/csv?session=nobody", None, 404, "session_not_found"),
        ("GET", "/api/export/json?session=nobody", None, 404, "session_not_found"),
        ("GET", "/api/sessions?limit=0", None, 400, "invalid_params"),
        ("GET", "/api/sessions?limit=x", None, 400, "invalid_params"),
        ("GET", "/api/sessions?limt=1", None, 400, "invalid_params"),
        ("GET", "/api/sessions?after=nobody", None, 404, "session_not_found"),
        ("DELETE", "/api/sessions", {}, 400, "invalid_params"),
        ("DELETE", "/api/sessions", {"all": True, "ids": ["a"]}, 400, "invalid_params"),
        ("DELETE", "/api/sessions", {"ids": [1]}, 400, "invalid_params"),
        ("POST", "/api/sessions", {"title": "x" * 201}, 400, "invalid_params"),
        ("POST", "/api/sessions", {"titel": "x"}, 400, "invalid_params"),
        ("POST", "/api/sessions", ["x"], 400, "invalid_params"),
        ("PUT", "/api/sessions", {}, 405, "method_not_allowed"),
    ],
)
async def test_a_wrong_question_gets_an_error_with_a_status(
    tmp_path: Path, method: str, path: str, body: JsonValue, status: int, code: str
):
    async with world(tmp_path) as w:
        answer = await w.proxy.http.request(method, path, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_a_store_that_cannot_be_read_is_an_error_and_chat_goes_on(tmp_path: Path):
    home = tmp_path / "home"
    home.write_text("in the way")
    async with world(home) as w:
        await w.ask("hi")
        assert (await w.proxy.http.get("/api/sessions")).status_code == 503
        assert (await w.proxy.http.post("/api/sessions", json={})).status_code == 503


async def test_the_newest_requests_of_a_session_are_shown_and_no_others(tmp_path: Path):
    async with world(tmp_path) as w:
        for turn in range(4):
            await w.ask(f"hi {turn}", name="mine")
        await w.ask("hello", name="yours")
        await w.sessions(5)
        all_of_it = (await w.get("/api/export/json?session=mine"))["metrics"]
        shown = await w.get("/api/sessions/mine/metrics?limit=3")
        refused = await w.proxy.http.get("/api/sessions/mine/metrics?limit=501")
        unknown = await w.proxy.http.get("/api/sessions/nobody/metrics")

    assert isinstance(all_of_it, list)
    assert shown == {"metrics": all_of_it[1:]}
    assert (refused.status_code, unknown.status_code) == (400, 404)


@pytest.mark.parametrize(
    ("words", "found"),
    [("100%", ["100%_done"]), ("%_d", ["100%_done"]), ("DONE", ["100%_done"]), ("evil", 2), ("\\", [])],
)
async def test_sessions_are_found_by_words_of_theirs(tmp_path: Path, words: str, found: list[str] | int):
    async with world(tmp_path) as w:
        for name in ("100%_done", "begun"):
            await w.ask("hi", name=name)
        await w.sessions(2)
        answer = (await w.proxy.http.get("/api/sessions", params={"q": words})).json()

    names = [session["name"] for session in answer["sessions"]]
    assert (len(names) if isinstance(found, int) else names) == found
    assert answer["total"] == len(names)


async def test_a_viewer_is_told_what_all_sessions_come_to(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("hi", name="mine")
        await w.ask("hello", name="yours")
        sessions = await w.sessions(2)
        told = await w.proxy.runtime.sessions.snapshot(LOCAL)

    totals = told["totals"]
    assert (totals.sessions, totals.requests, totals.input_tokens) == (2, 2, 1800)
    assert totals.cost_usd == pytest.approx(sum(float(str(each["cost_usd"])) for each in sessions))


async def test_whoever_watches_is_told_of_titles_and_of_sessions_that_are_gone(tmp_path: Path):
    async with world(tmp_path) as w, watching(w.proxy.port) as watcher:
        for name in ("mine", "yours"):
            await w.ask("hi", name=name)
        await w.sessions(2)
        mine = await w.get("/api/sessions/mine")
        await w.proxy.http.patch("/api/sessions/mine", json={"title": "Parser"})
        await w.proxy.http.delete("/api/sessions/mine")
        await w.proxy.http.request("DELETE", "/api/sessions", json={"all": True})
        gone = await watcher.until("session_deleted", 2)

    (renamed,) = watcher.said("session_renamed")
    assert renamed["session"] == {**mine, "title": "Parser"}
    assert [event["session_id"] for event in gone] == [mine["id"], None]


async def test_a_long_list_is_packed_for_whoever_can_unpack_it(tmp_path: Path):
    async with world(tmp_path) as w:
        for turn in range(12):
            await w.ask(f"{turn}: and now?", name="mine")
        await w.sessions(12)
        path = "/api/sessions/mine/metrics"
        packed = await w.proxy.http.get(path, headers={"accept-encoding": "br, gzip;q=0.5"})
        plain = await w.proxy.http.get(path, headers={"accept-encoding": "gzip; q=0.0, identity"})
        short = await w.proxy.http.get(f"{path}?limit=1", headers={"accept-encoding": "gzip"})
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "accept-encoding")
    assert int(packed.headers["content-length"]) < len(packed.content) / 4
    assert packed.content == plain.content
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in short.headers


async def test_savings_are_summed_by_period_model_and_project(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("<cwd>/src/shop</cwd> fix the parser", name="mine")
        await w.ask("hi", name="yours")
        await w.sessions(2)
        found = await w.get("/api/savings?timezone=Europe/Paris")
    assert found["currency"] == {"currency": "USD", "currency_per_usd": 1.0}
    periods, chosen = found["periods"], found["range"]
    assert isinstance(periods, dict)
    assert isinstance(chosen, dict)
    assert {name: period["requests"] for name, period in periods.items()} == {"today": 2, "week": 2, "month": 2}
    assert periods["today"]["cost_usd"] == pytest.approx(2 * 0.000824)
    assert (chosen["totals"]["sessions"], [each["model"] for each in chosen["models"]]) == (2, [MODEL])
    assert sum(each["requests"] for each in chosen["projects"]) == 2


async def test_a_range_of_days_holds_its_first_and_its_last_day_and_no_other(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("hi")
        await w.sessions(1)
        today = (await w.get("/api/savings?timezone=UTC"))["range"]
        assert isinstance(today, dict)
        last = today["until"]
        found = await w.get(f"/api/savings?since={last}&until={last}&timezone=UTC")
        before = await w.get("/api/savings?since=2020-01-01&until=2020-01-31&timezone=Nowhere/At-all")
        refused = await w.proxy.http.get("/api/savings?since=yesterday")
    ranges = [each["range"] for each in (found, before)]
    assert [each["totals"]["requests"] for each in ranges if isinstance(each, dict)] == [1, 0]
    assert (refused.status_code, "since" in refused.text) == (400, True)


async def test_money_is_shown_in_the_currency_of_the_settings(tmp_path: Path):
    toml = models() + '[display]\ncurrency = "EUR"\ncurrency_per_usd = 0.9\n'
    async with world(tmp_path, toml) as w:
        assert (await w.get("/api/savings"))["currency"] == {"currency": "EUR", "currency_per_usd": 0.9}


async def test_a_session_that_lost_says_on_what(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("hi", name="mine")
        await w.sessions(1)
        store = w.proxy.runtime.store.sessions
        (metric,) = await store.newest_metrics(LOCAL, 1)
        account = Account(1000, 1300, recovery_tokens=200, net_saved_tokens=-500)
        await store.write([], [replace(metric, id="req_lost", account=account)])
        (session,) = await w.sessions(2)
    assert session["losses"] == {"tool": 300, "recovered": 200}


async def test_the_status_line_says_window_savings_and_cache(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("hi", name="mine")
        await w.sessions(1)
        mine = await w.get("/api/statusline?session=mine")
        other = await w.get("/api/statusline?session=nobody")
    assert isinstance(mine["percent"], float)
    assert str(mine["text"]).startswith(f"window {int(mine['percent'])}% · saved ")
    assert (other["percent"], other["cache_left_s"]) == (None, None)
    assert str(other["text"]).startswith("saved ")


@pytest.mark.parametrize("is_all", [True, False])
async def test_ten_thousand_sessions_are_deleted_and_counted(tmp_path: Path, is_all: bool):
    async with world(tmp_path) as w:
        store = w.proxy.runtime.store.sessions
        for start in range(0, 10_000, 1000):
            ids = [f"ses_{number:013}abc" for number in range(start, start + 1000)]
            metrics = [a_metric(f"req_{id}_{n}", id, at=time.time()) for id in ids for n in range(3)]
            await store.write([a_session(id, at=time.time()) for id in ids], metrics)
        every = [f"ses_{number:013}abc" for number in range(10_000)]
        answer = await w.proxy.http.request("DELETE", "/api/sessions", json={"all": True} if is_all else {"ids": every})
        left = await store.count(LOCAL)

    assert (answer.status_code, answer.json()) == (200, {"deleted": 10_000, "originals_deleted": 0})
    assert left == 0

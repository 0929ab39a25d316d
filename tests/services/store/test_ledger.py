"""Sessions and requests as the file keeps them."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes import Clock
from tests.services.store.making import an_original, opened

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store import SessionRecord, SessionStore
from kimi_proxy.services.store.sqlite.sessions import KEEP_S
from kimi_proxy.services.store.sqlite.store import store_path

DAY_S = 86_400.0


def a_session(id: str = "ses_a", at: float = 100.0, **fields: str) -> SessionRecord:
    named = {"name": "", "title": "", "provider": "p", "model": "m"} | fields
    return SessionRecord(id, named["name"], named["title"], named["provider"], named["model"], at, at)


def a_metric(id: str = "req_1", session: str = "ses_a", at: float = 100.0) -> Metric:
    return Metric(
        id=id,
        session=session,
        at=at,
        provider="p",
        model="m",
        api="chat",
        tokens_estimated=90,
        tokens_saved=5,
        reasons=("below_threshold", "failures"),
        max_context=1000,
        status=200,
        outcome="ok",
        finish="stop",
        input_tokens=100,
        cached_tokens=40,
        output_tokens=7,
        cost_usd=0.25,
        first_token_ms=12,
        duration_ms=34,
    )


async def all_metrics(session_store: SessionStore, session: str | None = None) -> list[Metric]:
    return [metric for _, metric in await session_store.metrics(session, 0, 10_000)]


async def test_what_was_written_comes_back_after_a_restart(tmp_path: Path) -> None:
    bare = replace(
        a_metric("req_2"), input_tokens=None, cached_tokens=None, output_tokens=None, cost_usd=None, reasons=()
    )
    async with opened(tmp_path) as store:
        await store.sessions.write([a_session(name="mine")], [a_metric(), bare])
    async with opened(tmp_path) as store:
        assert await all_metrics(store.sessions) == [a_metric(), bare]
        assert await store.sessions.get("ses_a") == replace(
            a_session(name="mine"),
            requests=2,
            input_tokens=100,
            cached_tokens=40,
            output_tokens=7,
            tokens_saved=10,
            cost_usd=0.25,
            cost_before_usd=0.25,
        )
        assert await store.sessions.newest_metric("ses_a") == bare


async def test_what_is_written_twice_counts_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for _ in range(3):
            await store.sessions.write([a_session()], [a_metric()])
        session = await store.sessions.get("ses_a")
        assert session is not None
        assert (session.requests, session.input_tokens, session.cost_usd) == (1, 100, 0.25)
        assert await all_metrics(store.sessions) == [a_metric()]


async def test_a_cost_that_nobody_knows_is_not_zero(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.sessions.write([a_session()], [replace(a_metric(), cost_usd=None)])
        session = await store.sessions.get("ses_a")
    assert session is not None
    assert session.cost_usd is None


async def test_a_request_of_a_session_that_was_deleted_begins_it_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.sessions.write([a_session(title="old")], [])
        assert await store.sessions.delete(["ses_a"]) == 1
        await store.sessions.write([], [a_metric()])
        session = await store.sessions.get("ses_a")
    assert session is not None
    assert (session.title, session.requests, session.model) == ("", 1, "m")


async def test_a_session_talks_to_whom_its_newest_request_talked(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.sessions.write(
            [a_session(at=50.0)], [a_metric(), replace(a_metric("req_2", at=200.0), model="larger")]
        )
        session = await store.sessions.get("ses_a")
    assert session is not None
    assert (session.model, session.created, session.last_used) == ("larger", 50.0, 200.0)


async def test_sessions_come_in_pages_the_last_used_first(tmp_path: Path) -> None:
    sessions = [a_session(f"ses_{n}", at=float(n // 2)) for n in range(9)]
    async with opened(tmp_path) as store:
        await store.sessions.write(sessions, [])
        first = await store.sessions.newest(4)
        second = await store.sessions.newest(4, (first[-1].last_used, first[-1].id))
        third = await store.sessions.newest(4, (second[-1].last_used, second[-1].id))
        assert await store.sessions.count() == 9
    assert [session.id for session in (*first, *second, *third)] == [f"ses_{n}" for n in reversed(range(9))]


async def test_requests_come_by_session_and_in_their_order(tmp_path: Path) -> None:
    metrics = [a_metric(f"req_{n}", f"ses_{n % 2}", float(n)) for n in range(20)]
    async with opened(tmp_path) as store:
        await store.sessions.write([], metrics)
        assert await all_metrics(store.sessions, "ses_1") == metrics[1::2]
        assert await store.sessions.newest_metrics(3) == metrics[-3:]
        page = await store.sessions.metrics(None, 0, 7)
        assert [m for _, m in await store.sessions.metrics(None, page[-1][0], 7)] == metrics[7:14]


async def test_renaming_and_deleting_touch_nobody_else(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session_store = store.sessions
        await session_store.write([a_session("ses_a"), a_session("ses_b")], [a_metric(), a_metric("req_2", "ses_b")])
        assert await session_store.rename("ses_a", 'it\'s "mine"; DROP TABLE sessions --')
        assert not await session_store.rename("ses_x", "nobody")
        assert await session_store.delete(["ses_b", "ses_x", "' OR 1=1 --"]) == 1
        assert [(s.id, s.title) for s in await session_store.newest(10)] == [
            ("ses_a", 'it\'s "mine"; DROP TABLE sessions --')
        ]
        assert await all_metrics(session_store) == [a_metric()]
        assert await session_store.delete_all() == 1
        assert (await session_store.count(), await all_metrics(session_store)) == (0, [])


async def test_what_is_older_than_half_a_year_goes(tmp_path: Path) -> None:
    clock = Clock(400 * DAY_S)
    old = clock.at - KEEP_S - DAY_S
    async with opened(tmp_path, now=clock) as store:
        await store.sessions.write([a_session("ses_old", old)], [a_metric("req_old", "ses_old", old)])
        await store.sessions.write([a_session("ses_new", clock.at)], [a_metric("req_new", "ses_new", clock.at)])
        assert [m.id for m in await all_metrics(store.sessions)] == ["req_new"]
        assert [s.id for s in await store.sessions.newest(10)] == ["ses_new"]


async def test_a_clock_that_leaps_ahead_takes_nothing_along(tmp_path: Path) -> None:
    clock = Clock(400 * DAY_S)
    async with opened(tmp_path, now=clock) as store:
        await store.originals.keep(an_original())
        await store.sessions.write([a_session("ses_a", clock.at)], [a_metric(at=clock.at)])
        clock.advance(10 * 365 * DAY_S)
        await store.sessions.write([], [a_metric("req_2", at=clock.at)])
        assert len(await all_metrics(store.sessions)) == 2


async def test_the_tables_of_the_contract_exist(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        original = an_original(b"what a tool said")
        await store.originals.keep(original)
    with closing(sqlite3.connect(store_path(tmp_path))) as connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(sessions)")}
        logged = {row[1] for row in connection.execute("PRAGMA table_info(compression_log)")}
        masked = connection.execute("SELECT handle FROM masked_content").fetchall()
    assert "memory_context" in columns
    assert {"session_id", "timestamp", "original_tokens", "compressed_tokens", "compression_ratio"} <= logged
    assert masked == [(original.id,)]


async def test_a_file_of_the_first_schema_is_brought_up_and_keeps_its_originals(tmp_path: Path) -> None:
    original = an_original()
    async with opened(tmp_path) as store:
        await store.originals.keep(original)
    with closing(sqlite3.connect(store_path(tmp_path), isolation_level=None)) as connection:
        for view in ("masked_content", "memory_metrics"):
            connection.execute(f"DROP VIEW {view}")
        for table in ("sessions", "metrics", "compression_log", "pin", "memory_segments"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute("PRAGMA user_version = 1")
    async with opened(tmp_path) as store:
        assert await store.originals.get("local", original.id) == original
        await store.sessions.write([a_session()], [a_metric()])
        assert await all_metrics(store.sessions) == [a_metric()]


def cannot_write(path: Path) -> Callable[[], None]:
    path.write_text("in the way")
    return path.unlink


async def test_a_store_that_cannot_be_written_says_so_and_heals(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make_room = cannot_write(home)
    async with opened(home, timeout_s=2.0) as store:
        with pytest.raises(StoreUnavailable):
            await store.sessions.write([a_session()], [a_metric()])
        assert "degraded" in (await store.usage()).state
        make_room()
        await store.sessions.write([a_session()], [a_metric()])
        assert await all_metrics(store.sessions) == [a_metric()]

"""Lists, reports and exports come from a streaming replica; one that lags or is away is not waited for."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from tests.support.fakes import Clock
from tests.support.services.store.making import MAX_BYTES, TTL_S, a_metric, a_session, an_original
from tests.support.services.store.postgres_server import PostgresServer, controlled, standby, url_of, url_on

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import ConfigError
from kimi_proxy.services.store.postgres.database import Pooling, PostgresDatabase
from kimi_proxy.services.store.postgres.reports import MAX_LAG_S, ReportReader
from kimi_proxy.services.store.postgres.store import PostgresStore
from kimi_proxy.services.store.protocols import DecisionRecord
from kimi_proxy.services.store.sql import WallClock
from kimi_proxy.services.store.team import AuditEntry, UsageKey, UsageRange

PATIENCE_S = 60


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    with controlled() as server:
        yield server


@pytest.fixture(scope="module")
def replica(primary: PostgresServer) -> Iterator[PostgresServer]:
    with standby(primary, is_synchronous=False) as server:
        yield server


@asynccontextmanager
async def opened(primary: PostgresServer, report_url: str, home: Path) -> AsyncIterator[PostgresStore]:
    pooling = Pooling(report_url=report_url and url_on(report_url, home))
    url = url_of(primary.url, home)
    store = await PostgresStore.open(url, ttl_s=TTL_S, max_bytes=MAX_BYTES, timeout_s=30.0, pooling=pooling)
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def paused(replica: PostgresServer) -> Iterator[None]:
    """Let the replica receive what is written, and show none of it."""
    with psycopg.connect(replica.url, autocommit=True) as connection:
        connection.execute("SELECT pg_wal_replay_pause()")
        while connection.execute("SELECT pg_get_wal_replay_pause_state()").fetchone() != ("paused",):
            pass
        try:
            yield
        finally:
            connection.execute("SELECT pg_wal_replay_resume()")


async def report(store: PostgresStore) -> list[object]:
    """Return whatever is read for lists, reports, exports and the dashboard's history."""
    sessions = store.sessions
    return [
        await sessions.newest(LOCAL, 9),
        await sessions.search(LOCAL, "a plan", 9),
        await sessions.count(LOCAL),
        await sessions.totals(LOCAL),
        await sessions.memory_totals(LOCAL),
        await sessions.newest_metrics(LOCAL, 9),
        await sessions.metrics(LOCAL, None, 0, 9),
        await sessions.accounts(LOCAL, 0.0),
        await store.team.usage("1970-01-01"),
        await store.team.audit(2**62, 9),
    ]


async def fill(store: PostgresStore, number: int = 1) -> None:
    await store.sessions.write([a_session()], [a_metric(f"req_{number}")])
    await store.sessions.rename(LOCAL, "ses_a", f"a plan {number}")
    await store.team.add_audit([AuditEntry(float(number), "ada", "recover", f"prn_{number}")])


async def test_reports_come_from_the_replica_and_hold_what_was_just_written(
    primary: PostgresServer, replica: PostgresServer, tmp_path: Path
) -> None:
    async with opened(primary, replica.url, tmp_path) as store, opened(primary, "", tmp_path) as plain:
        for number in range(1, 6):
            await fill(store, number)
            assert await report(store) == await report(plain)
        assert (await store.usage()).report_fallbacks == 0
        with psycopg.connect(replica.url) as connection:
            rows = connection.execute(
                "SELECT query FROM pg_stat_activity WHERE application_name = 'kimi-proxy' AND query LIKE '%FROM %'"
            ).fetchall()
        assert any("sessions" in query or "audit_log" in query for (query,) in rows)


async def test_a_replica_that_lags_answers_for_ten_seconds_and_then_the_primary_does(
    primary: PostgresServer, replica: PostgresServer, tmp_path: Path
) -> None:
    clock, url = Clock(), url_of(primary.url, tmp_path)
    async with opened(primary, "", tmp_path) as plain:
        await fill(plain)
        walls = WallClock(lambda: 0.0)
        first = PostgresDatabase(url, walls, 30.0)
        second = PostgresDatabase(url_on(replica.url, tmp_path), walls, 30.0, is_replica=True)
        await first.open()
        await second.open()
        reader, titles = ReportReader(first, second, clock), "SELECT title FROM sessions"
        try:
            assert (await reader.rows(titles), reader.fallbacks) == ([("a plan 1",)], 0)
            with paused(replica):
                await fill(plain, 2)
                clock.advance(MAX_LAG_S - 1)
                assert (await reader.rows(titles), reader.fallbacks) == ([("a plan 1",)], 0)
                clock.advance(2)
                assert (await reader.rows(titles), reader.fallbacks) == ([("a plan 2",)], 1)
            async with asyncio.timeout(PATIENCE_S):
                while not await _answers_again(reader, titles):
                    pass
        finally:
            await reader.close()
            await first.close()


async def _answers_again(reader: ReportReader, statement: str) -> bool:
    """Return whether the replica answered."""
    before = reader.fallbacks
    assert await reader.rows(statement) == [("a plan 2",)]
    return reader.fallbacks == before


async def test_recovery_decisions_and_budgets_never_read_from_a_replica(
    primary: PostgresServer, replica: PostgresServer, tmp_path: Path
) -> None:
    original, use = an_original(), UsageKey("2026-11-18", "ada", "x", "m")
    async with opened(primary, replica.url, tmp_path) as store:
        await report(store)  # so that an older state of the replica would do
        with paused(replica):
            await store.originals.keep(original)
            await store.decisions.add(LOCAL, [DecisionRecord(b"1", "pruned", b"less", (original.id,))])
            await fill(store)
            spent = [await store.team.admit(use, [UsageRange(use.day)], lambda used: True) for _ in range(2)]

            assert await store.originals.get(LOCAL, original.id) == original
            assert set(await store.decisions.get(LOCAL, [b"1"])) == {b"1"}
            assert [one[0].requests for one in spent] == [0, 1]
            session, newest = (
                await store.sessions.get(LOCAL, "ses_a"),
                await store.sessions.newest_metric(LOCAL, "ses_a"),
            )
            assert session is not None and newest == replace(a_metric(), id="req_1")
            assert await store.sessions.own_ids(LOCAL, ["ses_a"]) == {"ses_a"}
            assert await store.sessions.last_sent(LOCAL, "ses_a") == newest.at


async def test_a_replica_that_is_away_is_done_without_until_it_is_back(primary: PostgresServer, tmp_path: Path) -> None:
    with standby(primary, is_synchronous=False) as replica:
        async with opened(primary, replica.url, tmp_path) as store, opened(primary, "", tmp_path) as plain:
            await fill(store)
            assert await report(store) == await report(plain)
            replica.crash()
            await fill(store, 2)
            assert await report(store) == await report(plain)
            away = (await store.usage()).report_fallbacks
            assert away > 0 and (await store.usage()).state == "ok"
            replica.start()
            async with asyncio.timeout(PATIENCE_S):
                while (before := (await store.usage()).report_fallbacks) >= 0:
                    assert await report(store) == await report(plain)
                    if (await store.usage()).report_fallbacks == before:
                        break
                    await asyncio.sleep(0.1)
            with psycopg.connect(replica.url, autocommit=True) as connection:
                connection.execute("SELECT pg_promote()")
            await fill(store, 3)
            assert await report(store) == await report(plain)  # from the primary: that one is no replica any more
            assert (await store.usage()).report_fallbacks > before


def test_the_address_of_the_replica_needs_a_database_and_no_password_in_the_file(tmp_path: Path) -> None:
    urls = {"KIMI_PROXY_DATABASE_URL": "postgresql://a/x", "KIMI_PROXY_DATABASE_REPORT_URL": "postgresql://u:p@b/x"}
    assert parse("", urls, tmp_path).store.report_url == "postgresql://u:p@b/x"
    with pytest.raises(ConfigError, match="KIMI_PROXY_DATABASE_URL"):
        parse("", {"KIMI_PROXY_DATABASE_REPORT_URL": "postgresql://b/x"}, tmp_path)
    with pytest.raises(ConfigError, match="KIMI_PROXY_DATABASE_REPORT_URL"):
        parse('[store]\nreport_url = "postgresql://u:p@b/x"\n', urls, tmp_path)

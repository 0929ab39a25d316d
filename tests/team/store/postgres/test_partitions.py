"""Requests, memory and tombstones lie in partitions that are made ahead and dropped as a whole."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from tests.support.fakes import Clock
from tests.support.services.store.making import TTL_S, a_metric, a_session, all_metrics, an_original, reason
from tests.support.services.store.postgres_server import opened, serving, url_of

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.features.chat.context import Context, Layout, MemoryFound, Sink
from kimi_proxy.team.store.postgres.store import PostgresStore

DAY_S = 86_400.0
LAYOUT = Layout((MemoryFound("@recall", 1, 9, "be brief"),), (), Sink(0, 0, None), is_reminded=False)
METRIC = replace(a_metric(at=Clock().at), context=Context(1, 9, 1, 1, LAYOUT))
# How a server of the version before records a request.
OLD_METRIC = """INSERT INTO metrics (id, session_id, at, provider, model, api, tokens_estimated, tokens_saved, reasons,
  status, outcome, finish) VALUES (%s, 'ses_a', %s, 'p', 'm', 'chat', 1, 0, '', 200, 'ok', 'stop')
  ON CONFLICT (id) DO NOTHING"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as url:
        yield url


def places(url: str, table: str) -> list[str]:
    """Return the table that each row of `table` lies in, without the dates in its name."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(f"SELECT tableoid::regclass::text FROM {table} ORDER BY 1").fetchall()
    return sorted("partition" if name[-1].isdigit() else "table" for (name,) in rows)


def children(url: str, table: str) -> list[str]:
    with psycopg.connect(url) as connection:
        query = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass ORDER BY 1"
        return [name for (name,) in connection.execute(query, (table,)).fetchall()]


async def write(store: PostgresStore, *ids: str, at: float = METRIC.at) -> None:
    await store.sessions.write([a_session(at=at)], [replace(METRIC, id=id, at=at) for id in ids])


async def test_requests_before_and_after_a_partition_are_read_as_one_list(server: str, tmp_path: Path) -> None:
    url = url_of(server, tmp_path)
    async with opened(server, tmp_path, Clock()) as store:
        await write(store, "req_1", "req_2")
        await store.sweep()
        await write(store, "req_3")
        with psycopg.connect(url) as old:
            old.execute(OLD_METRIC, ("req_4", METRIC.at))
        # What is written twice is there once, wherever it was written first.
        await write(store, "req_1", "req_3", "req_4", "req_5")

        assert [metric.id for metric in await all_metrics(store.sessions)] == [f"req_{n}" for n in range(1, 6)]
        assert places(url, "metrics") == ["partition"] * 2 + ["table"] * 3
        assert places(url, "memory_segments") == ["table"]
        found = await store.sessions.get(LOCAL, "ses_a")
        assert found is not None and found.requests == 4  # that of the other server is in its own sums
        assert await store.sessions.delete(LOCAL, ["ses_a"]) == ["ses_a"]
        assert places(url, "metrics") == []


async def test_another_server_finds_the_partitions_when_it_starts(server: str, tmp_path: Path) -> None:
    async with opened(server, tmp_path, Clock()) as store:
        await store.sweep()
    async with opened(server, tmp_path, Clock()) as store:
        await write(store, "req_1")
    assert places(url_of(server, tmp_path), "metrics") == ["partition"]
    assert places(url_of(server, tmp_path), "memory_segments") == ["partition"]


async def test_a_partition_is_dropped_when_its_last_request_is_half_a_year_old(server: str, tmp_path: Path) -> None:
    url, clock = url_of(server, tmp_path), Clock()
    async with opened(server, tmp_path, clock) as store:
        await store.sweep()
        first = children(url, "metrics")
        await write(store, "req_1")
    async with opened(server, tmp_path, Clock(clock.at + 179 * DAY_S)) as store:
        await store.sweep()
        assert [metric.id for metric in await all_metrics(store.sessions)] == ["req_1"]
        assert children(url, "metrics")[:2] == first and len(children(url, "metrics")) == 4
    async with opened(server, tmp_path, Clock(clock.at + 211 * DAY_S)) as store:
        await store.sweep()
        assert await all_metrics(store.sessions) == []
        assert first[0] not in children(url, "metrics") and first[1] in children(url, "metrics")


async def test_a_report_that_reads_a_partition_puts_its_drop_off_and_holds_nobody_up(
    server: str, tmp_path: Path
) -> None:
    url, clock = url_of(server, tmp_path), Clock()
    async with opened(server, tmp_path, clock) as store:
        await store.sweep()
        first = children(url, "metrics")[0]
    late = Clock(clock.at + 400 * DAY_S)
    async with opened(server, tmp_path, late) as store:
        with psycopg.connect(url) as report:
            report.execute("SELECT count(*) FROM metrics")  # and its transaction goes on
            await store.sweep()
            assert first in children(url, "metrics")
            await write(store, "req_1", at=late.at)
            assert (await store.usage()).state == "ok"
        await store.sweep()
        assert first not in children(url, "metrics")
        assert [metric.id for metric in await all_metrics(store.sessions)] == ["req_1"]


async def test_tombstones_lie_in_partitions_and_say_expired_for_thirty_days(server: str, tmp_path: Path) -> None:
    url, clock, original, late = url_of(server, tmp_path), Clock(), an_original(), an_original(b"late")
    async with opened(server, tmp_path, clock) as store:
        await store.originals.keep(original)
        await store.originals.keep(late)
        await store.originals.delete(LOCAL, [original.id])  # before there is a partition
        clock.advance(TTL_S + 61)
        assert await store.sweep() == 1
        assert places(url, "tombstone") == ["partition", "table"]
    for days, expected in ((29, "expired"), (31, "unknown")):
        async with opened(server, tmp_path, Clock(clock.at + days * DAY_S)) as store:
            await store.sweep()
            assert [await reason(store.originals, each.id) for each in (original, late)] == [expected] * 2
    assert places(url, "tombstone") == ["partition"]  # until the last one of its ten days is that old
    async with opened(server, tmp_path, Clock(clock.at + 41 * DAY_S)) as store:
        await store.sweep()
    assert places(url, "tombstone") == []

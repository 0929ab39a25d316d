"""What is special to the store in one SQLite file."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.fakes import Clock
from tests.support.services.store.making import TTL_S, a_metric, a_session, all_metrics, an_original, opened, reason

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.protocols import CompressionRecord, DecisionRecord
from kimi_proxy.services.store.sqlite.database import connect
from kimi_proxy.services.store.sqlite.store import SqliteStore, store_path


async def test_the_same_text_under_many_ids_is_stored_once(tmp_path: Path) -> None:
    text = os.urandom(1_000_000)
    async with opened(tmp_path) as store:
        originals = [an_original(text, key=b"%032d" % n) for n in range(10)]
        for original in originals:
            await store.originals.keep(original)
        assert (await store.usage()).bytes_on_disk < 1_300_000
        assert [await store.originals.get(LOCAL, o.id) for o in originals] == originals


async def test_usage_tells_what_there_is(tmp_path: Path) -> None:
    clock = Clock(5_000.0)
    async with opened(tmp_path, clock) as store:
        empty = await store.usage()
        await store.originals.keep(an_original())
        clock.advance(10)
        await store.originals.keep(an_original(b"other"))
        usage = await store.usage()
    assert (empty.originals, empty.oldest, empty.commits) == (0, None, 0)
    assert (usage.originals, usage.oldest, usage.commits) == (2, 5_000.0, 2)
    assert (usage.state, usage.set_aside) == ("ok", ())
    assert usage.path == str(tmp_path / "store" / "originals.sqlite3")
    assert usage.bytes_on_disk == store_path(tmp_path).stat().st_size


async def test_open_store_works_in_a_relative_home_with_odd_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    original = an_original()
    store = await SqliteStore.open(Path("a b?c#d%20é/home"), ttl_s=60, max_bytes=1024**2, timeout_s=60)
    await store.originals.keep(original)
    assert await store.originals.get(LOCAL, original.id) == original
    await store.close()
    assert (tmp_path / "a b?c#d%20é" / "home" / "store" / "originals.sqlite3").stat().st_size > 0


async def test_the_event_loop_is_free_while_the_disk_is_slow(tmp_path: Path) -> None:
    original, disk_answers = an_original(), threading.Event()
    disk_answers.set()

    def slow(path: Path, patience_s: float) -> sqlite3.Connection:
        assert disk_answers.wait(60)
        return connect(path, patience_s)

    async with opened(tmp_path, connect=slow) as store:
        for work in (store.originals.keep(original), store.originals.get(LOCAL, original.id), store.usage()):
            disk_answers.clear()
            task = asyncio.ensure_future(work)
            await asyncio.sleep(0.05)
            assert not task.done()
            disk_answers.set()  # only a loop that runs gets here
            await task


async def test_the_tables_of_the_contract_exist(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        original = an_original(b"what a tool said")
        await store.originals.keep(original)
        decision = DecisionRecord(b"p" * 32, "old", b"cut", (original.id, "prn_2"), "what a tool")
        await store.decisions.add(LOCAL, [decision])
        made = CompressionRecord(
            *("cmp_1", "ses_a", 100.0, 9000, 900, 12, (2, 5), b"f" * 32),
            *("read this", "summary", "prn_1", "provider", "compression", False),
        )
        for number, before in enumerate((9000, 0)):
            one = replace(made, id=f"cmp_{number}", session=f"ses_{number}", original_tokens=before)
            assert await store.decisions.add_compression(LOCAL, one)
    with closing(sqlite3.connect(store_path(tmp_path))) as connection:
        ratios = connection.execute("SELECT compression_ratio FROM compression_log ORDER BY id").fetchall()
        columns = {row[1] for row in connection.execute("PRAGMA table_info(sessions)")}
        logged = {row[1] for row in connection.execute("PRAGMA table_info(compression_log)")}
        masked = connection.execute("SELECT handle, preview, file_path FROM masked_content").fetchall()
    assert "memory_context" in columns
    assert {"session_id", "timestamp", "original_tokens", "compressed_tokens", "compression_ratio"} <= logged
    assert masked == [(original.id, "what a tool", str(store_path(tmp_path)))]
    assert ratios == [(0.9,), (0.0,)]


async def test_a_file_of_the_first_schema_is_brought_up_and_keeps_its_originals(tmp_path: Path) -> None:
    original = an_original()
    async with opened(tmp_path) as store:
        await store.originals.keep(original)
    with closing(sqlite3.connect(store_path(tmp_path), isolation_level=None)) as connection:
        for view in ("masked_content", "memory_metrics"):
            connection.execute(f"DROP VIEW {view}")
        tables = (
            "sessions",
            "metrics",
            "compression_log",
            "decision",
            "fact",
            "memory_segments",
            "person",
            "usage_day",
            "audit_log",
            "login",
            "secret",
            "provider_object",
            "token",
            "open_request",
            "erased",
            "project_memory",
        )
        for table in tables:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute("PRAGMA user_version = 1")
    async with opened(tmp_path) as store:
        assert await store.originals.get(LOCAL, original.id) == original
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


async def test_expired_texts_leave_no_trace_in_the_file(tmp_path: Path) -> None:
    clock = Clock()
    secret = os.urandom(16).hex().encode()
    original = an_original(b"password=" + secret)
    async with opened(tmp_path, clock) as store:
        await store.originals.keep(original)
        assert secret in store_path(tmp_path).read_bytes()  # too short to compress
        clock.advance(TTL_S + 61)
        await store.sweep()
    assert all(secret not in file.read_bytes() for file in store_path(tmp_path).parent.iterdir())


async def test_space_is_given_back_to_the_disk(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock) as store:
        for _ in range(5):
            await store.originals.keep(an_original(os.urandom(500_000)))
        clock.advance(TTL_S + 61)
        await store.sweep()
        assert (await store.usage()).bytes_on_disk < 300_000


async def test_tombstones_take_a_small_share_of_the_budget_at_most(tmp_path: Path) -> None:
    clock, budget = Clock(), 200 * 1024
    originals = [an_original(b"%d" % n) for n in range(150)]
    async with opened(tmp_path, clock, max_bytes=budget) as store:
        await asyncio.gather(*map(store.originals.keep, originals))
        clock.advance(TTL_S + 61)
        await store.sweep()
        await store.sweep()
        reasons = [await reason(store.originals, o.id) for o in originals]
    assert reasons.count("expired") == budget // 2048

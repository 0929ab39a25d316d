"""How the file is opened."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.services.store.making import an_original, opened

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.sql import Moment
from kimi_proxy.services.store.sqlite.database import Database, reading, writing
from kimi_proxy.services.store.sqlite.store import store_path


def answer(connection: sqlite3.Connection, pragma: str) -> object:
    (value,) = connection.execute(pragma).fetchone()
    return value


def test_a_commit_is_synced_and_never_goes_through_a_write_ahead_log(tmp_path: Path) -> None:
    with writing(tmp_path / "store" / "x.sqlite3", 30) as connection:
        assert answer(connection, "PRAGMA journal_mode") == "truncate"
        assert answer(connection, "PRAGMA synchronous") == 2  # FULL
        assert answer(connection, "PRAGMA secure_delete") == 1
        assert answer(connection, "PRAGMA auto_vacuum") == 2  # INCREMENTAL
        assert connection.in_transaction


def test_a_file_left_in_wal_mode_is_brought_back(tmp_path: Path) -> None:
    path = tmp_path / "store" / "x.sqlite3"
    with writing(path, 30):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    with writing(path, 30):
        pass
    assert path.read_bytes()[18:20] == b"\x01\x01"  # the header's mark of a rollback journal


def test_what_fails_inside_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "store" / "x.sqlite3"
    with pytest.raises(StoreUnavailable), writing(path, 30) as connection:
        connection.execute("INSERT INTO text (scope, hash, frame) VALUES (?, ?, ?)", (b"s", b"h", b"f"))
        raise StoreUnavailable("no")
    with reading(path, 30) as connection, pytest.raises(sqlite3.OperationalError, match="no such table"):
        connection.execute("SELECT * FROM text")


async def test_what_its_caller_has_stopped_waiting_for_is_not_written(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def insert(connection: sqlite3.Connection, moment: Moment) -> None:
        connection.execute("INSERT INTO text (scope, hash, frame) VALUES (x'00', x'00', x'00')")
        begun.set()
        go_on.wait(30)

    async with opened(tmp_path) as store:
        database = store.originals.database
        waiting = asyncio.create_task(database.write(insert))
        await asyncio.to_thread(begun.wait, 30)
        waiting.cancel()
        await asyncio.wait([waiting])
        go_on.set()
        found = await database.write(lambda connection, _: answer(connection, "SELECT count(*) FROM text"))

    assert (waiting.cancelled(), found, database.trouble) == (True, 0, None)


async def test_a_read_waits_for_a_commit_of_the_same_process_without_looking_at_the_file(tmp_path: Path) -> None:
    happened: list[str] = []
    committing, go_on = threading.Event(), threading.Event()

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, /, *values: Sequence[object]) -> sqlite3.Cursor:
            if sql == "COMMIT" and not committing.is_set():
                committing.set()
                go_on.wait(30)
                happened.append("committed")
            return super().execute(sql, *values)

    def connect(path: Path, timeout_s: float) -> sqlite3.Connection:
        happened.append("opened")
        return sqlite3.connect(path, isolation_level=None, factory=Connection)

    async with opened(tmp_path) as store:
        database = Database(store.originals.database.path, time.time, 30, connect)
        writing = asyncio.create_task(database.write(lambda connection, _: None))
        await asyncio.to_thread(committing.wait, 30)
        reading = asyncio.create_task(database.read(lambda connection: answer(connection, "SELECT 1")))
        await asyncio.wait([reading], timeout=0.05)
        go_on.set()
        found = await reading
        await writing
        await database.drain()
        database.close()

    assert (found, happened) == (1, ["opened", "committed", "opened"])


def test_readers_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "store" / "x.sqlite3"
    with writing(path, 30):
        pass
    with reading(path, 30) as connection, pytest.raises(sqlite3.OperationalError):
        connection.execute("DELETE FROM text")


def test_no_file_reads_as_an_empty_store_and_is_not_made(tmp_path: Path) -> None:
    with reading(tmp_path / "x.sqlite3", 30) as connection:
        assert answer(connection, "SELECT count(*) FROM record") == 0
    assert [*tmp_path.iterdir()] == []


async def test_a_sweep_with_nothing_to_do_writes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.originals.keep(an_original())
        before = store_path(tmp_path).read_bytes()
        await store.sweep()
        assert store_path(tmp_path).read_bytes() == before

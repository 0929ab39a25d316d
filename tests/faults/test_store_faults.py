"""A sick disk: nothing is acknowledged that is not kept, the reason is told, and it heals by itself."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.faults.symptoms import Disk, keeps_again, refusal
from tests.support.services.store.making import an_original, opened, reason

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.sqlite.schema import VERSION
from kimi_proxy.services.store.sqlite.store import SqliteStore, store_path


async def state_becomes(store: SqliteStore, wanted: str) -> None:
    for _ in range(1500):
        if (await store.usage()).state == wanted:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"never {wanted}: {await store.usage()}")


async def test_a_full_disk_refuses_and_still_reads_and_heals(tmp_path: Path) -> None:
    disk, before = Disk(), an_original()
    async with opened(tmp_path, connect=disk) as store:
        await store.originals.keep(before)
        disk.is_full = True
        lost = an_original(os.urandom(100_000))
        assert "full: free some space" in await refusal(store, lost)
        assert await store.originals.get(LOCAL, before.id) == before
        assert await reason(store.originals, lost.id) == "unknown"
        assert (await store.usage()).state.startswith("degraded: ")
        disk.is_full = False
        await keeps_again(store)


async def test_a_read_only_disk_refuses_and_still_reads_and_heals(tmp_path: Path) -> None:
    disk, before = Disk(), an_original()
    async with opened(tmp_path, connect=disk) as store:
        await store.originals.keep(before)
        disk.is_read_only = True
        assert "may not be written" in await refusal(store)
        assert await store.originals.get(LOCAL, before.id) == before
        assert "may not be written" in (await store.usage()).state
        disk.is_read_only = False
        await keeps_again(store)


async def test_the_state_heals_without_anybody_keeping_anything(tmp_path: Path) -> None:
    disk = Disk()
    async with opened(tmp_path, ttl_s=1, connect=disk) as store:
        disk.is_read_only = True
        await refusal(store)
        disk.is_read_only = False
        await state_becomes(store, "ok")


async def test_only_a_real_write_shows_that_the_disk_takes_writes_again(tmp_path: Path) -> None:
    disk = Disk()
    async with opened(tmp_path, connect=disk) as store:
        disk.is_read_only = True
        await refusal(store)
        disk.is_read_only = False
        before = store_path(tmp_path).read_bytes()
        await store.sweep()
        assert (await store.usage()).state == "ok"
        assert store_path(tmp_path).read_bytes() != before


async def test_trouble_and_healing_are_logged_once_each(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    with caplog.at_level("INFO", "kimi_proxy.services.store"):
        async with opened(tmp_path, connect=disk) as store:
            disk.is_read_only = True
            await refusal(store)
            await refusal(store)
            disk.is_read_only = False
            await keeps_again(store)
    assert caplog.messages == ["store_degraded", "store_healed"]


async def test_a_newer_schema_is_read_but_never_written(tmp_path: Path) -> None:
    original = an_original()
    async with opened(tmp_path) as store:
        await store.originals.keep(original)
        set_version(store_path(tmp_path), "PRAGMA user_version = 99")
        assert "newer kimi-proxy (schema 99" in await refusal(store)
        assert await store.originals.get(LOCAL, original.id) == original
        assert await store.originals.find(LOCAL, original.key) == original.id
        assert "newer kimi-proxy" in (await store.usage()).state
        assert await asyncio.to_thread(store_path(tmp_path).exists)
        set_version(store_path(tmp_path), f"PRAGMA user_version = {VERSION}")
        await keeps_again(store)


async def test_a_newer_schema_that_we_cannot_read_says_so(tmp_path: Path) -> None:
    original = an_original()
    async with opened(tmp_path) as store:
        await store.originals.keep(original)
        set_version(store_path(tmp_path), "ALTER TABLE text RENAME COLUMN frame TO chunk")
        with pytest.raises(StoreUnavailable):
            await store.originals.get(LOCAL, original.id)


def set_version(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


async def test_a_store_whose_directory_is_deleted_starts_afresh(tmp_path: Path) -> None:
    original = an_original()
    async with opened(tmp_path / "home") as store:
        await store.originals.keep(original)
        shutil.rmtree(tmp_path / "home")
        assert await reason(store.originals, original.id) == "unknown"
        assert await store.originals.find(LOCAL, original.key) is None
        await keeps_again(store)


async def test_a_commit_into_a_file_that_is_no_longer_there_is_not_acknowledged(tmp_path: Path) -> None:
    deleted_on: list[str] = []

    class Vanishing(sqlite3.Connection):
        def execute(self, sql: str, parameters: object = ()) -> sqlite3.Cursor:  # type: ignore[override]
            cursor = super().execute(sql, parameters)  # type: ignore[arg-type]
            if sql in deleted_on:
                store_path(tmp_path).unlink(missing_ok=True)
            return cursor

    def vanishing(path: Path, patience_s: float) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, factory=Vanishing)

    async with opened(tmp_path, connect=vanishing) as store:
        for moment in ("PRAGMA synchronous = FULL", "BEGIN IMMEDIATE", "COMMIT"):
            deleted_on[:] = [moment]
            assert "moved or deleted" in await refusal(store)
        deleted_on.clear()
        await keeps_again(store)


@pytest.mark.parametrize("obstacle", ["home is a file", "store is a file", "a directory in place of the file"])
async def test_an_obstacle_in_the_way_is_named_and_can_be_removed(tmp_path: Path, obstacle: str) -> None:
    home = tmp_path / "home"
    if obstacle == "home is a file":
        home.write_bytes(b"")
        way = home
    elif obstacle == "store is a file":
        home.mkdir()
        way = home / "store"
        way.write_bytes(b"")
    else:
        way = store_path(home)
        way.mkdir(parents=True)
    async with opened(home) as store:
        assert str(way) in await refusal(store)
        assert (await store.usage()).state.startswith("degraded: ")
        way.rmdir() if way.is_dir() else way.unlink()
        await keeps_again(store)


SCRIPTS = Path(__file__).parent


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
def test_a_limit_on_file_size_is_survived(tmp_path: Path) -> None:
    done = run(sys.executable, str(SCRIPTS / "store_with_a_file_limit.py"), str(tmp_path))
    assert (done.stdout, done.returncode) == ("refused, read, healed\n", 0), done.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such users")
def test_a_directory_that_belongs_to_somebody_else_is_named() -> None:
    done = run(sys.executable, str(SCRIPTS / "store_of_somebody_else.py"))
    assert (done.stdout, done.returncode) == ("refused: may not be written\n", 0), done.stderr


@pytest.mark.skipif(
    shutil.which("unshare") is None or run("unshare", "-rm", "true").returncode != 0,
    reason="needs the right to mount a small disk of its own",
)
def test_a_disk_that_fills_up_and_turns_read_only_is_survived(tmp_path: Path) -> None:
    script = str(SCRIPTS / "store_on_a_small_disk.py")
    done = run("unshare", "-rm", sys.executable, script, str(tmp_path))
    assert done.stdout == "full, read, healed\nread-only, read, healed\n", done.stderr

"""Processes that are killed while they write."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.store_keeper import original_of
from tests.support.deep import IS_DEEP, deep
from tests.support.faults.symptoms import integrity, keeps_again
from tests.support.services.store.making import an_original, opened

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.services.store.sqlite.store import store_path

ROOT = Path(__file__).parents[2]


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


async def all_come_back(home: Path, ids: list[str]) -> None:
    async with opened(home) as store:
        for original in map(original_of, ids):
            assert await store.originals.get(Caller(original.scope), original.id) == original


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
@pytest.mark.timeout(3600 if IS_DEEP else 600)
async def test_nothing_acknowledged_is_lost_when_writers_are_killed(tmp_path: Path) -> None:
    lives, acks = (250, 100) if IS_DEEP else (15, 45)  # two writers die in each
    killer = python("-m", "tests.faults.store_killer", str(tmp_path), str(lives), str(acks))
    done = await asyncio.to_thread(subprocess.run, killer, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    ids = done.stdout.split()
    assert len(set(ids)) == len(ids) >= lives * acks * 4 / 5
    await all_come_back(tmp_path, ids)
    assert integrity(store_path(tmp_path)) == [("ok",)]
    assert [*store_path(tmp_path).parent.glob("*corrupt*")] == []


@deep("it kills writers again and again; the contract of the store covers one writer")
async def test_four_processes_write_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    keeper = python("-m", "tests.faults.store_keeper", str(tmp_path), "80")
    writers = [await asyncio.create_subprocess_exec(*keeper, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(4)]
    outputs = [out for out, _ in await asyncio.gather(*(writer.communicate() for writer in writers))]
    ids = b"".join(outputs).decode().split()
    assert [writer.returncode for writer in writers] == [0] * 4
    assert len(set(ids)) == 320
    await all_come_back(tmp_path, ids)
    assert integrity(store_path(tmp_path)) == [("ok",)]


async def test_an_unfinished_write_of_a_killed_process_is_undone(tmp_path: Path) -> None:
    original = an_original()
    async with opened(tmp_path) as store:
        await store.originals.keep(original)
        kill_in_the_middle_of_a_write(store_path(tmp_path))
        assert store_path(tmp_path).with_name("originals.sqlite3-journal").stat().st_size > 0
        assert await store.originals.get(LOCAL, original.id) == original
        assert (await store.usage()).originals == 1
        await keeps_again(store)


async def test_a_migration_killed_midway_is_done_again_from_the_start(tmp_path: Path) -> None:
    store_path(tmp_path).parent.mkdir()
    kill_in_the_middle_of_a_write(store_path(tmp_path))
    async with opened(tmp_path) as store:
        await keeps_again(store)
        assert (await store.usage()).originals == 1


# With a cache of one page, what is written reaches the file long before the commit.
WRITE_AND_WAIT = """
import sys, time
from pathlib import Path
from kimi_proxy.services.store.sqlite.database import writing
with writing(Path(sys.argv[1]), 30.0) as connection:
    connection.execute("PRAGMA cache_size = 1")
    for n in range(300):
        connection.execute("INSERT INTO text (scope, hash, frame) VALUES (?, ?, zeroblob(9000))", (b"s", b"%d" % n))
    connection.execute("DELETE FROM record")
    print("midway", flush=True)
    time.sleep(600)
"""


def kill_in_the_middle_of_a_write(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITE_AND_WAIT, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout
        try:
            assert writer.stdout.readline() == b"midway\n"
        finally:
            writer.kill()

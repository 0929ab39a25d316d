"""Group commit, counted and not timed."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.support.services.store.making import an_original, opened

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.sql import CompressedText
from kimi_proxy.services.store.sqlite.database import MAX_BATCH, Database, GroupCommit
from kimi_proxy.services.store.sqlite.originals import PendingOriginal
from kimi_proxy.services.store.sqlite.store import store_path


def a_keep(size: int = 10) -> PendingOriginal:
    return PendingOriginal(an_original(), CompressedText(b"", b"x" * size))


class Disk:
    """Takes batches, one each time it is allowed to."""

    def __init__(self) -> None:
        self.batches: list[list[PendingOriginal]] = []
        self.allowed = threading.Semaphore(0)
        self.error: StoreUnavailable | None = None

    def commit(self, keeps: Sequence[PendingOriginal]) -> int:
        assert self.allowed.acquire(timeout=60)
        self.batches.append(list(keeps))
        if self.error:
            raise self.error
        return 0


def grouping(commit: Callable[[Sequence[PendingOriginal]], int], max_bytes: int) -> GroupCommit[PendingOriginal]:
    return GroupCommit(Database(Path("unused"), time.time, 30), commit, max_bytes)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def changes_of_the_file(path: Path) -> int:
    """SQLite counts transactions in bytes 24 to 27 of the file."""
    return int.from_bytes(path.read_bytes()[24:28], "big")


async def test_many_keeps_at_once_need_few_commits(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        before = changes_of_the_file(store_path(tmp_path))
        await asyncio.gather(*(store.originals.keep(an_original(b"%d" % n)) for n in range(500)))
        written = changes_of_the_file(store_path(tmp_path)) - before
        assert (await store.usage()).originals == 500
        assert written == (await store.usage()).commits
        assert written <= 100


async def test_what_waits_while_a_commit_runs_shares_the_next_one() -> None:
    disk = Disk()
    group = grouping(disk.commit, max_bytes=1_000_000)
    keeps = [a_keep() for _ in range(6)]
    first = asyncio.create_task(group.add(keeps[0]))
    await settle()
    rest = [asyncio.create_task(group.add(k)) for k in keeps[1:]]
    await settle()
    disk.allowed.release(2)
    await asyncio.gather(first, *rest)
    assert disk.batches == [keeps[:1], keeps[1:]]


async def test_a_batch_holds_neither_too_many_nor_too_much() -> None:
    disk = Disk()
    group = grouping(disk.commit, max_bytes=50_000)
    disk.allowed.release(1000)
    await asyncio.gather(*(group.add(a_keep(10_000)) for _ in range(10)))
    assert max(sum(k.size for k in batch) for batch in disk.batches) <= 50_000
    group = grouping(disk.commit, max_bytes=10**9)
    await asyncio.gather(*(group.add(a_keep()) for _ in range(MAX_BATCH + 1)))
    assert max(len(batch) for batch in disk.batches) == MAX_BATCH


async def test_everyone_in_a_batch_gets_its_failure() -> None:
    disk = Disk()
    disk.error = StoreUnavailable("full")
    disk.allowed.release(10)
    group = grouping(disk.commit, max_bytes=1_000_000)
    outcomes = await asyncio.gather(*(group.add(a_keep()) for _ in range(5)), return_exceptions=True)
    assert outcomes == [disk.error] * 5


async def test_an_original_whose_caller_gave_up_is_withdrawn_and_the_others_go_on() -> None:
    disk = Disk()
    group = grouping(disk.commit, max_bytes=1_000_000)
    keeps = [a_keep() for _ in range(3)]
    running = [asyncio.create_task(group.add(k)) for k in keeps[:1]]
    await settle()
    running += [asyncio.create_task(group.add(k)) for k in keeps[1:]]
    await settle()
    running[0].cancel()  # already on its way to the disk
    running[1].cancel()
    await settle()
    disk.allowed.release(2)
    await running[2]
    assert disk.batches == [keeps[:1], keeps[2:]]
    with pytest.raises(asyncio.CancelledError):
        await running[1]

"""Another program holds the file locked."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest
from tests.support.faults.symptoms import keeps_again, refusal
from tests.support.services.store.making import an_original, opened

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.sqlite.store import store_path

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked_by_another_process(path: Path) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin and holder.stdout
        try:
            assert holder.stdout.readline() == b"held\n"
            yield
        finally:
            holder.stdin.close()


async def test_a_lock_held_by_another_process_costs_a_bounded_time(tmp_path: Path) -> None:
    before = an_original()
    async with opened(tmp_path, timeout_s=2) as store:
        await store.originals.keep(before)
        with locked_by_another_process(store_path(tmp_path)):
            began = time.monotonic()
            refusals = await asyncio.gather(*(refusal(store) for _ in range(20)))
            assert time.monotonic() - began < 20  # one after the other would take 40 s
            # On a machine that is too busy the time is over before anybody has looked at the lock.
            for _ in range(20):
                if any("another program has locked it" in words for words in refusals):
                    break
                refusals = [await refusal(store)]
            else:
                raise AssertionError(refusals)
            with pytest.raises(StoreUnavailable):
                await store.originals.get(LOCAL, before.id)
            assert "locked" in (await store.usage()).state
    async with opened(tmp_path) as store:
        assert await store.originals.get(LOCAL, before.id) == before
        await keeps_again(store)


async def test_a_store_that_is_locked_from_the_start_opens_and_works_once_it_is_free(tmp_path: Path) -> None:
    original = an_original()
    async with opened(tmp_path) as store:
        await store.originals.keep(original)
    async with AsyncExitStack() as stack:
        with locked_by_another_process(store_path(tmp_path)):
            store = await stack.enter_async_context(opened(tmp_path, timeout_s=2))
            assert "locked" in (await store.usage()).state
            await refusal(store)
        await keeps_again(store)
        assert await store.originals.get(LOCAL, original.id) == original


async def test_a_short_lock_is_waited_for(tmp_path: Path) -> None:
    original = an_original()
    async with opened(tmp_path) as store:
        with locked_by_another_process(store_path(tmp_path)):
            keeping = asyncio.create_task(store.originals.keep(original))
            await asyncio.sleep(0.2)
            assert not keeping.done()
        await keeping
        assert await store.originals.get(LOCAL, original.id) == original


async def test_a_lock_that_stays_costs_its_patience_only_once(tmp_path: Path) -> None:
    """Every request waited 4 to 7 s."""
    async with opened(tmp_path, timeout_s=8) as store:
        await store.originals.keep(an_original())
        with locked_by_another_process(store_path(tmp_path)):
            assert "locked" in await refusal(store)
            began = time.monotonic()
            for _ in range(4):
                assert "locked" in await refusal(store)
            assert time.monotonic() - began < 6  # half of what one of them took before
        await keeps_again(store)

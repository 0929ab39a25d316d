"""How long originals stay, and which go first."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.services.store.contract.conftest import Opening
from tests.support.fakes import Clock
from tests.support.services.store.making import TTL_S, an_original, reason

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import StoreUnavailable

HOUR_S = 3600.0


async def test_a_text_outlives_the_first_of_two_records_that_share_it(tmp_path: Path, opened: Opening) -> None:
    clock = Clock()
    first, second = an_original(key=b"1" * 32), an_original(key=b"2" * 32)
    async with opened(tmp_path, clock) as store:
        await store.originals.keep(first)
        clock.advance(TTL_S)
        await store.originals.keep(second)
        clock.advance(TTL_S - 1)
        assert await store.sweep() == 1
        assert await reason(store.originals, first.id) == "expired"
        assert await store.originals.get(LOCAL, second.id) == second


async def test_an_original_expires_when_it_was_idle_for_longer_than_its_ttl(tmp_path: Path, opened: Opening) -> None:
    clock, original = Clock(), an_original()
    async with opened(tmp_path, clock) as store:
        await store.originals.keep(original)
        clock.advance(TTL_S)
        assert await store.originals.find(LOCAL, original.key) == original.id
        clock.advance(TTL_S + 1)
        assert await store.originals.find(LOCAL, original.key) is None
        assert await reason(store.originals, original.id) == "expired"


async def test_every_use_restarts_the_idle_time(tmp_path: Path, opened: Opening) -> None:
    clock, original = Clock(), an_original()
    async with opened(tmp_path, clock) as store:
        await store.originals.keep(original)
        for _ in range(5):
            clock.advance(TTL_S)
            assert await store.sweep() == 0
            assert await store.originals.get(LOCAL, original.id) == original


async def test_uses_are_written_for_other_processes_and_later_starts_to_see(tmp_path: Path, opened: Opening) -> None:
    clock, original = Clock(), an_original()
    async with opened(tmp_path, clock) as store:
        await store.originals.keep(original)
        clock.advance(TTL_S)
        await store.originals.get(LOCAL, original.id)
    clock.advance(TTL_S)
    async with opened(tmp_path, clock) as store:
        assert await store.originals.get(LOCAL, original.id) == original


async def test_expired_stays_apart_from_unknown_after_the_sweep_and_a_restart(tmp_path: Path, opened: Opening) -> None:
    clock, original = Clock(), an_original()
    async with opened(tmp_path, clock) as store:
        await store.originals.keep(original)
        clock.advance(TTL_S + 61)
        assert await store.sweep() == 1
        assert (await store.usage()).originals == 0
    async with opened(tmp_path, clock) as store:
        assert await reason(store.originals, original.id) == "expired"
        assert await reason(store.originals, original.id, "other") == "unknown"


async def test_tombstones_go_after_some_weeks(tmp_path: Path, opened: Opening) -> None:
    clock, original = Clock(), an_original()
    async with opened(tmp_path, clock) as store:
        await store.originals.keep(original)
        clock.advance(TTL_S + 61)
        await store.sweep()
        for _ in range(29 * 24):
            clock.advance(HOUR_S)
            await store.originals.find(LOCAL, b"")
        await store.sweep()
        assert await reason(store.originals, original.id) == "expired"
        for _ in range(2 * 24):
            clock.advance(HOUR_S)
            await store.originals.find(LOCAL, b"")
        await store.sweep()
        assert await reason(store.originals, original.id) == "unknown"


async def test_the_longest_idle_go_first_when_the_budget_is_full(tmp_path: Path, opened: Opening) -> None:
    clock, budget = Clock(), 2 * 1024**2
    originals = [an_original(os.urandom(100_000)) for _ in range(40)]
    async with opened(tmp_path, clock, max_bytes=budget) as store:
        for original in originals:
            clock.advance(1)
            await store.originals.keep(original)
            await store.originals.get(LOCAL, originals[0].id)
        usage = await store.usage()
        assert usage.bytes_on_disk <= budget
        alive = [o for o in originals if await store.originals.find(LOCAL, o.key)]
        assert alive == [originals[0], *originals[-(usage.originals - 1) :]]
        assert len(alive) >= 15
        assert await reason(store.originals, originals[1].id) == "expired"


async def test_a_text_too_large_for_the_budget_is_refused_and_pushes_nothing_out(
    tmp_path: Path, opened: Opening
) -> None:
    small = an_original()
    async with opened(tmp_path, max_bytes=1024**2) as store:
        await store.originals.keep(small)
        with pytest.raises(StoreUnavailable, match=r"store\.max_bytes"):
            await store.originals.keep(an_original(os.urandom(1024**2)))
        assert await store.originals.get(LOCAL, small.id) == small
        assert (await store.usage()).state == "ok"


async def test_a_burst_larger_than_the_budget_never_pushes_out_what_it_acknowledges(
    tmp_path: Path, opened: Opening
) -> None:
    async with opened(tmp_path, max_bytes=1024**2) as store:

        async def keep_and_read() -> None:
            original = an_original(os.urandom(150_000))
            await store.originals.keep(original)
            assert await store.originals.find(LOCAL, original.key) in (original.id, None)

        await asyncio.gather(*(keep_and_read() for _ in range(30)))
        assert (await store.usage()).originals >= 3


async def test_a_lowered_budget_is_reached_by_sweeping(tmp_path: Path, opened: Opening) -> None:
    async with opened(tmp_path) as store:
        for _ in range(30):
            await store.originals.keep(an_original(os.urandom(100_000)))
    async with opened(tmp_path, max_bytes=1024**2) as store:
        await store.sweep()
        usage = await store.usage()
        assert usage.bytes_on_disk <= 1024**2
        assert 5 <= usage.originals <= 10


async def test_a_use_that_is_still_in_memory_saves_an_original_from_another_process(
    tmp_path: Path, opened: Opening
) -> None:
    clock, original = Clock(), an_original()
    async with opened(tmp_path, clock) as reader, opened(tmp_path, clock) as sweeper:
        await reader.originals.keep(original)
        clock.advance(TTL_S)
        await reader.originals.get(LOCAL, original.id)
        clock.advance(30)
        assert await sweeper.sweep() == 0
        await reader.sweep()
        assert await sweeper.originals.get(LOCAL, original.id) == original


async def test_a_late_write_of_an_early_use_does_not_undo_a_later_one(tmp_path: Path, opened: Opening) -> None:
    clock, original = Clock(), an_original()
    async with opened(tmp_path, clock) as early, opened(tmp_path, clock) as late:
        await early.originals.keep(original)
        await early.originals.get(LOCAL, original.id)
        clock.advance(TTL_S)
        await late.originals.get(LOCAL, original.id)
        await late.sweep()
        await early.sweep()
        clock.advance(TTL_S)
        assert await late.originals.get(LOCAL, original.id) == original

"""Leaps of the clock, forwards and backwards."""

from pathlib import Path

import pytest
from tests.support import fakes
from tests.support.services.store.making import an_original, opened

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import PruneIdNotFound
from kimi_proxy.services.store.sql import CONFIRM_S, LEAP_S, Moment, WallClock

DAY_S = 86_400.0
NOW = 1_700_000_000.0


def test_small_steps_are_believed_at_once() -> None:
    wall = fakes.Clock(NOW)
    clock = WallClock(wall)
    for step in (1, LEAP_S, -LEAP_S, 0):
        wall.advance(step)
        assert clock.look() == Moment(wall(), wall())


@pytest.mark.parametrize("leap", [30 * DAY_S, -30 * DAY_S, LEAP_S + 1])
def test_a_leap_is_believed_when_a_second_look_confirms_it(leap: float) -> None:
    wall = fakes.Clock(NOW)
    clock = WallClock(wall)
    wall.advance(leap)
    assert clock.look() == Moment(min(NOW, wall()), max(NOW, wall()))
    wall.advance(CONFIRM_S - 1)
    assert not clock.look().is_certain
    wall.advance(1)
    assert clock.look() == Moment(wall(), wall())


@pytest.mark.parametrize("leap", [30 * DAY_S, -30 * DAY_S])
def test_a_leap_that_is_taken_back_never_happened(leap: float) -> None:
    wall = fakes.Clock(NOW)
    clock = WallClock(wall)
    wall.advance(leap)
    clock.look()
    wall.advance(60 - leap)
    assert clock.look() == Moment(NOW + 60, NOW + 60)


def test_a_second_leap_starts_the_doubt_again() -> None:
    wall = fakes.Clock(NOW)
    clock = WallClock(wall)
    for _ in range(5):
        wall.advance(DAY_S)
        assert clock.look().earliest == NOW


def test_time_that_passed_since_the_last_stamp_on_file_is_a_leap_too() -> None:
    assert WallClock(fakes.Clock(NOW), last_seen=NOW - DAY_S).look() == Moment(NOW - DAY_S, NOW)
    assert WallClock(fakes.Clock(NOW), last_seen=NOW - 60).look() == Moment(NOW, NOW)


@pytest.mark.parametrize("leap", [30 * DAY_S, -30 * DAY_S])
async def test_nothing_expires_on_a_leap_and_everything_does_in_time(tmp_path: Path, leap: float) -> None:
    wall, ttl = fakes.Clock(NOW), DAY_S
    before, during = an_original(b"before"), an_original(b"during")
    async with opened(tmp_path, wall, ttl_s=ttl) as store:
        await store.originals.keep(before)
        wall.advance(leap)
        await store.sweep()
        assert await store.originals.get(LOCAL, before.id) == before
        await store.originals.keep(during)
        wall.advance(CONFIRM_S)
        await store.sweep()
        assert await store.originals.get(LOCAL, during.id) == during

        used = wall()
        while wall() <= used + ttl + 61:
            wall.advance(LEAP_S)
            await store.sweep()
        for original in (before, during):
            with pytest.raises(PruneIdNotFound):
                await store.originals.get(LOCAL, original.id)


async def test_a_confirmed_leap_lets_the_idle_go(tmp_path: Path) -> None:
    wall, original = fakes.Clock(NOW), an_original()
    async with opened(tmp_path, wall, ttl_s=7 * DAY_S) as store:
        await store.originals.keep(original)
        wall.advance(8 * DAY_S)
        assert await store.sweep() == 0
        wall.advance(CONFIRM_S)
        assert await store.sweep() == 1


async def test_a_start_after_a_long_night_waits_for_a_second_look(tmp_path: Path) -> None:
    wall, original = fakes.Clock(NOW), an_original()
    async with opened(tmp_path, wall, ttl_s=7 * DAY_S) as store:
        await store.originals.keep(original)
    wall.advance(30 * DAY_S)
    async with opened(tmp_path, wall, ttl_s=7 * DAY_S) as store:
        assert await store.sweep() == 0
        assert await store.originals.get(LOCAL, original.id) == original


async def test_what_a_fast_clock_stamped_does_not_live_forever(tmp_path: Path) -> None:
    wall, original = fakes.Clock(NOW + 365 * DAY_S), an_original()
    async with opened(tmp_path, wall, ttl_s=DAY_S) as store:
        await store.originals.keep(original)
        wall.at = NOW
        await store.sweep()
        wall.advance(CONFIRM_S)
        await store.sweep()  # the year that never was is taken off
        while wall() <= NOW + CONFIRM_S + DAY_S + 61:
            wall.advance(LEAP_S)
            await store.sweep()
        with pytest.raises(PruneIdNotFound) as error:
            await store.originals.get(LOCAL, original.id)
        assert error.value.reason == "expired"

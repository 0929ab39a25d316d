"""A watchdog barks once, when its moment has come and not before."""

import asyncio
import math
import time

from tests.processes import until

from kimi_proxy.core.deadline import Watchdog


async def test_it_barks_when_the_moment_has_passed():
    barks: list[float] = []
    began = time.monotonic()
    Watchdog(asyncio.get_running_loop().time() + 0.1, lambda: barks.append(time.monotonic()))

    await until(lambda: bool(barks))

    assert 0.09 < barks[0] - began < 30


async def test_the_moment_can_be_put_off():
    barks: list[int] = []
    now = asyncio.get_running_loop().time
    dog = Watchdog(now() + 0.1, lambda: barks.append(1))
    for _ in range(4):
        await asyncio.sleep(0.05)
        dog.by = now() + 0.2
    assert barks == []

    await until(lambda: bool(barks))
    await asyncio.sleep(0.1)

    assert barks == [1]


async def test_it_can_be_sent_away():
    barks: list[int] = []
    dog = Watchdog(asyncio.get_running_loop().time() + 0.05, lambda: barks.append(1))
    dog.stop()

    await asyncio.sleep(0.1)

    assert barks == []


async def test_it_looks_around_once_a_second():
    glances: list[int] = []
    dog = Watchdog(math.inf, lambda: None, lambda: glances.append(1))

    await asyncio.sleep(1.2)
    dog.stop()

    assert glances == [1]

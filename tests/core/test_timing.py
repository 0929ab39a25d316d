"""A deadline expires once, and not before its time."""

import asyncio
import math
import time

from tests.support.processes import until

from kimi_proxy.core.timing import Deadline


async def test_it_expired_when_the_moment_has_passed():
    expired: list[float] = []
    began = time.monotonic()
    Deadline(asyncio.get_running_loop().time() + 0.1, lambda: expired.append(time.monotonic()))

    await until(lambda: bool(expired))

    assert 0.09 < expired[0] - began < 30


async def test_it_can_be_moved():
    expired: list[float] = []
    now = asyncio.get_running_loop().time
    deadline = Deadline(now() + 0.1, lambda: expired.append(now()))
    deadline.at = now() + 0.3

    await until(lambda: bool(expired))
    await asyncio.sleep(0.1)

    assert len(expired) == 1
    assert expired[0] >= deadline.at


async def test_it_can_be_stopped():
    expired: list[int] = []
    deadline = Deadline(asyncio.get_running_loop().time() + 0.05, lambda: expired.append(1))
    deadline.stop()

    await asyncio.sleep(0.1)

    assert expired == []


async def test_it_checks_once_a_second():
    checks: list[float] = []
    began = time.monotonic()
    deadline = Deadline(math.inf, lambda: None, lambda: checks.append(time.monotonic()))

    await until(lambda: bool(checks))
    deadline.stop()
    await asyncio.sleep(0.1)

    assert len(checks) == 1
    assert checks[0] - began > 0.9

"""Run by a test: store_killer.py HOME LIVES starts two keepers at a time on one store and kills both, LIVES times.

Prints every id that a keeper acknowledged. Forking saves the interpreter's start, which would be most of the time.
"""

import asyncio
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

from tests.faults.store_keeper import keep

ACKNOWLEDGED_BEFORE_DEATH = 100


def born(home: Path, acknowledged: int) -> int:
    child = os.fork()
    if child == 0:
        asyncio.run(keep(home, acknowledged, 10**6))
        os._exit(0)
    return child


def live_and_die(home: Path, chance: random.Random, is_short: bool) -> bytes:
    """The ids that two keepers acknowledged before they were killed at a moment that nobody chose."""
    readable, writable = os.pipe()
    keepers = [born(home, writable) for _ in range(2)]
    os.close(writable)
    seen = b"" if is_short else read_lines(readable, ACKNOWLEDGED_BEFORE_DEATH)
    time.sleep(chance.uniform(0, 0.04))
    for keeper in keepers:
        os.kill(keeper, signal.SIGKILL)
        os.waitpid(keeper, 0)
    while rest := os.read(readable, 65_536):
        seen += rest
    os.close(readable)
    return seen


def read_lines(readable: int, count: int) -> bytes:
    seen = b""
    while seen.count(b"\n") < count:
        ready, _, _ = select.select([readable], [], [], 60)
        assert ready, "the keepers keep nothing"
        seen += os.read(readable, 65_536)
    return seen


def main(home: Path, lives: int) -> None:
    chance = random.Random(lives)
    for life in range(lives):
        # Some die so young that the store may not even exist.
        is_short = life % 6 == 0
        sys.stdout.buffer.write(live_and_die(home, chance, is_short))


main(Path(sys.argv[1]), int(sys.argv[2]))

"""Run by a test: store_killer.py HOME LIVES ACKS: two keepers at a time share one store; after ACKS ids both are
killed, LIVES times.

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


def born(home: Path, acknowledged: int) -> int:
    child = os.fork()
    if child == 0:
        asyncio.run(keep(home, acknowledged, 10**6))
        os._exit(0)
    return child


def live_and_die(home: Path, chance: random.Random, acks: int) -> bytes:
    """The ids that two keepers acknowledged before they were killed at a moment that nobody chose."""
    readable, writable = os.pipe()
    keepers = [born(home, writable) for _ in range(2)]
    os.close(writable)
    seen = read_lines(readable, acks)
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


def main(home: Path, lives: int, acks: int) -> None:
    chance = random.Random(lives)
    for life in range(lives):
        # Some die so young that the store may not even exist.
        sys.stdout.buffer.write(live_and_die(home, chance, acks if life % 6 else 0))


main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

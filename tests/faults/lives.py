"""Processes that tests kill: forks of one that has loaded what they need, for starting Python takes a second of CPU."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.forks import Fork, commands

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120


@contextmanager
def living(module: str, *arguments: str) -> Iterator[Fork]:
    """A process that runs `module` of this folder as a program; killed at the end."""
    with commands().started(["-m", f"tests.faults.{module}", *arguments], ROOT, os.environ) as process:
        yield process


async def lines(process: Fork, at_most: int) -> list[str]:
    """What a process prints next, up to so many lines, or to its end."""

    def read() -> list[str]:
        seen: list[str] = []
        while len(seen) < at_most and (line := process.stdout.readline()):
            seen.append(line.decode())
        return seen

    return await asyncio.wait_for(asyncio.to_thread(read), PATIENCE_S)

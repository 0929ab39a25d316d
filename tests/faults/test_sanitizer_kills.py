"""A proxy that is killed in the middle of a conversation goes on with the same bytes."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

from tests.deep import IS_DEEP
from tests.faults.sanitizer_sender import TURNS

ROOT = Path(__file__).parents[2]
SENDER = (sys.executable, "-m", "tests.faults.sanitizer_sender")
KILLS = 4 if IS_DEEP else 2


async def lines(home: Path, at_most: int) -> list[str]:
    """What a sender prints until it has printed so much, and is killed."""
    sender = await asyncio.create_subprocess_exec(*SENDER, str(home), cwd=ROOT, stdout=subprocess.PIPE)
    assert sender.stdout is not None
    seen: list[str] = []
    while len(seen) < at_most and (line := await asyncio.wait_for(sender.stdout.readline(), 120)):
        seen.append(line.decode())
    if len(seen) == at_most:
        sender.kill()
    await sender.wait()
    return seen


async def test_what_was_sent_before_a_kill_is_sent_in_the_same_bytes_after_it(tmp_path: Path):
    chance = random.Random(7)
    left: dict[str, set[str]] = {}
    # The whole conversation has this many lines: one per message of each request, the system's among them.
    total = sum(3 * turn + 4 for turn in range(TURNS))
    for at_most in [*(chance.randrange(4, total) for _ in range(KILLS)), total + 1]:
        for line in await lines(tmp_path, at_most):
            _, message, sent = line.split()
            left.setdefault(message, set()).add(sent)

    assert len(left) == 3 * TURNS + 1
    assert {message: len(sent) for message, sent in left.items() if len(sent) > 1} == {}

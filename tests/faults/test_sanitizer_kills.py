"""A proxy that is killed in the middle of a conversation goes on with the same bytes."""

import random
from pathlib import Path

from tests.faults.lives import lines, living
from tests.faults.sanitizer_sender import TURNS
from tests.support.deep import IS_DEEP

KILLS = 4 if IS_DEEP else 2


async def test_what_was_sent_before_a_kill_is_sent_in_the_same_bytes_after_it(tmp_path: Path):
    chance = random.Random(7)
    left: dict[str, set[str]] = {}
    # The whole conversation has this many lines: one per message of each request, the system's among them.
    total = sum(3 * turn + 4 for turn in range(TURNS))
    for at_most in [*(chance.randrange(4, total) for _ in range(KILLS)), total + 1]:
        with living("sanitizer_sender", str(tmp_path)) as sender:
            seen = await lines(sender, at_most)  # then it is killed, or has ended
        for line in seen:
            _, message, sent = line.split()
            left.setdefault(message, set()).add(sent)

    assert len(left) == 3 * TURNS + 1
    assert {message: len(sent) for message, sent in left.items() if len(sent) > 1} == {}

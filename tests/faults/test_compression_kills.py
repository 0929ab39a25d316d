"""A proxy that is killed goes on with the same summary in the same bytes."""

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.faults.compression_sender import TURNS

ROOT = Path(__file__).parents[2]
SENDER = (sys.executable, "-m", "tests.faults.compression_sender")


async def first_line(home: Path, turn: int) -> str:
    """What a sender prints before it is killed."""
    sender = await asyncio.create_subprocess_exec(*SENDER, str(home), str(turn), cwd=ROOT, stdout=subprocess.PIPE)
    assert sender.stdout is not None
    line = await asyncio.wait_for(sender.stdout.readline(), 120)
    sender.kill()
    await sender.wait()
    return line.decode()


async def test_what_stood_for_old_messages_before_a_kill_stands_there_after_it(tmp_path: Path):
    lines = [(await first_line(tmp_path, turn)).split() for turn in range(TURNS)]

    assert len({pinned for _, pinned, _ in lines}) == 1, lines
    # The system's message, the summary, five exchanges of four messages, and what is asked now; then more of them.
    assert [int(messages) for _, _, messages in lines] == [1 + 1 + 5 * 4 + 1 + 4 * turn for turn in range(TURNS)]

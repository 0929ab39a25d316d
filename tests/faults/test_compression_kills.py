"""A proxy that is killed goes on with the same summary in the same bytes."""

from pathlib import Path

from tests.faults.compression_sender import TURNS
from tests.faults.lives import lines, living


async def first_line(home: Path, turn: int) -> str:
    """What a sender prints before it is killed."""
    with living("compression_sender", str(home), str(turn)) as sender:
        (line,) = await lines(sender, 1)
    return line


async def test_what_stood_for_old_messages_before_a_kill_stands_there_after_it(tmp_path: Path):
    seen = [(await first_line(tmp_path, turn)).split() for turn in range(TURNS)]

    assert len({pinned for _, pinned, _ in seen}) == 1, seen
    # The system's message, the summary, five exchanges of four messages, and what is asked now; then more of them.
    assert [int(messages) for _, _, messages in seen] == [1 + 1 + 5 * 4 + 1 + 4 * turn for turn in range(TURNS)]

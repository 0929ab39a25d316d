"""A proxy that is killed remembers what a conversation was told, and which model it had gone to."""

from pathlib import Path

from tests.faults.lives import lines, living


async def sent(home: Path, memory: str, *turns: int) -> list[list[str]]:
    """What a life of the proxy sent, until it was killed."""
    with living("context_sender", str(home), memory, *map(str, turns)) as sender:
        return [line.split() for line in await lines(sender, len(turns))]


async def test_what_was_decided_before_a_kill_holds_after_it(tmp_path: Path):
    home = tmp_path / "home"
    first = await sent(home, "tabs", 0, 1)
    second = await sent(home, "spaces", 2, 0, 1)
    other = await sent(tmp_path / "another home", "tabs", 2)

    assert [line[:2] for line in first] == [["0", "p/small"], ["1", "p/large"]]
    assert second[1:] == first
    # A conversation of this size stays where it was, and would not have gone there.
    assert (second[0][:2], other[0][:2]) == (["2", "p/large"], ["2", "p/small"])

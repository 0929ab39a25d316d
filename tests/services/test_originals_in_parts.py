"""Outputs in parts are read back by the line numbers of the whole output."""

import os
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.support.fakes import MemoryOriginals
from tests.support.read_back import keep_in_parts, read, read_lines

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.errors import InvalidRange, PruneIdNotFound
from kimi_proxy.features.recovery import MAX_RANGES, Recover, Selection
from kimi_proxy.services.recover import Recovery
from kimi_proxy.services.store.protocols import Original
from kimi_proxy.services.store.sqlite.store import SqliteStore

# The third part begins inside of line 15, which is long.
PARTS = (b"line 11\nline 12\n", b"line 13\nline 14\nline ", b"15\nline 16\n")


@pytest.mark.parametrize(
    ("start", "end", "lines"),
    [
        (11, 11, ["line 11"]),
        (12, 13, ["line 12", "line 13"]),
        (13, 13, ["line 13"]),
        (15, 15, ["line 15"]),
        (11, 16, [f"line {n}" for n in range(11, 17)]),
        (16, 99, ["line 16"]),
    ],
)
async def test_lines_are_found_in_whichever_part_they_are(start: int, end: int, lines: list[str]):
    originals = MemoryOriginals()
    marker = await keep_in_parts(originals, PARTS, 11)

    assert (marker.start, marker.end) == (11, 16)
    assert (await read_lines(originals, marker.prune_id, [(start, end)])).split("\n") == lines
    numbered = await read_lines(originals, marker.prune_id, [(start, end)], with_numbers=True)
    assert numbered.split("\n") == [f"{start + at}│ {line}" for at, line in enumerate(lines)]


async def test_a_range_without_a_start_begins_with_the_first_line_that_is_kept():
    originals = MemoryOriginals()
    marker = await keep_in_parts(originals, PARTS, 11)

    assert await read(originals, Recover(id=marker.prune_id, end_line=12)) == "line 11\nline 12"
    assert await read(originals, Recover(id=marker.prune_id, start=16)) == "line 16"
    with pytest.raises(InvalidRange, match="line 3 is not stored here: lines 11 to 16 are"):
        await read(originals, Recover(id=marker.prune_id, end_line=3))


async def test_without_lines_every_part_comes_back_and_numbers_are_those_of_the_whole():
    originals = MemoryOriginals()
    marker = await keep_in_parts(originals, PARTS, 11)
    whole = await read(originals, Recover(id=marker.prune_id))
    numbered = await read(originals, Recover(id=marker.prune_id, include_line_numbers=True))

    assert whole.encode() == b"".join(PARTS)
    assert numbered == "\n".join(f"{n}│ line {n}" for n in range(11, 17))


@pytest.mark.parametrize(("start", "end"), [(0, 5), (7, 8), (14, 40), (15, 15), (40, 99), (len(b"".join(PARTS)), 99)])
async def test_characters_are_counted_over_all_parts(start: int, end: int):
    originals = MemoryOriginals()
    marker = await keep_in_parts(originals, PARTS, 11)
    found = await read(originals, Recover(id=marker.prune_id, start_char=start, end_char=end))

    assert found.encode() == b"".join(PARTS)[start:end]


@pytest.mark.parametrize(
    "asked", [{"start_line": 3, "end_line": 4}, {"start_line": 17, "end_line": 18}, {"start_char": 1000}]
)
async def test_what_is_not_in_the_parts_is_refused_with_what_is(asked: dict[str, int]):
    originals = MemoryOriginals()
    marker = await keep_in_parts(originals, PARTS, 11)

    with pytest.raises(InvalidRange, match=r"lines 11 to 16|has 48 characters"):
        await read(originals, Recover.model_validate({"id": marker.prune_id, **asked}))


async def test_a_list_that_an_earlier_version_kept_is_read_as_well():
    originals = MemoryOriginals()
    marker = await keep_in_parts(originals, PARTS, 11)
    listed = await originals.get(LOCAL, marker.prune_id)
    originals.kept[LOCAL.scope, listed.id] = replace(listed, about=b'{"what":"parts"}')
    found = await read(originals, Recover(id=marker.prune_id, start_char=7, end_char=40))

    assert await read_lines(originals, marker.prune_id, [(14, 15)]) == "line 14\nline 15"
    assert found.encode() == b"".join(PARTS)[7:40]


async def test_a_single_part_needs_no_list():
    originals = MemoryOriginals()
    marker = await keep_in_parts(originals, PARTS[:1], 11)

    assert (await originals.get(LOCAL, marker.prune_id)).text == PARTS[0]


async def test_a_part_that_is_gone_is_said_of_the_id_that_was_asked_for():
    originals = MemoryOriginals()
    marker = await keep_in_parts(originals, PARTS, 11)
    (second,) = [id for (_, id), original in originals.kept.items() if original.text == PARTS[1]]
    originals.forget(second)

    assert await read_lines(originals, marker.prune_id, [(12, 12)]) == "line 12"
    with pytest.raises(PruneIdNotFound, match=marker.prune_id):
        await read_lines(originals, marker.prune_id, [(14, 14)])


async def test_to_delete_an_output_deletes_its_parts():
    originals = MemoryOriginals()
    marker = await keep_in_parts(originals, PARTS, 11)
    await Recovery(originals).delete(LOCAL, marker.prune_id)

    assert originals.kept == {}


async def test_reading_some_of_an_output_keeps_all_of_it_alive(tmp_path: Path):
    class Uses(MemoryOriginals):
        def __init__(self) -> None:
            super().__init__()
            self.used: set[str] = set()

        async def live(self, who: Caller, ids: object) -> frozenset[str]:
            self.used |= set(ids)  # type: ignore[call-overload]
            return await super().live(who, ids)  # type: ignore[arg-type]

    originals = Uses()
    marker = await keep_in_parts(originals, PARTS, 11)
    await read_lines(originals, marker.prune_id, [(11, 11)])

    assert originals.used == {id for _, id in originals.kept} - {marker.prune_id}


class Counted(MemoryOriginals):
    """Counts how often each original is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    async def get(self, who: Caller, id: str) -> Original:
        self.reads.append(id)
        return await super().get(who, id)


async def test_ranges_that_overlap_read_each_part_once():
    originals = Counted()
    marker = await keep_in_parts(originals, PARTS, 11)
    await read_lines(originals, marker.prune_id, [(11, 16)] * 50)

    assert sorted(originals.reads) == sorted({id for _, id in originals.kept})


async def test_ranges_that_overlap_have_a_ceiling():
    part = b"".join(b"%06d the same line, again and again\n" % n for n in range(100_000))
    originals = Counted()
    marker = await keep_in_parts(originals, [part] * 10)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRange, match="request fewer lines"):
            await read_lines(originals, marker.prune_id, [(1, 10**6)] * 40)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 200 * 1024**2  # of 1.5 GB that were asked for
    assert len(originals.reads) < 4
    with pytest.raises(InvalidRange, match="too many ranges"):
        await read_lines(originals, marker.prune_id, [(1, 1)] * (MAX_RANGES + 1))


async def test_an_output_that_is_too_long_for_an_answer_is_read_by_ranges():
    part = b"x" * 4 * 1024**2
    originals = MemoryOriginals()
    marker = await keep_in_parts(originals, [part] * 17)
    with pytest.raises(InvalidRange, match="request some of its lines, 1 to 1"):
        await Recovery(originals).read(LOCAL, marker.prune_id)

    some = await Recovery(originals).read(LOCAL, marker.prune_id, Selection(chars=(len(part) - 1, len(part) + 1)))
    assert (some.text, some.chars) == ("xx", 17 * len(part))


async def test_the_command_reads_parts_by_the_same_numbers(tmp_path: Path):
    home = tmp_path / "state"
    store = await SqliteStore.open(home, ttl_s=3600, max_bytes=2**30, timeout_s=60)
    try:
        marker = await keep_in_parts(store.originals, PARTS, 11)
    finally:
        await store.close()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "KIMI_PROXY_HOME": str(home)}
    some = Cli(tmp_path, env)("recover", marker.prune_id, "14-15")
    whole = Cli(tmp_path, env)("recover", marker.prune_id)

    assert (some.returncode, some.stdout) == (0, b"line 14\nline 15\n")
    assert (whole.returncode, whole.stdout) == (0, b"".join(PARTS))

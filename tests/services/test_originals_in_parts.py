"""Outputs in parts are read back by the line numbers of the whole output."""

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.support.fakes import MemoryOriginals

from kimi_proxy.core import markers
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import InvalidRange
from kimi_proxy.core.markers import PruneMarker
from kimi_proxy.features.recovery import LinesArgument, Recover
from kimi_proxy.services.originals import Keeper, keep_parts, read_parts
from kimi_proxy.services.store.protocols import Originals
from kimi_proxy.services.store.sqlite.store import SqliteStore

# The third part begins inside of line 15, which is long.
PARTS = (b"line 11\nline 12\n", b"line 13\nline 14\nline ", b"15\nline 16\n")


async def kept(originals: Originals, parts: Sequence[bytes] = PARTS) -> PruneMarker:
    async def given() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    marker = await keep_parts(LOCAL, Keeper(originals), given(), 11)
    found = markers.read(marker or "")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("start", "end", "lines"),
    [
        (11, 11, ["line 11"]),
        (12, 13, ["line 12", "line 13"]),
        (15, 15, ["line 15"]),
        (11, 16, [f"line {n}" for n in range(11, 17)]),
        (16, 99, ["line 16"]),
    ],
)
async def test_lines_are_found_in_whichever_part_they_are(start: int, end: int, lines: list[str]):
    originals = MemoryOriginals()
    marker = await kept(originals)
    listed = await originals.get(LOCAL, marker.prune_id)
    asked = Recover(id=marker.prune_id, ranges=[LinesArgument(start_line=start, end_line=end)])

    assert (marker.start, marker.end) == (11, 16)
    assert (await read_parts(LOCAL, originals, listed, asked)).split("\n") == lines


async def test_without_lines_every_part_comes_back_and_numbers_are_those_of_the_whole():
    originals = MemoryOriginals()
    marker = await kept(originals)
    listed = await originals.get(LOCAL, marker.prune_id)
    whole = await read_parts(LOCAL, originals, listed, Recover(id=marker.prune_id))
    numbered = await read_parts(LOCAL, originals, listed, Recover(id=marker.prune_id, include_line_numbers=True))

    assert whole.encode() == b"".join(PARTS)
    assert numbered.split("\n")[0] == "11│ line 11"


@pytest.mark.parametrize(
    "asked", [{"start_line": 3, "end_line": 4}, {"start_line": 17, "end_line": 18}, {"start_char": 1}]
)
async def test_what_is_not_in_the_parts_is_refused_with_what_is(asked: dict[str, int]):
    originals = MemoryOriginals()
    marker = await kept(originals)
    listed = await originals.get(LOCAL, marker.prune_id)

    with pytest.raises(InvalidRange, match=r"lines 11 to 16|stored in parts"):
        await read_parts(LOCAL, originals, listed, Recover.model_validate({"id": marker.prune_id, **asked}))


async def test_a_single_part_needs_no_list():
    originals = MemoryOriginals()
    marker = await kept(originals, PARTS[:1])

    assert (await originals.get(LOCAL, marker.prune_id)).text == PARTS[0]


async def test_the_command_reads_parts_by_the_same_numbers(tmp_path: Path):
    home = tmp_path / "state"
    store = await SqliteStore.open(home, ttl_s=3600, max_bytes=2**30, timeout_s=60)
    try:
        marker = await kept(store.originals)
    finally:
        await store.close()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "KIMI_PROXY_HOME": str(home)}
    some = Cli(tmp_path, env)("recover", marker.prune_id, "14-15")
    whole = Cli(tmp_path, env)("recover", marker.prune_id)

    assert (some.returncode, some.stdout) == (0, b"line 14\nline 15\n")
    assert (whole.returncode, whole.stdout) == (0, b"".join(PARTS))

"""Project memory is in the store, by person; a file of before is read into it once."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from tests.support.fakes import Clock
from tests.support.services.store.making import opened

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.errors import InvalidParams, StoreUnavailable
from kimi_proxy.core.json import JsonValue
from kimi_proxy.services.chat.memory import NAME, Memories, MemoryContent
from kimi_proxy.team.tables import team_tables

LIMIT = 65_536
NOW = 1_800_000_000.0
ADA = Caller("person/per_ada", "ada", is_admin=False, person_id="per_ada")
SHARING = Caller("team/x", "ada", "x", is_admin=False, also_reads=(ADA.scope,), person_id="per_ada")
BEN = Caller("person/per_ben", "ben", is_admin=False, person_id="per_ben")


@asynccontextmanager
async def memories(home: Path, limit: int = LIMIT) -> AsyncIterator[Memories]:
    async with opened(home) as store:
        yield Memories(store.project_memory, home, limit, Clock(NOW), user_home=lambda: home / "user")


def in_user_home(home: Path) -> Path:
    return home / "user" / ".kimi-proxy" / NAME


def of_team(home: Path, who: Caller) -> Path:
    """Return where an earlier version kept the memory of a person of a team."""
    return home / "team" / sha256(who.scope.encode()).hexdigest() / NAME


def put(path: Path, raw: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("content", ["tabs 🦊", "\\ud800", {"style": ["tabs"], "port": 8000}, "", None])
async def test_what_was_saved_is_read_again_after_a_restart(tmp_path: Path, content: JsonValue):
    async with memories(tmp_path) as here:
        assert await here.write(LOCAL, content) == MemoryContent(content, NOW)
    async with memories(tmp_path) as here:
        assert await here.read(LOCAL) == MemoryContent(content, NOW)


async def test_everyone_has_their_own_also_where_a_team_shares_its_texts(tmp_path: Path):
    async with memories(tmp_path) as here:
        await here.write(ADA, "tabs")
        await here.write(BEN, "spaces")

        assert [(await here.read(who)).content for who in (ADA, SHARING, BEN, LOCAL)] == ["tabs", "tabs", "spaces", ""]
        assert await here.people() == {"per_ada", "per_ben"}


async def test_half_a_character_is_not_saved_because_providers_refuse_it(tmp_path: Path):
    async with memories(tmp_path) as here:
        await here.write(LOCAL, "whole")
        with pytest.raises(InvalidParams, match="surrogate"):
            await here.write(LOCAL, ["half \ud83e of a fox"])

        assert (await here.read(LOCAL)).content == "whole"


async def test_too_much_is_refused_and_what_was_there_stays(tmp_path: Path):
    async with memories(tmp_path) as here:
        await here.write(LOCAL, "before")
        with pytest.raises(InvalidParams, match="max_bytes"):
            await here.write(LOCAL, "x" * LIMIT)

        assert (await here.read(LOCAL)).content == "before"


async def test_without_anything_there_is_nothing_and_no_trouble(tmp_path: Path):
    async with memories(tmp_path) as here:
        assert await here.read(LOCAL) == MemoryContent()
        assert await here.people() == frozenset()


@pytest.mark.parametrize(
    ("raw", "content", "updated"),
    [
        (b'{"content": "by hand"}', "by hand", None),
        (b'{"content": "of before", "updated": 1.5}', "of before", 1.5),
        (b'{"content": "a", "updated": 1e300}', "a", None),
        (b'{"style": "tabs"}', {"style": "tabs"}, None),
        (b'["a", "b"]', ["a", "b"], None),
    ],
)
async def test_a_file_is_read_once_whoever_wrote_it(
    tmp_path: Path, raw: bytes, content: JsonValue, updated: float | None
):
    file = put(tmp_path / NAME, raw)
    async with memories(tmp_path) as here:
        assert await here.people() == {""}
        first = await here.read(LOCAL)
        file.write_bytes(b'{"content": "changed afterwards"}')
        again = await here.read(LOCAL)

    assert first == again == MemoryContent(content, updated)


async def test_the_file_in_the_users_home_is_read_where_our_own_folder_has_none(tmp_path: Path):
    put(in_user_home(tmp_path), b'{"content": "at home"}')
    async with memories(tmp_path) as here:
        assert (await here.read(LOCAL)).content == "at home"
    async with memories(tmp_path / "other") as here:
        put(in_user_home(tmp_path / "other"), b'{"content": "at home"}')
        put(tmp_path / "other" / NAME, b'{"content": "ours"}')
        assert (await here.read(LOCAL)).content == "ours"


async def test_no_file_comes_back_after_the_memory_was_cleared(tmp_path: Path):
    put(tmp_path / NAME, b'{"content": "of before"}')
    async with memories(tmp_path) as here:
        await here.write(LOCAL, "")

        assert (await here.read(LOCAL)).content == ""


async def test_the_file_of_a_person_of_a_team_is_read_once_and_does_not_outlive_them(tmp_path: Path):
    file = put(of_team(tmp_path, ADA), b'{"content": "tabs"}')
    put(tmp_path / NAME, b'{"content": "of the machine"}')
    async with memories(tmp_path) as here:
        assert (await here.read(SHARING)).content == "tabs"
        assert (await here.read(BEN)).content == ""

    assert not file.parent.exists()


@pytest.mark.parametrize("raw", [b"", b"{", b"\x00\xff", b'{"content": "' + b"x" * LIMIT + b'"}'])
async def test_a_file_of_garbage_is_reported_until_something_is_saved(tmp_path: Path, raw: bytes):
    path = put(tmp_path / NAME, raw)
    async with memories(tmp_path) as here:
        found = await here.read(LOCAL)
        await here.write(LOCAL, "new")
        saved = await here.read(LOCAL)

    assert (found.content, str(path) in found.trouble) == ("", True)
    assert saved == MemoryContent("new", NOW)
    assert path.read_bytes() == raw


async def test_a_directory_in_its_place_is_reported(tmp_path: Path):
    (tmp_path / NAME).mkdir()
    async with memories(tmp_path) as here:
        assert "not a file" in (await here.read(LOCAL)).trouble


async def test_nothing_is_saved_for_a_person_whose_data_was_erased(tmp_path: Path):
    async with opened(tmp_path) as store:
        here = Memories(store.project_memory, tmp_path, LIMIT)
        await team_tables(store).erase_person(ADA.person_id, [ADA.scope], 1.0)
        with pytest.raises(StoreUnavailable, match="erased"):
            await here.write(ADA, "tabs")
        assert await here.read(ADA) == MemoryContent()

        await here.write(replace(ADA, person_id="per_next"), "spaces")
        assert await store.project_memory.people() == {"per_next"}


async def test_of_many_saves_at_once_one_stands_whole(tmp_path: Path):
    contents = [str(number) * 20_000 for number in range(10)]
    async with memories(tmp_path) as here:
        await asyncio.gather(*(here.write(LOCAL, each) for each in contents))

        assert (await here.read(LOCAL)).content in contents


SAVER = """
import asyncio, sys
from pathlib import Path
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.services.chat.memory import Memories
from kimi_proxy.services.store.sqlite.store import SqliteStore

async def save_forever():
    home, number = Path(sys.argv[1]), 0
    store = await SqliteStore.open(home, ttl_s=1e9, max_bytes=2**24, timeout_s=60.0)
    memories = Memories(store.project_memory, home, 65_536)
    while True:
        await memories.write(LOCAL, str(number % 10) * 50_000)
        print(number, flush=True)
        number += 1

asyncio.run(save_forever())
"""


async def test_whoever_is_killed_while_saving_leaves_it_whole(tmp_path: Path):
    for saves in (1, 3, 8):
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", SAVER, str(tmp_path), stdout=PIPE)
        assert child.stdout is not None
        for _ in range(saves):
            await child.stdout.readline()
        child.kill()
        await child.wait()

        async with memories(tmp_path) as here:
            found = (await here.read(LOCAL)).content
        assert isinstance(found, str)
        assert (len(found), len(set(found))) == (50_000, 1)

"""A proxy that is killed while it notes requests."""

import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.faults.journal_keeper import AT_ONCE, SESSIONS
from tests.faults.lives import lines, living
from tests.support.deep import IS_DEEP
from tests.support.faults.symptoms import integrity
from tests.support.services.store.making import opened

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.services.store.sqlite.store import store_path

LIVES = 60 if IS_DEEP else 3


async def live_and_die(home: Path, chance: random.Random) -> int:
    """How many requests a process said were written before it was killed at a moment that nobody chose."""
    with living("journal_keeper", str(home)) as keeper:
        said = "".join(await lines(keeper, chance.randrange(1, 6)))
        await asyncio.sleep(chance.uniform(0, 0.02))
        keeper.kill()
        said += keeper.stdout.read().decode()
    return int(said.rpartition("\n")[0].split()[-1])


async def test_a_killed_proxy_loses_only_what_was_not_written_yet_and_breaks_nothing(tmp_path: Path) -> None:
    chance = random.Random(5)
    for _ in range(LIVES):
        before = await count(tmp_path)
        written = await live_and_die(tmp_path, chance)
        assert before + written <= await count(tmp_path) <= before + written + AT_ONCE
        assert integrity(store_path(tmp_path)) == [("ok",)]
        assert sums(store_path(tmp_path)) == sums_of_requests(store_path(tmp_path))
    assert [*store_path(tmp_path).parent.glob("*corrupt*")] == []


async def count(home: Path) -> int:
    async with opened(home) as store:
        return sum(session.requests for session in await store.sessions.newest(LOCAL, SESSIONS + 1))


def sums(path: Path) -> list[tuple[object, ...]]:
    """What the sessions say."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            "SELECT id, requests, input_tokens, output_tokens FROM sessions ORDER BY id"
        ).fetchall()


def sums_of_requests(path: Path) -> list[tuple[object, ...]]:
    """What their requests say."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            """SELECT session_id, count(*), sum(input_tokens), sum(output_tokens)
               FROM metrics GROUP BY session_id ORDER BY session_id"""
        ).fetchall()

"""A primary that fails and a standby that takes its place: nothing that was cut is lost, and cutting goes on."""

import asyncio
from itertools import count, pairwise
from pathlib import Path

import psycopg
from tests.support.conversations import Assistant, Item
from tests.support.replicas.fleet import cut_ids
from tests.support.replicas.world import ReplicaWorld, replicated, turn
from tests.support.services.store.postgres_server import controlled, standby

PATIENCE_S = 120
WHILE_AWAY = 4  # requests


async def _is_cut(here: ReplicaWorld, at: int, number: int) -> list[str]:
    """Send a new conversation, and return the ids of what was cut in it."""
    assert (await here.ask(at, turn(number))).status_code == 200
    return cut_ids(here.provider.heard[-1].body)


async def test_a_standby_that_takes_over_serves_old_ids_and_cutting_goes_on(tmp_path: Path) -> None:
    items: list[Item] = []
    short = "[store]\ntimeout_ms = 2000\n"
    with controlled() as primary, standby(primary) as second:
        url = f"postgresql:///postgres?host={primary.home},{second.home}&user=kimi&target_session_attrs=read-write"
        async with replicated(url, tmp_path, settings=short) as here:
            for at in (0, 1):
                items += turn(at)
                await here.ask(at, items, "s")
                items.append(Assistant("I see."))
            before = set(cut_ids(here.provider.heard[-1].body))
            primary.crash()

            whole = [await _is_cut(here, number % 2, 100 + number) for number in range(WHILE_AWAY)]
            with psycopg.connect(second.url, autocommit=True) as connection:
                connection.execute("SELECT pg_promote()")
            numbers = count(200)  # what was sent whole stays so
            async with asyncio.timeout(PATIENCE_S):
                for at in (0, 1):
                    while not await _is_cut(here, at, next(numbers)):
                        continue
            began = len(here.provider.heard)
            for at in (0, 1):
                items += turn(10 + at)
                await here.ask(at, items, "s")
                items.append(Assistant("I see."))
            texts = {(await one.http.get(f"/api/mask/{id}")).json()["text"] for id in before for one in here.replicas}
            sent = here.left()

    assert whole == [[]] * WHILE_AWAY
    assert texts == {items[2].text, items[6].text}  # type: ignore[union-attr]
    # The conversation goes on in the bytes in which it began.
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise([sent[1], *sent[began:]]))

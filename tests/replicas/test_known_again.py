"""A conversation is known again on whichever server its next request arrives."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.api.proxy_world import Proxy
from tests.support.conversations import Assistant, Item, User
from tests.support.replicas.world import replicated, turn
from tests.support.services.store.postgres_server import serving

from kimi_proxy.core.caller import LOCAL

WORDS = "Make the tests pass."


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as url:
        yield url


async def until_known(replica: Proxy, results: int) -> None:
    """Wait until a conversation and its results are written, which takes a moment."""
    async with asyncio.timeout(60):
        while len(await replica.runtime.store.facts.keys(LOCAL, "conversation", 100)) < 1 + results:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def reminded(day: str, turns: int) -> list[Item]:
    """A conversation whose client puts the date before the first words."""
    items: list[Item] = [User(f"<system-reminder>\nToday is {day}.\n</system-reminder>\n{WORDS}")]
    for number in range(turns):
        items += turn(number)[1:]
    return items


async def test_a_new_day_on_another_server_leaves_the_cuts(server: str, tmp_path: Path):
    async with replicated(server, tmp_path) as here:
        for turns in range(4):
            await here.ask(turns % 2, reminded("Monday", turns), "one")
        await here.ask(0, reminded("Tuesday", 3), "one")
        await here.ask(1, [*reminded("Tuesday", 3), Assistant("I see."), User("Go on.")], "one")
    *_, before, after, later = here.left()

    assert all(b"PRUN" in message for message in before[3::2])
    assert len(before) == len(after) and all(b"PRUN" in message for message in after[3::2])
    assert later[: len(after)] == after


@pytest.mark.parametrize("through", [0, 1])
async def test_a_fork_on_another_server_goes_on_as_its_parent_did(server: str, tmp_path: Path, through: int):
    async with replicated(server, tmp_path) as here:
        for turns in range(4):
            await here.ask(0, reminded("Monday", turns), "one")
        parent = here.left()[-1]
        await until_known(here.replicas[1], results=3)
        await here.ask(through, [*reminded("Monday", 3), Assistant("I see."), User("Go on.")], "two")
        await here.ask(1 - through, [*reminded("Monday", 3), Assistant("I see."), User("Go on.")], "two")
    *_, fork, again = here.left()

    assert all(b"PRUN" in message for message in parent[3::2])
    assert fork[: len(parent)] == parent
    assert again == fork

"""Servers that are killed, or whose store hangs, change nothing that a provider still has in its prompt cache."""

import json
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from itertools import accumulate
from pathlib import Path

import pytest
from tests.faults.lives import lines, living
from tests.support.cached_days import CLAUDE, FREE, a_day, changed_prefixes, toml
from tests.support.cached_providers import CachedProvider
from tests.support.deep import deep
from tests.support.evil import Evil, Heard, Line, evil
from tests.support.fakes import Clock
from tests.support.services.store.postgres_server import serving, url_of

from kimi_proxy.assembly.runtime import running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import parse
from kimi_proxy.services.chat.requests import ChatRequest

BEGAN = 1_800_000_000.0
KILLS = 4
HUNG = range(15, 22)  # requests during which the store does not answer


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as url:
        yield url


@asynccontextmanager
async def provider_of_a_day() -> AsyncIterator[tuple[CachedProvider, Evil]]:
    """A provider with the clock of a day: which request it is, and so when, it sees by how long it is."""
    ends = list(accumulate(pause_s for pause_s, _ in a_day(CLAUDE)))
    clock = Clock(BEGAN)
    provider = CachedProvider(clock, CLAUDE.cache, CLAUDE.prices)

    async def answer(heard: Heard, line: Line) -> None:
        number = (len(json.loads(heard.body)["messages"]) - 1) // 2
        clock.now = BEGAN + ends[number]
        await provider.answer(heard, line)

    async with evil(answer) as upstream:
        yield provider, upstream


@deep("it kills servers again and again: minutes")
@pytest.mark.parametrize("database", ["SQLite", "PostgreSQL"])
async def test_servers_that_are_killed_change_no_warm_prefix(database: str, tmp_path: Path, server: str):
    chance, total, first = random.Random(5), len(a_day(CLAUDE)), 0
    url = [url_of(server, tmp_path)] if database == "PostgreSQL" else []
    settings = tmp_path / "config.toml"
    async with provider_of_a_day() as (provider, upstream):
        settings.write_text(toml(upstream.toml("anthropic"), CLAUDE))
        for kill in [*sorted(chance.sample(range(1, total), KILLS)), total]:
            with living("cache_sender", str(tmp_path), str(settings), str(first), str(BEGAN), *url) as sender:
                seen = await lines(sender, kill - first)  # then it is killed, or has ended
            assert [int(line) for line in seen] == list(range(first, kill))
            first = kill
    # A request that was on its way when its server was killed is sent again.
    prompts = [prompt for at, prompt in enumerate(provider.prompts) if prompt not in provider.prompts[at + 1 : at + 2]]

    assert len(prompts) == total
    assert changed_prefixes(prompts) <= FREE


@deep("it kills servers again and again: minutes")
async def test_three_servers_with_one_database_change_no_warm_prefix(tmp_path: Path, server: str):
    chance, clock = random.Random(3), Clock(BEGAN)
    provider = CachedProvider(clock, CLAUDE.cache, CLAUDE.prices)
    async with evil(provider.answer) as upstream, AsyncExitStack() as alive:
        env = {"KIMI_PROXY_DATABASE_URL": url_of(server, tmp_path)}
        settings = toml(upstream.toml("anthropic"), CLAUDE)
        servers = [
            await alive.enter_async_context(
                running(parse(settings, env, tmp_path / str(at)), thread_max_chars=10**9, now=clock)
            )
            for at in range(3)
        ]
        for pause_s, raw in a_day(CLAUDE):
            clock.advance(pause_s)
            request = ChatRequest(LOCAL, CLAUDE.wire, raw)
            async with chance.choice(servers).chat.answer(request) as answer:
                assert answer.status == 200

    assert changed_prefixes(provider.prompts) <= FREE
    assert provider.refused == []


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Another program holds the database, and nothing can be written to it."""
    connection = sqlite3.connect(file, isolation_level=None, timeout=60)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


@deep("it kills servers again and again: minutes")
async def test_a_store_that_hangs_changes_no_warm_prefix(tmp_path: Path):
    clock = Clock(time.time())
    provider = CachedProvider(clock, CLAUDE.cache, CLAUDE.prices)
    async with evil(provider.answer) as upstream:
        settings = toml(upstream.toml("anthropic"), CLAUDE).replace("budget_ms = 60_000", "budget_ms = 200")
        config = parse(settings + "[store]\ntimeout_ms = 300\n", {}, tmp_path)
        async with running(config, thread_max_chars=10**9, now=clock) as runtime:
            for number, (pause_s, raw) in enumerate(a_day(CLAUDE)):
                clock.advance(pause_s)
                with locked(tmp_path / "store" / "originals.sqlite3") if number in HUNG else nullcontext():
                    async with runtime.chat.answer(ChatRequest(LOCAL, CLAUDE.wire, raw)) as answer:
                        assert answer.status == 200

    assert changed_prefixes(provider.prompts) <= FREE

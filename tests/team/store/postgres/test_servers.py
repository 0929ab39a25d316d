"""Several servers with one database: they agree, they wait for none, and what is away is used again when it is back."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.support.services.store.making import an_original
from tests.support.services.store.postgres_server import opened, serving, url_of

from kimi_proxy.assembly.store import open_store
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import ConfigError, StoreUnavailable
from kimi_proxy.services.store.protocols import DecisionRecord


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as url:
        yield url


async def test_what_one_server_keeps_another_gives_back(server: str, tmp_path: Path) -> None:
    original = an_original(b"one\n\xed\xa0\x80two\x00")
    async with opened(server, tmp_path) as one, opened(server, tmp_path) as other:
        await one.originals.keep(original)
        assert await other.originals.get(LOCAL, original.id) == original


async def test_servers_that_decide_at_once_agree_on_the_first_decision(server: str, tmp_path: Path) -> None:
    keys = [bytes([n]) * 32 for n in range(20)]
    async with opened(server, tmp_path) as one, opened(server, tmp_path) as other:
        decided = await asyncio.gather(
            *(
                store.decisions.add(LOCAL, [DecisionRecord(key, "pruned", f"{name} {n}".encode()) for key in keys])
                for n in range(5)
                for name, store in (("one", one), ("other", other))
            )
        )
        later = await other.decisions.get(LOCAL, keys)

    assert all(
        {key: record.shown for key, record in each.items()} == {k: r.shown for k, r in later.items()}
        for each in decided
    )


async def test_tables_are_made_once_by_servers_that_start_at_once(server: str, tmp_path: Path) -> None:
    async def start() -> str:
        async with opened(server, tmp_path) as store:
            return (await store.usage()).state

    assert set(await asyncio.gather(*(start() for _ in range(6)))) == {"ok"}


async def test_tables_of_a_newer_version_refuse_the_start_in_one_line(server: str, tmp_path: Path) -> None:
    async with opened(server, tmp_path) as store:
        assert (await store.usage()).state == "ok"
    with psycopg.connect(url_of(server, tmp_path)) as connection:
        connection.execute("INSERT INTO schema_version VALUES (99)")
    with pytest.raises(ConfigError, match="newer kimi-proxy") as refused:
        async with opened(server, tmp_path):
            pass
    assert "\n" not in str(refused.value)


async def test_connections_that_the_database_ends_are_replaced(server: str, tmp_path: Path) -> None:
    original = an_original()
    async with opened(server, tmp_path) as store:
        await store.originals.keep(original)
        with psycopg.connect(server) as connection:
            connection.execute(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE pid <> pg_backend_pid() AND usename = 'kimi'"""
            )
        assert await store.originals.get(LOCAL, original.id) == original


async def test_a_database_that_is_away_costs_a_bounded_time_and_is_named_without_its_password(tmp_path: Path) -> None:
    url = f"postgresql://kimi:secret@/nothing?host={tmp_path}"
    settings = {"KIMI_PROXY_DATABASE_URL": url, "KIMI_PROXY__STORE__TIMEOUT_MS": "1000"}
    store = await open_store(parse("", settings, tmp_path))
    try:
        async with asyncio.timeout(60):
            with pytest.raises(StoreUnavailable, match="PostgreSQL"):
                await store.originals.keep(an_original())
            usage = await store.usage()
    finally:
        await store.close()

    assert usage.state.startswith("degraded: PostgreSQL")
    assert "secret" not in f"{usage}"


async def test_without_its_package_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("psycopg", "kimi_proxy.team.store.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"kimi-proxy\[team\]"):
        await open_store(parse("", {"KIMI_PROXY_DATABASE_URL": "postgresql:///x"}, tmp_path))

"""Servers whose connections go through PgBouncer in transaction mode."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from tests.support.services.store.making import MAX_BYTES, TTL_S
from tests.support.services.store.pooler import pooled
from tests.support.services.store.postgres_server import PostgresServer, controlled

from kimi_proxy.core.addresses import Address
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.services.store.protocols import Original, StoredEvent
from kimi_proxy.team.store.postgres.database import Pooling
from kimi_proxy.team.store.postgres.store import PostgresStore

ROUNDS = 160  # psycopg prepares a statement that a connection executes for the sixth time


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with controlled("synchronous_commit=off") as running:
        yield running


@pytest.fixture(scope="module")
def pooler(server: PostgresServer) -> Iterator[str]:
    with pooled(server) as url:
        yield url


def original(name: str, number: int) -> Original:
    words = f"{name} {number}".encode()
    return Original(f"prn_{name}{number:04}", LOCAL.scope, words, words, b"{}")


@asynccontextmanager
async def store(url: str, pooling: Pooling) -> AsyncIterator[PostgresStore]:
    opened = await PostgresStore.open(Address(url), ttl_s=TTL_S, max_bytes=MAX_BYTES, timeout_s=60.0, pooling=pooling)
    try:
        yield opened
    finally:
        await opened.close()


async def test_every_call_succeeds_through_a_transaction_pooler(pooler: str):
    behind = Pooling(size=4, is_transactional=True)
    async with store(pooler, behind) as one, store(pooler, behind) as other:
        await asyncio.gather(*((one, other)[n % 2].originals.keep(original("call", n)) for n in range(ROUNDS)))
        found = await asyncio.gather(
            *((other, one)[n % 2].originals.get(LOCAL, original("call", n).id) for n in range(ROUNDS))
        )

    assert found == [original("call", n) for n in range(ROUNDS)]


async def test_an_original_waits_for_the_disk_whatever_the_connection_was_told_before(
    server: PostgresServer, pooler: str
):
    """A pooler forgets settings of a session, and this server's default does not wait."""
    async with store(pooler, Pooling(is_transactional=True)) as one:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(
                """CREATE TABLE IF NOT EXISTS seen (setting TEXT);
                   CREATE OR REPLACE FUNCTION note_setting() RETURNS trigger LANGUAGE plpgsql AS $$
                     BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
                   CREATE OR REPLACE TRIGGER noting AFTER INSERT ON record
                     FOR EACH ROW EXECUTE FUNCTION note_setting()"""
            )
            for n in range(ROUNDS):
                await one.originals.keep(original("disk", n))
            seen = connection.execute("SELECT setting, count(*) FROM seen GROUP BY 1").fetchall()
            connection.execute("DROP TRIGGER noting ON record")

    assert seen == [("on", ROUNDS)]


@pytest.mark.parametrize("has_listen_url", [True, False], ids=["by an address of its own", "by asking again"])
async def test_live_events_of_other_servers_arrive_behind_a_pooler(
    has_listen_url: bool, server: PostgresServer, pooler: str
):
    behind = Pooling(is_transactional=True, listen_url=Address(server.url if has_listen_url else ""))
    received: asyncio.Queue[StoredEvent] = asyncio.Queue()
    async with store(pooler, behind) as one, store(pooler, behind) as other:
        following = asyncio.create_task(other.replicas.follow(received.put_nowait))
        try:
            async with asyncio.timeout(60):
                while received.empty():  # the other may not follow yet
                    one.replicas.publish(StoredEvent("metric", 1.0, {"n": 1}, LOCAL.scope))
                    await asyncio.sleep(0.1)
                event = await received.get()
        finally:
            following.cancel()
            await asyncio.wait([following])

    assert (event.name, event.fields) == ("metric", {"n": 1})


async def test_a_server_opens_no_more_connections_than_its_pool_has(server: PostgresServer):
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE apart")
        async with store(server.url.replace("/postgres?", "/apart?"), Pooling(size=3)) as one:
            await asyncio.gather(*(one.originals.keep(original("pool", n)) for n in range(ROUNDS)))
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = 'apart' AND application_name = 'kimi-proxy'"
            ).fetchone()

    assert row is not None
    assert 1 <= row[0] <= 3

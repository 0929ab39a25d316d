"""A database that is full, read-only, slow or away: calls end in time, and work again when it does."""

import asyncio
import logging
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.support.processes import until
from tests.support.services.store.making import an_original
from tests.support.services.store.postgres_server import PostgresServer, controlled, opened, url_of

from kimi_proxy.core.addresses import Address
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import ConfigError, StoreUnavailable
from kimi_proxy.team.store.postgres import database
from kimi_proxy.team.store.postgres.store import PostgresStore

PATIENCE_S = 60
RESUMES_S = 5.0  # after which cutting goes on, at the latest

_FULL = """
CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON record FOR EACH ROW EXECUTE FUNCTION no_room();
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with controlled() as running:
        yield running


async def _keeps_again(store: PostgresStore) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await store.originals.keep(an_original(b"later\n"))
            except StoreUnavailable:
                await asyncio.sleep(0.05)


async def test_a_full_disk_refuses_what_is_new_and_gives_back_what_is_kept(
    server: PostgresServer, tmp_path: Path
) -> None:
    original = an_original()
    async with opened(server.url, tmp_path) as store:
        await store.originals.keep(original)
        with psycopg.connect(url_of(server.url, tmp_path), autocommit=True) as connection:
            connection.execute(_FULL)
            with pytest.raises(StoreUnavailable, match="No space left"):
                await store.originals.keep(an_original(b"new\n"))
            assert await store.originals.get(LOCAL, original.id) == original
            assert await store.originals.live(LOCAL, [original.id]) == {original.id}
            connection.execute("DROP TRIGGER full_disk ON record")
        await _keeps_again(store)


async def test_a_database_that_became_read_only_gives_back_and_heals(server: PostgresServer, tmp_path: Path) -> None:
    original = an_original()
    async with opened(server.url, tmp_path) as store:
        await store.originals.keep(original)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
            connection.execute(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE pid <> pg_backend_pid() AND usename = 'kimi'"""
            )
            try:
                with pytest.raises(StoreUnavailable, match="read-only"):
                    await store.originals.keep(an_original(b"new\n"))
                assert await store.originals.get(LOCAL, original.id) == original
            finally:
                connection.execute("SET default_transaction_read_only = off")
                connection.execute("ALTER DATABASE postgres RESET default_transaction_read_only")
        await _keeps_again(store)


async def test_a_slow_database_costs_no_more_than_the_timeout(server: PostgresServer, tmp_path: Path) -> None:
    async with opened(server.url, tmp_path, timeout_s=0.5) as store:
        await _keeps_again(store)
        with psycopg.connect(url_of(server.url, tmp_path)) as connection:
            connection.execute("LOCK TABLE text IN ACCESS EXCLUSIVE MODE")
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match=r"within 0\.5 s"):
                await store.originals.keep(an_original(b"new\n"))
            took = time.monotonic() - began
        await _keeps_again(store)
    assert took < 30  # a hang would take for ever


async def test_a_restart_refuses_calls_at_once_and_is_over_with_the_next_attempt(
    server: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Counted in attempts, because a busy machine makes seconds long."""
    caplog.set_level(logging.DEBUG, database.log.name)
    original = an_original()

    def failed() -> int:
        return [record.message for record in caplog.records].count("store_still_away")

    async with opened(server.url, tmp_path) as store:
        await store.originals.keep(original)
        server.stop()
        try:
            for _ in range(20):  # the first may wait for its connection, none after it
                with pytest.raises(StoreUnavailable, match="PostgreSQL"):
                    await store.originals.keep(an_original(b"new\n"))
            assert (await store.usage()).state.startswith("degraded: PostgreSQL")
            await until(lambda: failed() >= 2)
        finally:
            server.start()
        before = failed()
        await _keeps_again(store)
        assert failed() - before <= 1  # one that had begun while it was away
        assert await store.originals.get(LOCAL, original.id) == original

    assert database.CONNECT_S + database.RETRY_S <= RESUMES_S / 2


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cr%zzt@db/x",
        "postgresql://ann:s3cr/et@db/x",
        "postgresql://db/x?s3cret",
        "postgresql://db:s3c-ret/x",
    ],
)
async def test_an_address_that_is_none_is_refused_without_repeating_it(url: str):
    """libpq's own message repeats the part that it cannot read, or all of it."""
    with pytest.raises(ConfigError) as caught:
        await PostgresStore.open(Address(url), ttl_s=60.0, max_bytes=1 << 30, timeout_s=2.0)

    said = "".join(traceback.format_exception_only(caught.value))
    assert [each for each in ("zz", "s3c", "ann") if each in said] == []
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    assert "KIMI_PROXY_DATABASE_URL" in str(caught.value)

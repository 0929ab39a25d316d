"""A dump of the database, restored into an empty one, serves the ids that were given out before."""

import asyncio
import subprocess
from pathlib import Path

import psycopg
from tests.support.deep import deep
from tests.support.services.store.making import TTL_S, a_session, an_original
from tests.support.services.store.postgres_server import controlled, opened

from kimi_proxy.core.addresses import Address
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.services.store.protocols import DecisionRecord
from kimi_proxy.team.store.postgres.store import PostgresStore

DECISION = DecisionRecord(b"k" * 32, "pruned", b"kept\n", ("prn_1",), "kept", "ses_a", 900, 90)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, timeout=120)


@deep("it dumps a database and restores it: 10 s")
async def test_a_restored_dump_serves_old_ids(tmp_path: Path) -> None:
    originals = [an_original(f"text {number}\n\0".encode()) for number in range(20)]
    with controlled() as server:
        async with opened(server.url, tmp_path) as store:
            for original in originals:
                await store.originals.keep(original)
            await store.decisions.add(LOCAL, [DECISION])
            await store.sessions.write([a_session()], [])
        dump = str(tmp_path / "kimi.dump")
        await asyncio.to_thread(_run, server.programs / "pg_dump", "-Fc", "-f", dump, server.url)
        with psycopg.connect(server.url, autocommit=True) as connection:
            name = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'h\\_%'").fetchone()
            connection.execute("CREATE DATABASE restored")
        restored = server.url.replace("///postgres", "///restored")
        await asyncio.to_thread(_run, server.programs / "pg_restore", "-d", restored, dump)
        assert name is not None
        url = f"{restored}&options=-csearch_path%3D{name[0]}"
        store = await PostgresStore.open(Address(url), ttl_s=TTL_S, max_bytes=1 << 30, timeout_s=30.0)
        try:
            found = [await store.originals.get(LOCAL, original.id) for original in originals]
            decided = await store.decisions.get(LOCAL, [DECISION.key])
            sessions = await store.sessions.newest(LOCAL, 9)
            usage = await store.usage()
        finally:
            await store.close()

    assert found == originals
    assert decided[DECISION.key].shown == DECISION.shown
    assert [session.id for session in sessions] == ["ses_a"]
    assert (usage.state, usage.originals) == ("ok", 20)

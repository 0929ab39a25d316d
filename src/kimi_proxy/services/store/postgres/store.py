"""The store in PostgreSQL, shared by every server that has the same database."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from kimi_proxy.core.config import without_password
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.encryption import TextCipher
from kimi_proxy.services.store.postgres.database import Pooling, PostgresDatabase
from kimi_proxy.services.store.postgres.originals import PostgresOriginals
from kimi_proxy.services.store.postgres.replicas import PostgresReplicas
from kimi_proxy.services.store.postgres.tables import PostgresDecisions, PostgresSessions, PostgresTeam
from kimi_proxy.services.store.protocols import AuditNote, StoreUsage
from kimi_proxy.services.store.sql import WallClock, reencrypt
from kimi_proxy.services.store.sql.decisions import SqlFacts

SWEEP_S = 60.0


class PostgresStore:
    def __init__(self, database: PostgresDatabase, url: str, ttl_s: float, max_bytes: int) -> None:
        self._database = database
        self._url = url
        self._max_bytes = max_bytes
        self.originals = PostgresOriginals(database, ttl_s, max_bytes)
        self.decisions = PostgresDecisions(database, ttl_s)
        self.facts = SqlFacts(database, ttl_s)
        self.sessions = PostgresSessions(database)
        self.replicas = PostgresReplicas(database)
        self.team = PostgresTeam(database)
        self._tending: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        ttl_s: float,
        max_bytes: int,
        timeout_s: float,
        pooling: Pooling | None = None,
        now: Callable[[], float] = time.time,
        cipher: TextCipher | None = None,
    ) -> "PostgresStore":
        """Return the store; one whose database is away says so in `usage`, and works as soon as it is back.

        Raise ConfigError if a newer version has written its tables.
        """
        database = PostgresDatabase(url, WallClock(now, last_seen=0.0), timeout_s, pooling)
        database.cipher = cipher
        await database.open()
        store = cls(database, url, ttl_s, max_bytes)
        with suppress(StoreUnavailable):
            # A leap of the clock since the newest stamp in the database waits for a second look.
            database.clock = WallClock(now, await store.originals.newest_use())
        store._tending = asyncio.create_task(store._tend())
        return store

    def audit_by(self, note: AuditNote) -> None:
        self._database.note = note

    async def usage(self) -> StoreUsage:
        usage = StoreUsage(without_password(self._url), "ok", 0, 0, self._max_bytes, None, self.originals.commits, ())
        usage = replace(usage, pool=self._database.pool_usage)
        try:
            originals, size, oldest = await self.originals.count()
        except StoreUnavailable as e:
            return replace(usage, state=f"degraded: {e}")
        return replace(usage, originals=originals, bytes_on_disk=size, oldest=oldest)

    async def reencrypt(self) -> int:
        """Encrypt by the newest key whatever is not; return how many texts that were."""
        return await reencrypt(self._database)

    async def sweep(self) -> int:
        """Delete all that has expired and what does not fit the budget; return how many originals went."""
        total = 0
        for step in (self.originals.expire, self.originals.make_room):
            while gone := await step():
                total += gone
        await self.facts.sweep()
        return total

    async def close(self) -> None:
        if self._tending:
            self._tending.cancel()
            await asyncio.wait([self._tending])
        await self.replicas.close()
        await self._database.close()

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self._database.clock.look()
            with suppress(StoreUnavailable):
                await self.sweep()
                await self.replicas.sweep()

"""The store in PostgreSQL, shared by every server that has the same database."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from kimi_proxy.core.addresses import Address, show_address
from kimi_proxy.core.errors import ConfigError, StoreUnavailable
from kimi_proxy.services.store.protocols import AuditNote, StoreUsage
from kimi_proxy.services.store.sql import WallClock, refuse_foreign_texts
from kimi_proxy.services.store.sql.decisions import SqlFacts
from kimi_proxy.services.store.sql.memory import SqlMemory
from kimi_proxy.team.store.postgres.database import Pooling, PostgresDatabase
from kimi_proxy.team.store.postgres.originals import PostgresOriginals
from kimi_proxy.team.store.postgres.partitions import Partitions
from kimi_proxy.team.store.postgres.replicas import PostgresReplicas
from kimi_proxy.team.store.postgres.tables import PostgresDecisions, PostgresSessions, PostgresTeam

SWEEP_S = 60.0

log = logging.getLogger(__name__)


class PostgresStore:
    def __init__(self, database: PostgresDatabase, url: Address, ttl_s: float, max_bytes: int) -> None:
        self._database = database
        self._place = show_address(url)
        self._max_bytes = max_bytes
        self._partitions = Partitions(database)
        self.originals = PostgresOriginals(database, self._partitions, ttl_s, max_bytes)
        self.decisions = PostgresDecisions(database, ttl_s)
        self.facts = SqlFacts(database, ttl_s)
        self.project_memory = SqlMemory(database)
        self.sessions = PostgresSessions(database, self._partitions)
        self.replicas = PostgresReplicas(database)
        self.team = PostgresTeam(database)
        self.usage_by_day = self.team
        self._tending: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        url: Address,
        *,
        ttl_s: float,
        max_bytes: int,
        timeout_s: float,
        pooling: Pooling | None = None,
        now: Callable[[], float] = time.time,
    ) -> "PostgresStore":
        """Return the store; if its database is unavailable, `usage` reports it, and it works as soon as that is back.

        Raise ConfigError if this version cannot read its tables or its texts.
        """
        database = PostgresDatabase(url, WallClock(now, last_seen=0.0), timeout_s, pooling)
        await database.open()
        store = cls(database, url, ttl_s, max_bytes)
        try:
            await refuse_foreign_texts(database)
        except ConfigError:
            await database.close()
            raise
        with suppress(StoreUnavailable):
            # A leap of the clock since the newest stamp in the database waits for a second look.
            database.clock = WallClock(now, await store.originals.newest_use())
            await store._partitions.load()
        store._tending = asyncio.create_task(store._tend())
        return store

    def audit_by(self, note: AuditNote) -> None:
        self._database.note = note

    async def usage(self) -> StoreUsage:
        usage = StoreUsage(self._place, "ok", 0, 0, self._max_bytes, None, self.originals.commits, ())
        usage = replace(usage, pool=self._database.pool_usage)
        try:
            originals, size, oldest = await self.originals.count()
        except StoreUnavailable as e:
            return replace(usage, state=f"degraded: {e.full}")
        return replace(usage, originals=originals, bytes_on_disk=size, oldest=oldest)

    async def sweep(self) -> int:
        """Delete all that has expired and what does not fit the budget; return how many originals went."""
        # One of these that fails keeps no original from expiring.
        for step in (self._partitions.tend, self.replicas.sweep):
            try:
                await step()
            except StoreUnavailable as e:
                log.warning("store_sweep_failed", extra={"trouble": e.full[:300]})
        total = 0
        for delete in (self.originals.expire, self.originals.make_room):
            while gone := await delete():
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

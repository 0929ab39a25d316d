"""The store in one SQLite file, shared by every process that has the same home."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kimi_proxy.core.errors import ConfigError, StoreUnavailable
from kimi_proxy.services.store.protocols import AuditNote, StoreUsage
from kimi_proxy.services.store.sql import WallClock, refuse_foreign_texts
from kimi_proxy.services.store.sqlite.database import Connect, Database, connect, set_aside_files
from kimi_proxy.services.store.sqlite.originals import SqliteOriginals
from kimi_proxy.services.store.sqlite.peek import counts

if TYPE_CHECKING:
    from kimi_proxy.services.store.sql.decisions import SqlFacts
    from kimi_proxy.services.store.sql.memory import SqlMemory
    from kimi_proxy.services.store.sqlite.tables import SqliteDecisions, SqliteSessions, SqliteUsage

FLUSH_S = 5.0  # uses of originals are written this late at most
SWEEP_S = 60.0


def store_path(home: Path) -> Path:
    # In a directory of our own: other programs may need access to `home`.
    return home.absolute() / "store" / "originals.sqlite3"


class SqliteStore:
    replicas = None

    def __init__(self, database: Database, ttl_s: float, max_bytes: int) -> None:
        self.database = database
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self.originals = SqliteOriginals(database, ttl_s, max_bytes)
        self._tending = asyncio.create_task(self._tend())

    @classmethod
    async def open(
        cls,
        home: Path,
        *,
        ttl_s: float,
        max_bytes: int,
        timeout_s: float,
        now: Callable[[], float] = time.time,
        connect: Connect = connect,
    ) -> "SqliteStore":
        database = Database(store_path(home), now, timeout_s, connect)
        store = cls(database, ttl_s, max_bytes)
        with suppress(StoreUnavailable):
            async with database.timeout():
                await store.originals.flush()
                # A leap of the clock since the newest stamp on file waits for a second look.
                database.clock = WallClock(now, await store.originals.newest_use())
        try:
            await refuse_foreign_texts(database)
        except ConfigError:
            await store.close()
            raise
        return store

    # A command that prunes, or reads an original back, needs none of these, nor the accounting that they load.

    @cached_property
    def decisions(self) -> "SqliteDecisions":
        from kimi_proxy.services.store.sqlite.tables import SqliteDecisions

        return SqliteDecisions(self.database, self._ttl_s)

    @cached_property
    def facts(self) -> "SqlFacts[Database]":
        from kimi_proxy.services.store.sql.decisions import SqlFacts

        return SqlFacts(self.database, self._ttl_s)

    @cached_property
    def project_memory(self) -> "SqlMemory[Database]":
        from kimi_proxy.services.store.sql.memory import SqlMemory

        return SqlMemory(self.database)

    @cached_property
    def sessions(self) -> "SqliteSessions":
        from kimi_proxy.services.store.sqlite.tables import SqliteSessions

        return SqliteSessions(self.database)

    @cached_property
    def usage_by_day(self) -> "SqliteUsage":
        from kimi_proxy.services.store.sqlite.tables import SqliteUsage

        return SqliteUsage(self.database)

    def audit_by(self, note: AuditNote) -> None:
        self.database.note = note

    async def usage(self) -> StoreUsage:
        path = self.database.path
        commits = self.originals.commits
        usage = StoreUsage(str(path), "ok", 0, 0, self._max_bytes, None, commits, ())

        def read(connection: sqlite3.Connection) -> StoreUsage:
            originals, size, oldest = counts(connection)
            found = replace(usage, originals=originals, bytes_on_disk=size, oldest=oldest)
            return replace(found, set_aside=set_aside_files(path))

        try:
            usage = await self.database.read(read)
            trouble = self.database.trouble
        except StoreUnavailable as e:
            trouble = self.database.trouble or e
        return replace(usage, state=f"degraded: {trouble.full}") if trouble else usage

    async def sweep(self) -> int:
        """Write when originals were used and delete all that has expired; return how many originals went."""
        total = 0
        while gone := await self.originals.flush():
            total += gone
        if "facts" in self.__dict__:
            await self.facts.sweep()
        return total

    async def close(self) -> None:
        if self.database.is_closed:
            return
        self._tending.cancel()
        await asyncio.wait([self._tending])
        with suppress(StoreUnavailable):
            async with self.database.timeout():
                if self.originals.has_unwritten_uses:
                    await self.originals.flush()
                await self.database.drain()
        self.database.close()

    async def _tend(self) -> None:
        """Write uses soon, sweep now and then, and try again while something is wrong."""
        loop = asyncio.get_running_loop()
        swept = loop.time()
        while True:
            await asyncio.sleep(min(FLUSH_S, self._ttl_s / 10))
            # Between two looks that are far apart, time that has passed looks like a leap.
            self.database.clock.look()
            has_work = self.originals.has_unwritten_uses or self.database.trouble
            if has_work or loop.time() - swept >= SWEEP_S:
                with suppress(StoreUnavailable):
                    await self.sweep()
                swept = loop.time()

"""The store in one SQLite file, shared by every process that has the same home."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.protocols import Original, Usage
from kimi_proxy.services.store.sqlite.compressions import CompressionLog
from kimi_proxy.services.store.sqlite.database import Connect, Moment, connect, pack
from kimi_proxy.services.store.sqlite.decisions import Pinboard
from kimi_proxy.services.store.sqlite.originals import Retention, Shelf
from kimi_proxy.services.store.sqlite.sessions import Ledger
from kimi_proxy.services.store.sqlite.writer import Keep, Writer

T = TypeVar("T")

PATIENCE_S = 2.0
FLUSH_S = 5.0  # uses are written this late at most
SWEEP_S = 60.0
READERS = 4


async def open_store(
    home: Path,
    *,
    ttl_s: float,
    max_bytes: int,
    now: Callable[[], float] = time.time,
    patience_s: float = PATIENCE_S,
) -> "SqliteStore":
    """The store under `home`, made if it is missing. With a sick disk it says so, and heals by itself."""
    return await SqliteStore.open(store_path(home), Retention(ttl_s, max_bytes), now, patience_s)


def store_path(home: Path) -> Path:
    # In a directory of our own: `home` may be one that we have no business closing to others.
    return home.absolute() / "store" / "originals.sqlite3"


class SqliteStore:
    """A shelf that never blocks the event loop, and never keeps anybody longer than `patience_s`."""

    def __init__(self, shelf: Shelf, retention: Retention, patience_s: float) -> None:
        self._shelf = shelf
        self._retention = retention
        self._patience_s = patience_s
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        self._writer = Writer(shelf.commit, retention.max_bytes // 4)
        self._tending = asyncio.create_task(self._tend())
        self._is_closed = False
        self.ledger = Ledger(self)
        self.pinboard = Pinboard(self, retention.ttl_s)
        self.compressions = CompressionLog(self)

    @classmethod
    async def open(
        cls,
        path: Path,
        retention: Retention,
        now: Callable[[], float] = time.time,
        patience_s: float = PATIENCE_S,
        connect: Connect = connect,
    ) -> "SqliteStore":
        # Locks get a little less, so that we hear of them before we lose patience.
        store = cls(Shelf(path, retention, now, patience_s * 0.75, connect), retention, patience_s)
        with suppress(StoreUnavailable):
            async with store._patience():
                await store._writer.flush()
                await store._in_thread(store._shelf.trust_clock)
        return store

    async def find(self, scope: str, key: bytes) -> str | None:
        async with self._patience():
            return await self._in_thread(lambda: self._shelf.find(scope, key))

    async def keep(self, original: Original) -> None:
        async with self._patience():
            keep = Keep(original, await self._in_thread(lambda: pack(original.text)))
            if keep.room > self._retention.max_bytes // 4:
                raise StoreUnavailable("one text may take a quarter of store.max_bytes at most: raise it")
            await self._writer.keep(keep)
        if keep.is_refused:
            raise StoreUnavailable(f"{original.id} already names another original")

    async def original(self, scope: str, id: str) -> Original:
        async with self._patience():
            return await self._in_thread(lambda: self._shelf.original(scope, id))

    async def live(self, scope: str, ids: Collection[str]) -> frozenset[str]:
        async with self._patience():
            return await self._in_thread(lambda: self._shelf.live(scope, ids))

    async def usage(self) -> Usage:
        try:
            async with self._patience():
                return await self._in_thread(self._shelf.usage)
        except StoreUnavailable as e:
            return self._shelf.sick_usage(str(e))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        async with self._patience():
            return await self._in_thread(lambda: self._shelf.read(work))

    async def write(self, work: Callable[[sqlite3.Connection, Moment], T]) -> T:
        async with self._patience():
            return await self._writer.run(lambda: self._shelf.write(work))

    async def sweep(self) -> int:
        """Write what was used and let everything that has expired go; how many originals went."""
        total = 0
        while gone := await self._writer.flush():
            total += gone
        return total

    async def close(self) -> None:
        if self._is_closed:
            return
        self._tending.cancel()
        await asyncio.wait([self._tending])
        with suppress(StoreUnavailable):
            async with self._patience():
                if self._shelf.has_uses_to_write():
                    await self._writer.flush()
                await self._writer.close()
        self._is_closed = True
        self._readers.shutdown(wait=False)

    async def _tend(self) -> None:
        """Write uses soon, sweep now and then, and try again while something is wrong."""
        loop = asyncio.get_running_loop()
        swept = loop.time()
        while True:
            await asyncio.sleep(min(FLUSH_S, self._retention.ttl_s / 10))
            self._shelf.watch_clock()
            has_work = self._shelf.has_uses_to_write() or self._shelf.trouble
            if has_work or loop.time() - swept >= SWEEP_S:
                with suppress(StoreUnavailable):
                    await self.sweep()
                swept = loop.time()

    @asynccontextmanager
    async def _patience(self) -> AsyncIterator[None]:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        try:
            async with asyncio.timeout(self._patience_s):
                yield
        except TimeoutError as e:
            trouble = f"the disk has not answered within {self._patience_s:g} s"
            raise StoreUnavailable(self._shelf.trouble or trouble) from e

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

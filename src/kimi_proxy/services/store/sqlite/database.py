"""A database in one SQLite file: reads in threads, writes in one thread, and neither blocks the event loop."""

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.clock import Moment, WallClock
from kimi_proxy.services.store.sql import Row, SqlTables
from kimi_proxy.services.store.sqlite import schema
from kimi_proxy.services.store.sqlite.file import Connect, connect, is_damage, reading, store_errors, writing

READERS = 4
MAX_BATCH = 256

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)


class Database:
    """Every call opens the file afresh, so whatever is wrong with it is over as soon as its cause is."""

    def __init__(self, path: Path, now: Callable[[], float], timeout_s: float, connect: Connect = connect) -> None:
        self.path = path
        self.clock = WallClock(now, last_seen=0.0)  # nothing is certain until the newest stamp on file was read
        self.trouble: str | None = None
        self.turn = asyncio.Lock()  # of the writer thread
        self._timeout_s = timeout_s
        self._lock_timeout_s = timeout_s * 0.75  # a little less, so that SQLite says who holds a lock before we give up
        self._connect = connect
        self._committing = threading.Lock()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store-writer")
        self.is_closed = False

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `query` finds; it runs in a reader thread."""

        def work() -> T:
            left_s = self._after_commit()
            with store_errors(self.path), reading(self.path, left_s, self._connect) as connection:
                return query(connection)

        async with self.timeout():
            return await self.in_reader(work)

    def _after_commit(self) -> float:
        """Wait for a commit of ours, whose end wakes us: SQLite would sleep ever longer. Return the seconds left."""
        began = time.monotonic()
        if self._committing.acquire(timeout=self._lock_timeout_s):
            self._committing.release()
        return max(0.0, self._lock_timeout_s - (time.monotonic() - began))

    async def rows(self, statement: str, values: Row = ()) -> list[Row]:
        return await self.read(lambda connection: connection.execute(statement, values).fetchall())

    async def change(self, statement: str, values: Row = ()) -> list[Row]:
        return await self.write(lambda connection, _: connection.execute(statement, values).fetchall())

    async def write(self, work: Callable[[sqlite3.Connection, Moment], T]) -> T:
        """Return what `work` does in a transaction of its own, once that is on disk.

        Where the caller stops waiting, or time is over, nothing is written, unless the disk has begun to commit it.
        """
        is_wanted = True

        def wanted(connection: sqlite3.Connection, moment: Moment) -> T:
            done = work(connection, moment)
            if not is_wanted:
                raise CancelledError("its caller has stopped waiting")
            return done

        try:
            async with self.timeout(), self.turn:
                return await self.in_writer(lambda: self.transact(wanted))
        finally:
            is_wanted = False

    def transact(self, work: Callable[[sqlite3.Connection, Moment], T]) -> T:
        """Do `work` in one transaction. For the writer thread, while its turn is held."""
        try:
            with store_errors(self.path):
                try:
                    done = self._transact(work)
                except sqlite3.DatabaseError as e:
                    if not is_damage(e):
                        raise
                    done = self._transact(work)  # the damaged file was set aside: this begins a fresh one
        except StoreUnavailable as e:
            self._report(str(e))
            raise
        self._report(None)
        return done

    def _transact(self, work: Callable[[sqlite3.Connection, Moment], T]) -> T:
        moment = self.clock.look()
        with writing(self.path, self._lock_timeout_s, self._connect, self._committing) as connection:
            if self.trouble:
                schema.write_a_page(connection)
            return work(connection, moment)

    def _report(self, trouble: str | None) -> None:
        """Remember whether writing works, and log it once when that changes."""
        if trouble and trouble != self.trouble:
            log.warning("store_degraded", extra={"path": str(self.path), "trouble": trouble})
        elif self.trouble and not trouble:
            log.info("store_healed", extra={"path": str(self.path)})
        self.trouble = trouble

    @asynccontextmanager
    async def timeout(self) -> AsyncIterator[None]:
        """Raise StoreUnavailable if the block takes too long, or if the database is closed."""
        if self.is_closed:
            raise StoreUnavailable("the store is closed")
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except TimeoutError as e:
            trouble = f"the disk has not answered within {self._timeout_s:g} s"
            raise StoreUnavailable(self.trouble or trouble) from e

    async def in_reader(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def in_writer(self, work: Callable[[], T]) -> T:
        """Run `work` in the writer thread. The caller holds `turn`."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)

    async def drain(self) -> None:
        """Wait for the transaction that has begun, and end the writer thread."""
        async with self.turn:
            self._writer.shutdown(wait=False)

    def close(self) -> None:
        """Refuse whatever comes from now on."""
        self.is_closed = True
        self._readers.shutdown(wait=False)


Self = TypeVar("Self", bound=SqlTables[Database])


def reads(
    query: Callable[Concatenate[Self, sqlite3.Connection, P], T],
) -> Callable[Concatenate[Self, P], Coroutine[object, object, T]]:
    """Make `query` an async method without its connection: a reader thread gives it one."""

    @wraps(query)
    async def method(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.read(lambda connection: query(self, connection, *args, **kwargs))

    return method


def writes(
    work: Callable[Concatenate[Self, sqlite3.Connection, P], T],
) -> Callable[Concatenate[Self, P], Coroutine[object, object, T]]:
    """Make `work` an async method without its connection: it runs in a transaction of the writer thread."""

    @wraps(work)
    async def method(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.write(lambda connection, moment: work(self, connection, *args, **kwargs))

    return method


class Sized(Protocol):
    @property
    def size(self) -> int: ...


Item = TypeVar("Item", bound=Sized)


@dataclass(slots=True, eq=False)
class _Batch(Generic[Item]):
    """Items that share a transaction; it takes more until its turn comes."""

    items: list[Item] = field(default_factory=list)
    size: int = 0
    has_begun: bool = False
    done: asyncio.Task[None] = field(init=False)


class GroupCommit(Generic[Item]):
    """Collects what waits while one transaction runs into the next one, so that they share its fsync."""

    def __init__(self, database: Database, commit: Callable[[Sequence[Item]], object], max_bytes: int) -> None:
        self._database = database
        self._commit = commit  # runs in the writer thread
        self._max_bytes = max_bytes
        self._filling: _Batch[Item] | None = None

    async def add(self, item: Item) -> None:
        """Return once `item` was committed."""
        batch = self._batch_for(item)
        batch.items.append(item)
        batch.size += item.size
        try:
            # A caller that stops waiting must not take the others' commit down with it.
            await asyncio.shield(batch.done)
        except asyncio.CancelledError:
            if not batch.has_begun:
                batch.items.remove(item)
            raise

    def _batch_for(self, item: Item) -> _Batch[Item]:
        batch = self._filling
        if batch is None or len(batch.items) >= MAX_BATCH or batch.size + item.size > self._max_bytes:
            self._filling = batch = _Batch()
            batch.done = asyncio.create_task(self._run(batch))
        return batch

    async def _run(self, batch: _Batch[Item]) -> None:
        async with self._database.turn:
            batch.has_begun = True
            if self._filling is batch:
                self._filling = None
            items = tuple(batch.items)
            await self._database.in_writer(lambda: self._commit(items))

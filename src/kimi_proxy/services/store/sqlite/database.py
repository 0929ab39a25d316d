"""A database in one SQLite file: opened afresh by every call, shared by several processes, set aside if it is damaged.

Reads run in threads, writes in one thread, and neither blocks the event loop.
"""

import asyncio
import errno
import logging
import os
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

from kimi_proxy.core.errors import PruneIdNotFound, StoreUnavailable
from kimi_proxy.core.timing import measure_time
from kimi_proxy.proxy.private_files import Identity, identity, private_file, sync_directory
from kimi_proxy.services.store.protocols import AuditNote
from kimi_proxy.services.store.sql import Moment, Row, SqlStatement, SqlTables, WallClock, note_nothing
from kimi_proxy.services.store.sqlite import schema

if sys.platform != "win32":
    import fcntl

READERS = 4
MAX_BATCH = 256
BRIEF_S = 0.05

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

# The file: its errors in words, damage, and one transaction at a time.

_FULL = "the disk is full: free some space"
_CLOSED = "the file or its directory may not be written: give it back to your user, or remount it writable"
_SICK = "the disk reports an error: look at the system log, and at quotas and limits"
_DAMAGED = "the file is damaged: if it can't be written either, it is set aside and a fresh one begun"

_SQLITE_WORDS = {
    sqlite3.SQLITE_BUSY: "another program has locked it: work resumes automatically once the lock is released",
    sqlite3.SQLITE_CANTOPEN: _CLOSED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: _SICK,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_PERM: _CLOSED,
    sqlite3.SQLITE_READONLY: _CLOSED,
}
_SYSTEM_WORDS = {
    errno.EACCES: _CLOSED,
    errno.EDQUOT: _FULL,
    errno.EIO: _SICK,
    errno.ENOSPC: _FULL,
    errno.EPERM: _CLOSED,
    errno.EROFS: _CLOSED,
}


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Raise StoreUnavailable for whatever SQLite or the system raises about `path`."""
    try:
        yield
    except sqlite3.Error as e:
        raise StoreUnavailable(_SQLITE_WORDS.get(_code(e), "SQLite refused"), f" ({path}: {e})") from e
    except UnicodeDecodeError as e:
        raise StoreUnavailable(_DAMAGED, f" ({path})") from e
    except OSError as e:
        words = _SYSTEM_WORDS.get(e.errno or 0, "the system refused")
        raise StoreUnavailable(words, f" ({path}: {e})") from e


def is_damage(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_lock(error: StoreUnavailable) -> bool:
    """Return whether another process held the file locked."""
    return isinstance(error.__cause__, sqlite3.Error) and _code(error.__cause__) == sqlite3.SQLITE_BUSY


def _code(error: sqlite3.Error) -> int:
    """Return the primary result code; errors that Python itself raises have none."""
    extended: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return extended & 0xFF


def set_aside(path: Path, seen: Identity) -> None:
    """Rename the damaged file `seen` at `path`, unless another process already has."""
    with _hold_lock(path.parent):
        if identity(path) != seen:
            return
        damaged = path.with_name(f"{path.name}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        journal = _journal(path)
        # The journal first: left behind, it would be played back into the fresh file.
        if journal.exists():
            journal.rename(_journal(damaged))
        path.rename(damaged)
        sync_directory(path.parent)
    lost = {"path": str(path), "set_aside_as": str(damaged), "lost": "originals that cannot be read from the copy"}
    log.error("store_damaged", extra=lost)


def set_aside_files(path: Path) -> tuple[str, ...]:
    """Return the damaged files that were set aside."""
    found = path.parent.glob(f"{path.name}.corrupt-*")
    return tuple(sorted(str(f) for f in found if not f.name.endswith("-journal")))


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")


@contextmanager
def _hold_lock(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory: two processes that find the same damage must not rename each other's fresh file."""
    if sys.platform == "win32":  # a file that is open elsewhere can't be renamed there
        yield
    else:
        handle = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _connect_to_copy(path: Path) -> sqlite3.Connection:
    """Open a damaged file for reading alone. Nothing changes it any more, and its journal is not played back."""
    return sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)


Connect = Callable[[Path, float], sqlite3.Connection]

_FOR_WRITING = (
    # Not WAL: before SQLite 3.51.3 two processes could lose a commit when it is reset.
    "PRAGMA journal_mode = TRUNCATE",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: an fsync that reaches the platter
    "PRAGMA secure_delete = ON",  # expired data is overwritten
)


def connect(path: Path, timeout_s: float) -> sqlite3.Connection:
    """Open a file that exists. Readers too need the right to write: they may have to undo a killed commit."""
    return sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=timeout_s)


@contextmanager
def reading(path: Path, timeout_s: float, connect: Connect = connect) -> Iterator[sqlite3.Connection]:
    """Give a connection for a few quick queries; each ends its own read lock. No file is an empty store."""
    with closing(connect(path, timeout_s) if identity(path) else _empty()) as connection:
        connection.execute("PRAGMA query_only = ON")
        yield connection


@contextmanager
def writing(
    path: Path, timeout_s: float, connect: Connect = connect, committing: AbstractContextManager[object] | None = None
) -> Iterator[sqlite3.Connection]:
    """Open a write transaction on a file with the newest schema. When the block ends normally, all of it is on disk.

    `committing` is held during the commit, while the file cannot be read. A damaged file is renamed while our lock
    still excludes other writers, and the error is raised.
    """
    seen = private_file(path)
    with closing(connect(path, timeout_s)) as connection:
        try:
            with _damage_named():
                _prepare(connection)
                connection.execute("BEGIN IMMEDIATE")
                _refuse_moved(path, seen)
                schema.bring_up(connection)
            yield connection
            with committing or nullcontext():
                connection.execute("COMMIT")
        except sqlite3.DatabaseError as e:
            if is_damage(e):
                if os.name == "nt":  # an open file can't be renamed there
                    connection.close()
                set_aside(path, seen)
            raise
    _refuse_moved(path, seen)


@contextmanager
def _damage_named() -> Iterator[None]:
    """Raise DatabaseError where SQLite's message quotes a damaged schema, in bytes that are no text."""
    try:
        yield
    except UnicodeDecodeError as e:
        damage = sqlite3.DatabaseError("the schema is damaged")
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage from e


def _prepare(connection: sqlite3.Connection) -> None:
    for setting in _FOR_WRITING:
        connection.execute(setting).fetchall()
    if connection.execute("PRAGMA page_count").fetchone() == (0,):  # takes effect only while the file is empty
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")


def _empty() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.bring_up(connection)
    return connection


def _refuse_moved(path: Path, seen: Identity) -> None:
    """Raise StoreUnavailable if the file was moved or deleted during the write: the commit must not be acknowledged."""
    if identity(path) != seen:
        raise StoreUnavailable("the store was moved or deleted during a write: a new one is created", f" ({path})")


# The database: its threads, and transactions that are shared.


class Database:
    """Opens the file for every call, so any problem with it ends as soon as its cause does."""

    note: AuditNote

    def __init__(self, path: Path, now: Callable[[], float], timeout_s: float, connect: Connect = connect) -> None:
        self.path = path
        self.clock = WallClock(now, last_seen=0.0)  # uncertain until the newest timestamp in the file was read
        self.trouble: StoreUnavailable | None = None
        self.note = note_nothing
        self.turn = asyncio.Lock()  # of the writer thread
        self._timeout_s = timeout_s
        self._lock_timeout_s = timeout_s * 0.75  # so that SQLite says who holds a lock before we time out
        self._reads_locked = self._writes_locked = False  # by another process, for all the time that we waited
        self._connect = connect
        self._committing = threading.Lock()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store-writer")
        self.is_closed = False

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `query` finds; it runs in a reader thread."""

        def work() -> T:
            left_s = self._after_commit()
            try:
                with store_errors(self.path), reading(self.path, left_s, self._connect) as connection:
                    found = query(connection)
            except StoreUnavailable as e:
                self._reads_locked = is_lock(e)
                raise
            self._reads_locked = False
            return found

        with measure_time("store"):
            async with self.timeout():
                return await self.in_reader(work)

    async def read_set_aside(self, query: Callable[[sqlite3.Connection], T]) -> T | None:
        """Return what `query` finds in a damaged file that was set aside, the newest first; None if nothing.

        A part of such a file that cannot be read is as if it was not there.
        """

        def work() -> T | None:
            for copy in reversed(set_aside_files(self.path)):
                try:
                    with closing(_connect_to_copy(Path(copy))) as connection:
                        if found := query(connection):
                            return found
                except (sqlite3.Error, StoreUnavailable, PruneIdNotFound, UnicodeDecodeError):
                    continue
            return None

        async with self.timeout():
            return await self.in_reader(work)

    def _after_commit(self) -> float:
        """Wait for a commit of ours, whose end wakes us: SQLite would sleep ever longer. Return the seconds left."""
        began = time.monotonic()
        lock_s = self._lock_s(self._reads_locked)
        if self._committing.acquire(timeout=lock_s):
            self._committing.release()
        return max(0.0, lock_s - (time.monotonic() - began))

    def _lock_s(self, was_locked: bool) -> float:
        """Return how long to wait for a lock: shortly, if it was held for all of our patience before."""
        return min(BRIEF_S, self._lock_timeout_s) if was_locked else self._lock_timeout_s

    async def rows(self, statement: str, values: Row = ()) -> list[Row]:
        return await self.read(lambda connection: connection.execute(statement, values).fetchall())

    async def change(self, statement: str, values: Row = ()) -> list[Row]:
        return await self.write(lambda connection, _: connection.execute(statement, values).fetchall())

    async def change_all(self, statements: Sequence[SqlStatement]) -> list[list[Row]]:
        return await self.write(lambda connection, _: [connection.execute(*one).fetchall() for one in statements])

    async def write(self, work: Callable[[sqlite3.Connection, Moment], T]) -> T:
        """Return the result of `work` in its own transaction, once that is on disk.

        If the caller stops waiting, or on timeout, nothing is written, unless the commit has already begun.
        """
        is_wanted = True

        def write_if_open(connection: sqlite3.Connection, moment: Moment) -> T:
            done = work(connection, moment)
            if not is_wanted:
                raise CancelledError("its caller has stopped waiting")
            return done

        try:
            with measure_time("store"):
                async with self.timeout(), self.turn:
                    return await self.in_writer(lambda: self.transact(write_if_open))
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
            self._writes_locked = is_lock(e)
            self._report(e)
            raise
        self._writes_locked = False
        self._report(None)
        return done

    def _transact(self, work: Callable[[sqlite3.Connection, Moment], T]) -> T:
        moment = self.clock.look()
        with writing(self.path, self._lock_s(self._writes_locked), self._connect, self._committing) as connection:
            if self.trouble:
                schema.write_a_page(connection)
            return work(connection, moment)

    def _report(self, trouble: StoreUnavailable | None) -> None:
        """Remember whether writing works, and log it once when that changes."""
        if trouble and (self.trouble is None or trouble.full != self.trouble.full):
            log.warning("store_degraded", extra={"path": str(self.path), "trouble": trouble.full})
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
            if self.trouble is not None:
                raise StoreUnavailable(str(self.trouble), self.trouble.detail) from e
            raise StoreUnavailable(f"the disk has not answered within {self._timeout_s:g} s") from e

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
        """Reject all further calls."""
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

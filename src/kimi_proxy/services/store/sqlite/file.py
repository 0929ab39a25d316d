"""The SQLite file: opened for one transaction at a time, by several processes at once; set aside if it is damaged."""

import errno
import logging
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.proxy.private_files import Identity, identity, private_file, sync_directory
from kimi_proxy.services.store.sqlite import schema

if sys.platform != "win32":
    import fcntl

log = logging.getLogger(__name__)

_FULL = "the disk is full: free some space"
_CLOSED = "the file or its directory may not be written: give it back to your user, or remount it writable"
_SICK = "the disk reports an error: look at the system log, and at quotas and limits"
_DAMAGED = "the file is damaged: if it can't be written either, it is set aside and a fresh one begun"

_SQLITE_WORDS = {
    sqlite3.SQLITE_BUSY: "another program holds it locked: it goes on by itself once that one lets go",
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
        raise StoreUnavailable(f"{path}: {_SQLITE_WORDS.get(_code(e), 'SQLite refused')} ({e})") from e
    except UnicodeDecodeError as e:
        raise StoreUnavailable(f"{path}: {_DAMAGED}") from e
    except OSError as e:
        words = _SYSTEM_WORDS.get(e.errno or 0, "the system refused")
        raise StoreUnavailable(f"{path}: {words} ({e})") from e


def is_damage(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _code(error: sqlite3.Error) -> int:
    """Return the primary result code; errors that Python raises by itself have none."""
    extended: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return extended & 0xFF


def set_aside(path: Path, seen: Identity) -> None:
    """Rename the damaged file `seen` at `path`, unless another process already has."""
    with _locked(path.parent):
        if identity(path) != seen:
            return
        damaged = path.with_name(f"{path.name}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        journal = _journal(path)
        # The journal first: left behind, it would be played back into the fresh file.
        if journal.exists():
            journal.rename(_journal(damaged))
        path.rename(damaged)
        sync_directory(path.parent)
    lost = {"path": str(path), "set_aside_as": str(damaged), "lost": "originals kept before now"}
    log.error("store_damaged", extra=lost)


def set_aside_files(path: Path) -> tuple[str, ...]:
    """Return the damaged files that were set aside."""
    found = path.parent.glob(f"{path.name}.corrupt-*")
    return tuple(sorted(str(f) for f in found if not f.name.endswith("-journal")))


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
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


Connect = Callable[[Path, float], sqlite3.Connection]

_FOR_WRITING = (
    # Not WAL: before SQLite 3.51.3 two processes could lose a commit when it is reset.
    "PRAGMA journal_mode = TRUNCATE",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: an fsync that reaches the platter
    "PRAGMA secure_delete = ON",  # what has expired is overwritten
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
    """Give a transaction on a file of the newest schema. When the block ends well, all of it is on disk.

    `committing` is held during the commit, while the file cannot be read. A damaged file is renamed while our lock
    still keeps other writers out, and the error goes on.
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
    """Raise StoreUnavailable if the file was moved or deleted meanwhile: its commit must not be acknowledged."""
    if identity(path) != seen:
        raise StoreUnavailable(f"{path} was moved or deleted while it was written: it starts afresh")

"""The SQLite file: opened for one transaction at a time, by several processes at once."""

import errno
import hashlib
import logging
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.proxy.private_files import Identity, identity, private_file, sync_directory
from kimi_proxy.services.store.sqlite import schema

LEAP_S = 3600.0  # a clock that moves further than this between two looks has jumped, or slept
CONFIRM_S = 600.0  # how long it must then run on before it is believed


@dataclass(frozen=True, slots=True)
class Moment:
    """It is not before `earliest` and not after `latest`; they differ only while a leap is in doubt.

    What is used now is stamped with `latest`, what expires is judged by `earliest`:
    in doubt, an original lives longer.
    """

    earliest: float
    latest: float

    @property
    def is_certain(self) -> bool:
        return self.earliest == self.latest


class Clock:
    """Believes small steps at once, and a leap only when a second look confirms it."""

    def __init__(self, wall: Callable[[], float], last_seen: float | None = None) -> None:
        self._wall = wall
        self._believed = wall() if last_seen is None else last_seen
        self._leapt_to: float | None = None
        self._latest_look = self._believed
        self._lock = threading.Lock()

    def look(self) -> Moment:
        with self._lock:
            wall = self._wall()
            if self._believable(wall):
                self._believed, self._leapt_to = wall, None
            self._latest_look = wall
            return Moment(min(wall, self._believed), max(wall, self._believed))

    def _believable(self, wall: float) -> bool:
        if abs(wall - self._believed) <= LEAP_S:
            return True
        runs_on = 0 <= wall - self._latest_look <= LEAP_S
        if self._leapt_to is None or not runs_on:
            self._leapt_to = wall
        return wall - self._leapt_to >= CONFIRM_S


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
def translated(path: Path) -> Iterator[None]:
    """Whatever SQLite or the system raises about `path` leaves as StoreUnavailable."""
    try:
        yield
    except sqlite3.Error as e:
        raise StoreUnavailable(f"{path}: {_SQLITE_WORDS.get(_code(e), 'SQLite refused')} ({e})") from e
    except OSError as e:
        words = _SYSTEM_WORDS.get(e.errno or 0, "the system refused")
        raise StoreUnavailable(f"{path}: {words} ({e})") from e


def is_damage(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _code(error: sqlite3.Error) -> int:
    """The primary result code; errors that Python raises by itself have none."""
    extended: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return extended & 0xFF


if sys.platform != "win32":
    import fcntl

log = logging.getLogger(__name__)


def set_aside(path: Path, seen: Identity) -> None:
    """Rename the damaged file `seen` at `path`, unless another process already has."""
    with _alone_in(path.parent):
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
    found = path.parent.glob(f"{path.name}.corrupt-*")
    return tuple(sorted(str(f) for f in found if not f.name.endswith("-journal")))


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Two processes that find the same damage must not rename each other's fresh file."""
    if sys.platform == "win32":  # a file that is open elsewhere can't be renamed there
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LEVEL = 3  # logs and code shrink to a quarter or less, at hundreds of megabytes a second


@dataclass(frozen=True, slots=True)
class Packed:
    """A compressed text, and the hash that it must have when it comes out."""

    hash: bytes
    frame: bytes


def pack(text: bytes) -> Packed:
    return Packed(hashlib.sha256(text).digest(), zstd.compress(text, LEVEL))


def unpack(packed: Packed) -> bytes:
    """The text, byte for byte; StoreUnavailable if the disk gave back something else."""
    try:
        text = zstd.decompress(packed.frame)
    except zstd.ZstdError as e:
        raise StoreUnavailable(f"this original is damaged on disk ({e}): read the source again") from e
    if hashlib.sha256(text).digest() != packed.hash:
        raise StoreUnavailable("this original is damaged on disk (wrong hash): read the source again")
    return text


Connect = Callable[[Path, float], sqlite3.Connection]

_FOR_WRITING = (
    # Not WAL: before SQLite 3.51.3 two processes could lose a commit when it is reset.
    "PRAGMA journal_mode = TRUNCATE",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: an fsync that reaches the platter
    "PRAGMA secure_delete = ON",  # what has expired is overwritten
)


def connect(path: Path, patience_s: float) -> sqlite3.Connection:
    """Open a file that exists. Readers too need the right to write: they may have to undo a killed commit."""
    return sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=patience_s)


@contextmanager
def reading(path: Path, patience_s: float, connect: Connect = connect) -> Iterator[sqlite3.Connection]:
    """A connection for a few quick queries; each ends its own read lock. No file is an empty store."""
    with closing(connect(path, patience_s) if identity(path) else _empty()) as connection:
        connection.execute("PRAGMA query_only = ON")
        yield connection


@contextmanager
def writing(path: Path, patience_s: float, connect: Connect = connect) -> Iterator[sqlite3.Connection]:
    """One transaction on a file of the newest schema. When the block ends well, all of it is on disk.

    A damaged file is renamed while our lock still keeps other writers out, and the error goes on.
    """
    seen = private_file(path)
    with closing(connect(path, patience_s)) as connection:
        try:
            _prepare(connection)
            connection.execute("BEGIN IMMEDIATE")
            _still(path, seen)
            schema.bring_up(connection)
            yield connection
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as e:
            if is_damage(e):
                if os.name == "nt":  # an open file can't be renamed there
                    connection.close()
                set_aside(path, seen)
            raise
    _still(path, seen)


def _prepare(connection: sqlite3.Connection) -> None:
    for setting in _FOR_WRITING:
        connection.execute(setting).fetchall()
    if connection.execute("PRAGMA page_count").fetchone() == (0,):  # heard only while the file is empty
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")


def _empty() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.bring_up(connection)
    return connection


def _still(path: Path, seen: Identity) -> None:
    """A commit into a file that was moved or deleted under us must not be acknowledged."""
    if identity(path) != seen:
        raise StoreUnavailable(f"{path} was moved or deleted while it was written: it starts afresh")

"""Foreign errors, in words that a person can act on."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kimi_proxy.core.errors import StoreUnavailable

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

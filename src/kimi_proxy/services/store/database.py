"""The SQLite file: opened for one transaction at a time, by several processes at once."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store import schema
from kimi_proxy.services.store.faults import is_damage
from kimi_proxy.services.store.private import Identity, identity, private_file
from kimi_proxy.services.store.quarantine import set_aside

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

"""The shape of the file, as numbered steps that are appended and never edited."""

import sqlite3
from collections.abc import Callable

from kimi_proxy.core.errors import StoreUnavailable


def write_a_page(connection: sqlite3.Connection) -> None:
    """Sign the file as ours ("kimi"). Signing it again changes nothing, and shows that the disk takes writes."""
    connection.execute("PRAGMA application_id = 1802071401")


def _1_originals(connection: sqlite3.Connection) -> None:
    connection.execute(
        """CREATE TABLE text (
            seq INTEGER PRIMARY KEY,
            scope BLOB NOT NULL,
            hash BLOB NOT NULL,   -- SHA-256 of the text
            frame BLOB NOT NULL,  -- the text, zstd-compressed
            UNIQUE (scope, hash)
        )"""
    )
    connection.execute(
        """CREATE TABLE record (
            seq INTEGER PRIMARY KEY,
            scope BLOB NOT NULL,
            id BLOB NOT NULL,
            key BLOB NOT NULL,
            text INTEGER NOT NULL REFERENCES text (seq),
            about BLOB NOT NULL,
            created REAL NOT NULL,
            last_used REAL NOT NULL,
            UNIQUE (scope, id)
        )"""
    )
    connection.execute("CREATE INDEX record_by_key ON record (scope, key)")
    connection.execute("CREATE INDEX record_by_text ON record (text)")
    connection.execute("CREATE INDEX record_by_use ON record (last_used)")
    connection.execute(
        """CREATE TABLE tombstone (
            seq INTEGER PRIMARY KEY,
            scope BLOB NOT NULL,
            id BLOB NOT NULL,
            expired REAL NOT NULL,
            UNIQUE (scope, id)
        )"""
    )
    write_a_page(connection)
    connection.execute("PRAGMA user_version = 1")


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_1_originals,)
VERSION = len(MIGRATIONS)


def bring_up(connection: sqlite3.Connection) -> None:
    """Apply the missing steps in the caller's transaction, so that all of them are done or none."""
    found = version(connection)
    if found > VERSION:
        raise StoreUnavailable(
            f"the store was written by a newer kimi-proxy (schema {found}, this one knows {VERSION}): "
            "upgrade this one, or point KIMI_PROXY_HOME to another directory"
        )
    for step in MIGRATIONS[found:]:
        step(connection)


def version(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    return int(number)

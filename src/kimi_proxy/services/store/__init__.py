"""Storage of originals, decisions and sessions: `protocols` is the contract, `sqlite` implements it.

The team's store in PostgreSQL implements it too.
"""

from __future__ import annotations

from sqlite3 import sqlite_version

__all__ = ["file_usage", "shortened_sessions", "sqlite_version"]


def file_usage(home: str, max_bytes: int) -> dict[str, object]:
    """Return the size of the store under `home` without opening it. Raise OSError if its file cannot be read."""
    from kimi_proxy.services.store.sqlite.peek import usage

    return usage(f"{home}/store/originals.sqlite3", max_bytes)


def shortened_sessions(home: str) -> frozenset[str]:
    """Return the names of the sessions of which requests were shortened, from the file under `home`.

    The file is not opened for writing, and none is made. Raise OSError if it cannot be read.
    """
    from kimi_proxy.services.store.sqlite.peek import shortened_sessions

    return shortened_sessions(f"{home}/store/originals.sqlite3")

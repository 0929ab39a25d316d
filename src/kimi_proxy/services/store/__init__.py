"""Where originals, decisions and sessions are kept: `protocols` says what is promised, `sqlite` keeps it.

Another database is one new folder beside `sqlite`, and one line here.
"""

from pathlib import Path
from sqlite3 import sqlite_version

from kimi_proxy.services.store.protocols import Store
from kimi_proxy.services.store.sqlite.store import SqliteStore

__all__ = ["open_store", "sqlite_version"]


async def open_store(home: Path, *, ttl_s: float, max_bytes: int, timeout_s: float = 2.0) -> Store:
    """Return the store under `home`, made if it is missing. With a sick disk it says so, and heals by itself.

    No call to it takes longer than `timeout_s`: it then raises StoreUnavailable.
    """
    return await SqliteStore.open(home, ttl_s=ttl_s, max_bytes=max_bytes, timeout_s=timeout_s)

"""Where originals are kept, and what is known of sessions."""

from sqlite3 import sqlite_version

from kimi_proxy.services.store.protocols import Original, Store, Usage
from kimi_proxy.services.store.sqlite.compressions import Compressed, CompressionLog
from kimi_proxy.services.store.sqlite.decisions import Kept, Mask, Pin, Pinboard, Totals
from kimi_proxy.services.store.sqlite.sessions import Cursor, Ledger, MemorySums, SessionRecord, Sums
from kimi_proxy.services.store.sqlite.store import open_store

__all__ = [
    "Compressed",
    "CompressionLog",
    "Cursor",
    "Kept",
    "Ledger",
    "Mask",
    "MemorySums",
    "Original",
    "Pin",
    "Pinboard",
    "SessionRecord",
    "Store",
    "Sums",
    "Totals",
    "Usage",
    "open_store",
    "sqlite_version",
]

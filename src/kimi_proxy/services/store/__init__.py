"""Where originals are kept, and what is known of sessions."""

from sqlite3 import sqlite_version

from kimi_proxy.services.store.compression_log import Compressed, CompressionLog
from kimi_proxy.services.store.entries import Cursor, SessionRecord, Sums
from kimi_proxy.services.store.ledger import Ledger
from kimi_proxy.services.store.memories import MemorySums
from kimi_proxy.services.store.originals import Original, Store, Usage
from kimi_proxy.services.store.pinboard import Kept, Mask, Pinboard
from kimi_proxy.services.store.pins import Pin, Totals
from kimi_proxy.services.store.sqlite import open_store

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

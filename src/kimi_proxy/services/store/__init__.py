"""Where originals are kept."""

from sqlite3 import sqlite_version

from kimi_proxy.services.store.originals import Original, Store, Usage
from kimi_proxy.services.store.sqlite import open_store

__all__ = ["Original", "Store", "Usage", "open_store", "sqlite_version"]

"""What tests of faults do to a store, and how they look at it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.services.store.making import an_original

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.protocols import Original
from kimi_proxy.services.store.sqlite.database import connect
from kimi_proxy.services.store.sqlite.store import SqliteStore


class Disk:
    """Opens the file, with a fault switched on or off."""

    def __init__(self) -> None:
        self.is_full = False
        self.is_read_only = False

    def __call__(self, path: Path, patience_s: float) -> sqlite3.Connection:
        if self.is_read_only:
            return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
        connection = connect(path, patience_s)
        if self.is_full:
            connection.execute("PRAGMA max_page_count = 1").fetchall()  # means: no more than there are
        return connection


def integrity(path: Path) -> list[tuple[str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall()


async def refusal(store: SqliteStore, original: Original | None = None) -> str:
    with pytest.raises(StoreUnavailable) as error:
        await store.originals.keep(original or an_original(os.urandom(100_000)))
    return error.value.full


async def keeps_again(store: SqliteStore) -> None:
    original = an_original(os.urandom(100_000))
    await store.originals.keep(original)
    assert await store.originals.get(LOCAL, original.id) == original
    assert (await store.usage()).state == "ok"

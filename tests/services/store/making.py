"""Originals and stores for tests to work with."""

import hashlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kimi_proxy.core.errors import PruneIdNotFound
from kimi_proxy.core.markers import new_id
from kimi_proxy.services.store.protocols import Original
from kimi_proxy.services.store.sqlite.file import Connect, connect
from kimi_proxy.services.store.sqlite.store import SqliteStore

TTL_S = 600.0
MAX_BYTES = 64 * 1024**2


def an_original(text: bytes = b"one\ntwo\n", scope: str = "local", key: bytes | None = None) -> Original:
    fingerprint = hashlib.sha256(text).digest() if key is None else key
    return Original(new_id("prn"), scope, fingerprint, text, b'{"goal":"x"}')


@asynccontextmanager
async def opened(
    home: Path,
    now: Callable[[], float] = time.time,
    ttl_s: float = TTL_S,
    max_bytes: int = MAX_BYTES,
    timeout_s: float = 30.0,  # a loaded machine may be slow; tests of timeouts say theirs
    connect: Connect = connect,
) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(
        home, ttl_s=ttl_s, max_bytes=max_bytes, timeout_s=timeout_s, now=now, connect=connect
    )
    try:
        yield store
    finally:
        await store.close()


async def reason(store: SqliteStore, id: str, scope: str = "local") -> str:
    with pytest.raises(PruneIdNotFound) as error:
        await store.originals.get(scope, id)
    return error.value.reason

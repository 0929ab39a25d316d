"""Run by a test: an ordinary user is given a home that belongs to root."""

import asyncio
import os
from pathlib import Path

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.protocols import Original
from kimi_proxy.services.store.sqlite.store import SqliteStore

assert SqliteStore  # loaded before we become another user, who may not read the code


async def main() -> None:
    store = await SqliteStore.open(Path("/"), ttl_s=600, max_bytes=64 * 1024**2, timeout_s=60)
    try:
        await store.originals.keep(Original("prn_a", "local", b"a" * 32, b"text", b"{}"))
    except StoreUnavailable as e:
        assert "/store" in e.full
        assert e.full in (await store.usage()).state
        print("refused:", "may not be written" if "may not be written" in str(e) else e)
    await store.close()


if os.geteuid() == 0:
    os.seteuid(65_534)
asyncio.run(main())

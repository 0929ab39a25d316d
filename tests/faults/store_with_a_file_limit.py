"""Run by a test: no file may grow beyond a limit (RLIMIT_FSIZE), then the limit goes."""

import asyncio
import os
import resource
import sys
from pathlib import Path

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.protocols import Original
from kimi_proxy.services.store.sqlite.store import SqliteStore


async def main(home: Path) -> None:
    store = await SqliteStore.open(home, ttl_s=600, max_bytes=64 * 1024**2, timeout_s=60)
    kept = Original("prn_a", "local", b"a" * 32, os.urandom(50_000), b"{}")
    await store.originals.keep(kept)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    large = Original("prn_b", "local", b"b" * 32, os.urandom(500_000), b"{}")
    try:
        await store.originals.keep(large)
    except StoreUnavailable:
        assert (await store.usage()).state.startswith("degraded: ")
        print("refused", end=", ")
    assert await store.originals.get(LOCAL, "prn_a") == kept
    print("read", end=", ")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await store.originals.keep(large)
    assert await store.originals.get(LOCAL, "prn_b") == large
    assert (await store.usage()).state == "ok"
    print("healed")
    await store.close()


asyncio.run(main(Path(sys.argv[1])))

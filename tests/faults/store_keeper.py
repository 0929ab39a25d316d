"""Keeps originals and tells which were acknowledged: a process that tests run, and kill.

As a program: store_keeper.py HOME COUNT keeps COUNT originals and prints their ids.
"""

import asyncio
import hashlib
import os
import sys
from pathlib import Path

from kimi_proxy.core.markers import new_id
from kimi_proxy.services.store.protocols import Original, Store
from kimi_proxy.services.store.sqlite.store import SqliteStore

AT_ONCE = 8


def original_of(id: str) -> Original:
    """Everything follows from the id, so that whoever reads it back knows what must come."""
    seed = hashlib.sha256(id.encode()).digest()
    text = (seed.hex().encode() + b"\r\n\x00") * int.from_bytes(seed[:1]) + seed * int.from_bytes(seed[1:3])
    return Original(id, f"scope-{seed[0] % 3}", seed, text[:200_000], seed.hex().encode())


async def keep_one(store: Store, acknowledged: int) -> None:
    original = original_of(new_id("prn"))
    await store.originals.keep(original)
    os.write(acknowledged, f"{original.id}\n".encode())


async def keep(home: Path, acknowledged: int, count: int) -> None:
    """Keep `count` originals, a few at a time, and write each id to `acknowledged` once it is safe."""
    store = await SqliteStore.open(home, ttl_s=3600, max_bytes=2 * 1024**3, timeout_s=60)

    async def keep_share() -> None:
        for _ in range(count // AT_ONCE):
            await keep_one(store, acknowledged)

    await asyncio.gather(*(keep_share() for _ in range(AT_ONCE)))
    await store.close()


if __name__ == "__main__":
    asyncio.run(keep(Path(sys.argv[1]), sys.stdout.fileno(), int(sys.argv[2])))

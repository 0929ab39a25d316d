"""Run by a test in its own mount namespace: a disk of 2 MB fills up and is emptied, turns read-only and back."""

import asyncio
import itertools
import os
import subprocess
import sys
from pathlib import Path

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.protocols import Original, Store
from kimi_proxy.services.store.sqlite.store import SqliteStore


def mount(*options: str) -> None:
    subprocess.run(["mount", *options], check=True)


async def fill(store: Store) -> tuple[list[Original], str]:
    """Keep originals until one is refused: those that were acknowledged, and the refusal."""
    kept: list[Original] = []
    for n in itertools.count():
        original = Original(f"prn_{n}_{os.urandom(4).hex()}", "local", b"k" * 32, os.urandom(100_000), b"{}")
        try:
            await store.originals.keep(original)
        except StoreUnavailable as e:
            return kept, str(e)
        kept.append(original)
    raise AssertionError("the disk never filled up")


async def check(store: Store, kept: list[Original]) -> None:
    for original in kept:
        assert await store.originals.get(LOCAL, original.id) == original


async def main(home: Path) -> None:
    mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", str(home))
    ballast = home / "ballast"
    ballast.write_bytes(b"x" * 800_000)
    store = await SqliteStore.open(home, ttl_s=600, max_bytes=64 * 1024**2, timeout_s=60)
    kept, refusal = await fill(store)
    assert "full: free some space" in refusal, refusal
    assert "full" in (await store.usage()).state
    print("full", end=", ")
    await check(store, kept)
    print("read", end=", ")
    ballast.unlink()
    more, _ = await fill(store)
    assert more
    await check(store, kept + more)
    print("healed")

    mount("-o", "remount,ro,size=4m", str(home))
    none, refusal = await fill(store)
    assert not none
    assert "may not be written" in refusal, refusal
    print("read-only", end=", ")
    await check(store, kept + more)
    print("read", end=", ")
    mount("-o", "remount,rw,size=4m", str(home))
    again, _ = await fill(store)
    assert again
    await check(store, kept + more + again)
    print("healed")
    await store.close()


asyncio.run(main(Path(sys.argv[1])))

"""What was freed goes back to the system."""

import asyncio
import gc

import pytest
from tests.support.processes import until

from kimi_proxy.proxy import allocator
from kimi_proxy.proxy.allocator import limit_arenas, resident_bytes, trim_memory, trimming_memory

BLOCK, BLOCKS = 2_000, 20_000
LEAST = BLOCK * BLOCKS // 2  # of it goes back: what stands between the holes stays

pytestmark = pytest.mark.skipif(allocator._of_glibc("malloc_trim") is None, reason="the C library is not glibc")


def holes() -> list[bytes]:
    """Return a few blocks from a heap in which those between them were freed."""
    blocks = [bytes(BLOCK) for _ in range(BLOCKS)]
    kept = blocks[:: BLOCKS // 20]
    blocks.clear()
    gc.collect()
    return kept


def test_holes_in_the_heap_go_back_to_the_system():
    kept = holes()
    before = resident_bytes()
    trim_memory()

    assert before - resident_bytes() >= LEAST
    assert len(kept) == 20


async def test_a_server_gives_back_what_it_grew_by_without_being_asked():
    limit_arenas()
    trim_memory()
    async with trimming_memory(every_s=0.02):
        await asyncio.sleep(0.05)  # it has seen how much there was
        kept = holes()
        grown = resident_bytes()
        await until(lambda: grown - resident_bytes() >= LEAST)

    assert len(kept) == 20

"""What the tests of reranker share with others."""

import asyncio

from tests.support.upstream import Heard


async def stall(heard: Heard) -> bytes:
    await asyncio.Event().wait()
    return b""

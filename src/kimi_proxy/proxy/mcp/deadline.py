"""How long a server may take."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kimi_proxy.core.errors import UpstreamTimeout


@asynccontextmanager
async def within(server: str, timeout_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as e:
        raise UpstreamTimeout(f"{server} did not answer within {timeout_s:g} s") from e

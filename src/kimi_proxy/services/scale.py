"""How much more a provider counts than we do: its vocabulary is not ours."""

import asyncio

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store import Ledger

MOST_OFF = 2.0  # a provider that counts more than twice our estimate counts something else
DISK_S = 0.25


class Scale:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def ratio(self, session: str) -> float:
        """By the last request of a session; never less than one, so that nothing overflows because of it."""
        try:
            async with asyncio.timeout(DISK_S):
                last = await self._ledger.newest_metric(session)
        except (StoreUnavailable, TimeoutError):
            return 1.0
        if last is None or last.input_tokens is None or not last.tokens_estimated:
            return 1.0
        # Asked again for the same answer, it has counted every turn: the request is what the first of them read.
        counted = min(last.tokens, last.account.tokens_after) if last.account else last.tokens
        return min(MOST_OFF, max(1.0, counted / last.tokens_estimated))

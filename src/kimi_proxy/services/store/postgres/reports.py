"""Lists, reports and exports from a streaming replica, as long as it keeps up with the primary."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.postgres.database import PostgresDatabase
from kimi_proxy.services.store.sql import Row

WAITS_S = (0.0, 0.02, 0.05, 0.1)  # for what was committed a moment ago, such as a new title of a session
MAX_LAG_S = 10.0

# A server that was promoted has a history of its own, and is no replica any more.
_HAS = "SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() >= ?::pg_lsn"

log = logging.getLogger(__name__)


class ReportReader:
    """Reads from the replica, and from the primary if the replica is away or lags by more than MAX_LAG_S."""

    def __init__(
        self, primary: PostgresDatabase, replica: PostgresDatabase, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._primary = primary
        self._replica = replica
        self._now = now
        self._ends: deque[tuple[float, str]] = deque(maxlen=64)  # of the primary's log, and when
        self.fallbacks = 0

    async def rows(self, statement: str, values: Row = ()) -> list[Row]:
        """Return what the replica answers, else what the primary does."""
        try:
            if await self._is_current():
                return await self._replica.rows(statement, values)
            log.debug("the replica for reports lags")
        except StoreUnavailable as e:
            log.debug("the replica for reports cannot be read", extra={"trouble": str(e)[:300]})
        self.fallbacks += 1
        return await self._primary.rows(statement, values)

    async def close(self) -> None:
        await self._replica.close()

    async def _is_current(self) -> bool:
        """Return whether the replica has what the primary had now, or had MAX_LAG_S ago at the earliest."""
        ((end,),) = await self._primary.rows("SELECT pg_current_wal_flush_lsn()::text")
        now = self._now()
        while self._ends and self._ends[0][0] < now - MAX_LAG_S:
            self._ends.popleft()
        self._ends.append((now, str(end)))
        for wait_s in WAITS_S:
            await asyncio.sleep(wait_s)
            if await self._has(str(end)):
                return True
        return await self._has(self._ends[0][1])

    async def _has(self, end: str) -> bool:
        ((has,),) = await self._replica.rows(_HAS, (end,))
        return has is True

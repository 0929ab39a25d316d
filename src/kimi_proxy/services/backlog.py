"""What waits to be written down: little, unless the disk is sick, and then not without end."""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import islice

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store import Ledger, SessionRecord

MAX_WAITING = 10_000
BATCH = 500  # written in one transaction
FLUSH_S = 1.0


class Backlog:
    """When too much waits, the oldest is dropped and counted."""

    def __init__(self, ledger: Ledger, metrics: Metrics) -> None:
        self._ledger = ledger
        self._dropped = metrics.journal_dropped
        self._sessions: dict[str, SessionRecord] = {}
        self._metrics: deque[Metric] = deque()
        self._turn = asyncio.Lock()
        self._writing = asyncio.create_task(self._keep_writing())

    def open_session(self, session: SessionRecord) -> None:
        self._sessions[session.id] = session
        if len(self._sessions) > MAX_WAITING:  # a request makes its session anew, without its name
            del self._sessions[next(iter(self._sessions))]

    def add(self, metric: Metric) -> None:
        self._metrics.append(metric)
        if len(self._metrics) > MAX_WAITING:
            self._metrics.popleft()
            self._dropped.labels("disk").inc()

    async def flush(self) -> None:
        """Write what waits; StoreUnavailable, and it goes on waiting, if the disk is sick."""
        async with self._turn:
            while self._metrics or self._sessions:
                sessions, batch = tuple(self._sessions.values()), tuple(islice(self._metrics, BATCH))
                await self._ledger.write(sessions, batch)
                self._written(sessions, {metric.id for metric in batch})

    async def close(self) -> None:
        """End; what could not be written by now is lost, and counted."""
        self._writing.cancel()
        await asyncio.wait([self._writing])
        self._dropped.labels("stopped").inc(len(self._metrics))

    async def _keep_writing(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            with suppress(StoreUnavailable):
                await self.flush()

    def _written(self, sessions: Sequence[SessionRecord], metrics: Collection[str]) -> None:
        """Forget what is on disk, and nothing that came meanwhile."""
        for session in sessions:
            if self._sessions.get(session.id) is session:
                del self._sessions[session.id]
        while self._metrics and self._metrics[0].id in metrics:
            self._metrics.popleft()

"""Sessions and what their requests came to, beside the originals and written by the same thread."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from kimi_proxy.core.types import JsonValue
from kimi_proxy.features.accounting.report import Line
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store import accounts, entries, memories
from kimi_proxy.services.store.clock import Moment
from kimi_proxy.services.store.entries import Cursor, SessionRecord, Sums
from kimi_proxy.services.store.memories import MemorySums

T = TypeVar("T")


class File(Protocol):
    """Where statements are run; StoreUnavailable if they can't be now."""

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T: ...
    async def write(self, work: Callable[[sqlite3.Connection, Moment], T]) -> T: ...


class Ledger:
    def __init__(self, file: File) -> None:
        self._file = file

    async def write(self, sessions: Sequence[SessionRecord], metrics: Sequence[Metric]) -> None:
        """All of it, or StoreUnavailable; what is written twice is there once."""

        def work(connection: sqlite3.Connection, moment: Moment) -> None:
            entries.forget_old(connection, moment.earliest)
            for session in sessions:
                entries.open_session(connection, session)
            for metric in metrics:
                entries.add(connection, metric)

        await self._file.write(work)

    async def session(self, id: str) -> SessionRecord | None:
        return await self._file.read(lambda connection: entries.session(connection, id))

    async def sessions(self, limit: int, after: Cursor | None = None) -> list[SessionRecord]:
        """Those that were used last, first."""
        return await self._file.read(lambda connection: entries.newest_sessions(connection, limit, after))

    async def matching(self, words: str, limit: int) -> list[SessionRecord]:
        """Those in which `words` stand, the last used first."""
        return await self._file.read(lambda connection: entries.matching_sessions(connection, words, limit))

    async def session_ids(self, limit: int) -> list[str]:
        """Those that were used last, first."""
        return await self._file.read(lambda connection: entries.newest_ids(connection, limit))

    async def count(self) -> int:
        return await self._file.read(entries.count_sessions)

    async def sums(self) -> Sums:
        return await self._file.read(entries.sums)

    async def memory_sums(self) -> MemorySums:
        return await self._file.read(memories.sums)

    async def newest_context(self, session: str) -> tuple[JsonValue, JsonValue]:
        """The memory of a session's newest request, and how that request lies in its window; None if nobody looked."""
        return await self._file.read(lambda connection: memories.newest(connection, session))

    async def rename(self, id: str, title: str) -> bool:
        """False if there is no such session."""
        return await self._file.write(lambda connection, moment: entries.rename(connection, id, title))

    async def delete(self, ids: Sequence[str]) -> int:
        """How many of these sessions there were."""
        return await self._file.write(lambda connection, moment: entries.delete(connection, ids))

    async def delete_all(self) -> int:
        return await self._file.write(lambda connection, moment: entries.delete_all(connection))

    async def newest_metric(self, session: str) -> Metric | None:
        return await self._file.read(lambda connection: entries.newest_metric(connection, session))

    async def newest_metrics(self, limit: int, session: str | None = None) -> list[Metric]:
        """Of one session or of all, the newest last."""
        return await self._file.read(lambda connection: entries.newest_metrics(connection, limit, session))

    async def metrics(self, session: str | None, after: int, limit: int) -> list[tuple[int, Metric]]:
        """Requests in the order in which they were written, each with its place."""
        return await self._file.read(lambda connection: entries.metrics(connection, session, after, limit))

    async def accounts(self, since: float, session: str | None = None) -> list[Line]:
        """What requests after `since` saved and cost, by session and model."""
        return await self._file.read(lambda connection: accounts.rows(connection, since, session))

"""The audit log: who recovered, searched, exported, compressed or changed something, when, and which id."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.events import Publish
from kimi_proxy.services.store.protocols import NEWEST
from kimi_proxy.team.records import AuditEntry, TeamTables

log = logging.getLogger(__name__)

FLUSH_S = 1.0
EXPIRE_S = 3600.0
DAY_S = 86_400.0
MAX_WAITING = 10_000
MAX_CHARS = 200
# Ids that a person names and that are not theirs: so many are written in a minute, the others as a number.
UNKNOWN, MAX_UNKNOWN, UNKNOWN_S = "unknown", 10, 60.0
MAX_PEOPLE = 10_000

# Events that are in the log too: who switched a setting.
AUDITED = {"settings_event": "change_settings"}


class AuditLog:
    """Entries are written within a second, in the order in which they were made; they are deleted after `days`."""

    def __init__(self, tables: TeamTables, days: int, now: Callable[[], float] = time.time) -> None:
        self._tables = tables
        self._keep_s = days * DAY_S
        self._now = now
        self._waiting: deque[AuditEntry] = deque()
        self._unknown: LruCache[tuple[str, str], tuple[float, int]] = LruCache(MAX_PEOPLE)
        self._turn = asyncio.Lock()
        self._writing = asyncio.create_task(self._keep_writing())

    def add(self, who: Caller, action: str, subject: str = "", detail: str = "", *, outcome: str = "ok") -> None:
        """Record an action and its outcome. Never blocks or raises; no argument may contain people's text."""
        if outcome == UNKNOWN:
            more = self._count_unknown(who.person, action)
            if more is None:
                return
            detail = f"{detail} {more}".strip()
        if len(self._waiting) >= MAX_WAITING:
            log.error("audit entries are lost", extra={"what": "the store was unavailable for too long"})
            self._waiting.popleft()
        named, more = (text.encode("ascii", "replace").decode()[:MAX_CHARS] for text in (subject, detail))
        self._waiting.append(AuditEntry(round(self._now(), 3), who.person, action, named, more, outcome, who.person_id))

    def _count_unknown(self, person: str, action: str) -> str | None:
        """Return what to add to an entry about an unknown id; None if there are enough of them for now."""
        now = self._now()
        began, count = self._unknown.get((person, action)) or (now, 0)
        is_over = not 0 <= now - began < UNKNOWN_S
        left_out = max(0, count - MAX_UNKNOWN) if is_over else 0
        began, count = (now, 1) if is_over else (began, count + 1)
        self._unknown.put((person, action), (began, count))
        return None if count > MAX_UNKNOWN else f"{left_out} more before" if left_out else ""

    def publishing(self, publish: Publish) -> Publish:
        """Return `publish`, with those events noted that are in the log."""

        def note_event(who: Caller, event: str, fields: Mapping[str, object]) -> None:
            if action := AUDITED.get(event):
                settings = [each for each in (fields.get("switches"), fields.get("lists")) if isinstance(each, Mapping)]
                on = [name for each in settings for name, value in each.items() if value]
                self.add(who, action, detail=", ".join(on))
            publish(who, event, fields)

        return note_event

    async def entries(self, since: float, page: int) -> AsyncIterator[AuditEntry]:
        """Return the entries since then, the newest first; no read is a long one."""
        before = NEWEST
        while found := await self.page(before, page, since):
            before = found[-1][0]
            for _, entry in found:
                yield entry

    async def page(self, before: int, limit: int, since: float = 0.0) -> Sequence[tuple[int, AuditEntry]]:
        """Return entries before the one numbered `before`, each with its number, the newest first."""
        with suppress(StoreUnavailable):
            await self.flush()
        return await self._tables.audit(before, limit, since)

    async def flush(self) -> None:
        """Write what waits; if the store is away, raise StoreUnavailable and keep it."""
        async with self._turn:
            while self._waiting:
                entries = tuple(self._waiting)[:500]
                await self._tables.add_audit(entries)
                for _ in entries:
                    self._waiting.popleft()

    async def close(self) -> None:
        self._writing.cancel()
        await asyncio.wait([self._writing])
        with suppress(StoreUnavailable):
            await self.flush()

    async def _keep_writing(self) -> None:
        expired = 0.0
        while True:
            await asyncio.sleep(FLUSH_S)
            with suppress(StoreUnavailable):
                await self.flush()
                if self._now() - expired >= EXPIRE_S:
                    while await self._tables.expire_audit(self._now() - self._keep_s):
                        pass
                    expired = self._now()

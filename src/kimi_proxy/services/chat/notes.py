"""The notes that later requests of a conversation need: in the store, or in memory alone if they are only observed."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kimi_proxy.core.caller import Caller
from kimi_proxy.services.remembered import Memory, Remembered
from kimi_proxy.services.store.protocols import FactKind, FactStore, StoredFact

MAX_OBSERVED, OBSERVED_BYTES = 50_000, 32 * 1024**2

NotePlace = tuple[str, FactKind, bytes]


class _Note(NamedTuple):
    value: bytes
    session: str  # that it goes with; empty if it outlives its session


class Notes(FactStore):
    """The table of notes. Nothing is written to it, or read, for a caller whose requests are only observed."""

    def __init__(self, table: FactStore, memory: Memory | None = None) -> None:
        self._table = table
        self._observed: Remembered[NotePlace, _Note] = Remembered(
            memory or Memory(),
            "notes of observed conversations",
            size=MAX_OBSERVED,
            max_bytes=OBSERVED_BYTES,
            forget=lambda place, note: note.session or None,
        )

    async def get(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
        if not who.is_observed:
            return await self._table.get(who, kind, keys)
        found = ((key, self._observed.get((who.scope, kind, key))) for key in keys)
        return {key: note.value for key, note in found if note is not None}

    async def put_if_absent(
        self, who: Caller, kind: FactKind, facts: Mapping[bytes, bytes], session: str | Mapping[bytes, str] = ""
    ) -> Mapping[bytes, bytes]:
        if not who.is_observed:
            return await self._table.put_if_absent(who, kind, facts, session)
        for key, value in facts.items():
            place = who.scope, kind, key
            if place not in self._observed:
                of = session if isinstance(session, str) else session[key]
                self._observed.put(place, _Note(value, of), 100 + len(value))
        return await self.get(who, kind, facts)

    async def delete(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> None:
        if not who.is_observed:
            await self._table.delete(who, kind, keys)
        for key in keys:
            self._observed.forget((who.scope, kind, key))

    async def forget_sessions(self, who: Caller, sessions: Collection[str] | None) -> None:
        await self._table.forget_sessions(who, sessions)

    async def page(self, who: Caller, after: int, limit: int) -> Sequence[tuple[int, StoredFact]]:
        return await self._table.page(who, after, limit)

    async def keys(self, who: Caller, kind: FactKind, limit: int) -> Sequence[bytes]:
        return await self._table.keys(who, kind, limit)

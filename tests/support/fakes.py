"""The outside, as tests replace it: a clock, a store."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from types import MappingProxyType

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import PruneIdNotFound, StoreUnavailable
from kimi_proxy.services.store.protocols import (
    DecisionRecord,
    Decisions,
    FactKind,
    FactStore,
    Original,
    Originals,
    StoredText,
)


class Clock:
    """Stands still until it is told to advance."""

    def __init__(self, at: float = 1_000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += seconds


class MemoryOriginals(Originals):
    """Originals that are lost at the end; they can be made to fail or to hang."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Original] = {}
        self.illness: Exception | None = None
        self.is_stuck = False
        self.keeps = 0

    async def find(self, who: Caller, key: bytes) -> str | None:
        await self._answer()
        found = [o.id for o in self.kept.values() if (o.scope, o.key) == (who.scope, key)]
        return found[-1] if found else None

    async def find_hash(self, who: Caller, digest: bytes) -> str | None:
        await self._answer()
        own = (o for o in reversed(self.kept.values()) if o.scope == who.scope)
        return next((o.id for o in own if sha256(o.text).digest() == digest), None)

    async def keep(self, original: Original) -> None:
        await self._answer()
        known = self.kept.get((original.scope, original.id), original)
        if (known.key, known.text) != (original.key, original.text):
            raise StoreUnavailable(f"{original.id} is already the id of another original")
        self.keeps += 1
        self.kept[original.scope, original.id] = original

    async def get(self, who: Caller, id: str) -> Original:
        await self._answer()
        found = next((self.kept[scope, id] for scope in who.scopes if (scope, id) in self.kept), None)
        if found is None:
            raise PruneIdNotFound(id, "unknown")
        return found

    async def live(self, who: Caller, ids: Collection[str]) -> frozenset[str]:
        await self._answer()
        return frozenset(id for id in ids if any((scope, id) in self.kept for scope in who.scopes))

    async def note(self, who: Caller, id: str) -> bytes | None:
        await self._answer()
        return next((self.kept[scope, id].about for scope in who.scopes if (scope, id) in self.kept), None)

    async def texts(self, who: Caller, before: int, limit: int) -> Sequence[StoredText]:
        await self._answer()
        numbered = [
            StoredText(seq, o.id, o.about, o.text)
            for seq, o in enumerate(self.kept.values(), 1)
            if o.scope in who.scopes
        ]
        return [one for one in reversed(numbered) if one.seq < before][:limit]

    async def delete(self, who: Caller, ids: Collection[str]) -> frozenset[str]:
        found = await self.live(who, ids)
        self.kept = {handle: o for handle, o in self.kept.items() if not (o.id in found and o.scope in who.scopes)}
        return found

    def fall_ill(self, ill: bool) -> None:
        self.illness = StoreUnavailable("told so") if ill else None

    def forget(self, id: str) -> None:
        self.kept = {handle: o for handle, o in self.kept.items() if o.id != id}

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if self.is_stuck:
            await asyncio.Event().wait()
        if self.illness:
            raise self.illness


class MemoryDecisions(Decisions):
    """Decisions about parts of conversations that are lost at the end."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, bytes], DecisionRecord] = {}
        self._made = 0.0

    async def get(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        return {key: self.records[who.scope, key] for key in keys if (who.scope, key) in self.records}

    async def times(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, float]:
        return {key: record.created for key, record in (await self.get(who, keys)).items()}

    async def add(
        self,
        who: Caller,
        new: Sequence[DecisionRecord],
        forget: Sequence[bytes] = (),
        replaces: Mapping[bytes, float] = MappingProxyType({}),
    ) -> Mapping[bytes, DecisionRecord]:
        current = await self.times(who, list(replaces))
        for key in (*forget, *(key for key, made in replaces.items() if current.get(key) == made)):
            self.records.pop((who.scope, key), None)
        for record in new:
            self._made += 1.0
            self.records.setdefault((who.scope, record.key), replace(record, created=self._made))
        return await self.get(who, [record.key for record in new])

    async def of_original(self, who: Caller, id: str) -> DecisionRecord | None:
        found = (one for (at, _), one in self.records.items() if at in who.scopes and one.original_ids[:1] == (id,))
        return next(found, None)


class MemoryFacts(FactStore):
    """Facts of conversations that are lost at the end."""

    def __init__(self) -> None:
        self.facts: dict[tuple[str, FactKind, bytes], bytes] = {}
        self.sessions: dict[tuple[str, FactKind, bytes], str] = {}

    async def get(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
        return {key: self.facts[who.scope, kind, key] for key in keys if (who.scope, kind, key) in self.facts}

    async def read(
        self, who: Caller, wanted: Mapping[FactKind, Collection[bytes]]
    ) -> Mapping[FactKind, Mapping[bytes, bytes]]:
        return {kind: await self.get(who, kind, keys) for kind, keys in wanted.items()}

    async def put_if_absent(
        self, who: Caller, kind: FactKind, facts: Mapping[bytes, bytes], session: str | Mapping[bytes, str] = ""
    ) -> Mapping[bytes, bytes]:
        self.sessions |= {(who.scope, kind, key): session for key in facts if (who.scope, kind, key) not in self.facts}
        return {key: self.facts.setdefault((who.scope, kind, key), value) for key, value in facts.items()}

    async def forget_sessions(self, who: Caller, sessions: Collection[str] | None) -> None:
        for place, session in self.sessions.items():
            if place[0] in who.scopes and session and (sessions is None or session in sessions):
                self.facts.pop(place, None)

    async def delete(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> None:
        for key in keys:
            self.facts.pop((who.scope, kind, key), None)

    async def keys(self, who: Caller, kind: FactKind, limit: int) -> Sequence[bytes]:
        return [key for scope, each, key in self.facts if (scope, each) == (who.scope, kind)][:limit]

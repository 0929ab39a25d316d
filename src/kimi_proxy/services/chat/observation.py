"""Observe-only requests: the stages decide as usual, but nothing is stored and no request is changed."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.chat.pipeline import Draft, OnFault, Stage, run_stages
from kimi_proxy.features.chat.prompt_cache import CacheMoment
from kimi_proxy.services.chat.prompt_cache import PromptCaches
from kimi_proxy.services.sessions import Forget
from kimi_proxy.services.settings import ObserveMode
from kimi_proxy.services.store.protocols import (
    CompressionRecord,
    CompressionTotals,
    DecisionRecord,
    Decisions,
    DecisionTotals,
    FactKind,
    FactStore,
    ListedOriginal,
    Original,
    Originals,
    SessionStore,
    StoredText,
)

MAX_SESSIONS = 10_000
MAX_DECISIONS, DECISIONS_BYTES = 50_000, 32 * 1024**2
MAX_COMPRESSIONS = 20  # of a session, as the store returns them
DISK_S = 0.25
LIFE_S, MARGIN_S = 300.0, 30.0  # of a prompt cache with unknown state, and the margin added to every lifetime

ScopedKey = tuple[str, bytes]
ScopedSession = tuple[str, str]
FactPlace = tuple[str, FactKind, bytes]


class ObservedOriginals(Originals):
    """Stores nothing. Originals stored while the sanitizer was on can still be read."""

    def __init__(self, kept: Originals) -> None:
        self._kept = kept

    async def find(self, who: Caller, key: bytes) -> str | None:
        return None

    async def find_hash(self, who: Caller, digest: bytes) -> str | None:
        return await self._kept.find_hash(who, digest)

    async def keep(self, original: Original) -> None:
        """Do nothing: no request will carry its id."""

    async def get(self, who: Caller, id: str) -> Original:
        return await self._kept.get(who, id)

    async def live(self, who: Caller, ids: Collection[str]) -> frozenset[str]:
        """Return all of `ids`: had they been given out, they would be live."""
        return frozenset(ids)

    async def note(self, who: Caller, id: str) -> bytes | None:
        return None

    async def page(self, who: Caller, before: int, limit: int) -> Sequence[ListedOriginal]:
        return ()

    async def texts(self, who: Caller, before: int, limit: int) -> Sequence[StoredText]:
        return ()

    async def of_sessions(self, who: Caller, sessions: Collection[str] | None) -> frozenset[str]:
        return frozenset()

    async def delete(self, who: Caller, ids: Collection[str]) -> frozenset[str]:
        return frozenset()


class ObservedDecisions(Decisions):
    """The decisions that would have been made, in memory only, so that later requests repeat them."""

    def __init__(self) -> None:
        self._made: LruCache[ScopedKey, DecisionRecord] = LruCache(MAX_DECISIONS, max_bytes=DECISIONS_BYTES)
        self._compressions: LruCache[ScopedSession, tuple[CompressionRecord, ...]] = LruCache(MAX_SESSIONS)
        self._compressed: set[ScopedSession] = set()

    async def get(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        found = ((key, self._made.get((who.scope, key))) for key in keys)
        return {key: record for key, record in found if record is not None}

    async def times(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, float]:
        return {key: record.created for key, record in (await self.get(who, keys)).items()}

    async def add(
        self,
        who: Caller,
        new: Sequence[DecisionRecord],
        forget: Sequence[bytes] = (),
        replaces: Mapping[bytes, float] = MappingProxyType({}),
    ) -> Mapping[bytes, DecisionRecord]:
        for key in (*forget, *replaces):
            self._made.forget((who.scope, key))
        for record in new:
            if self._made.get((who.scope, record.key)) is None:
                self._made.put((who.scope, record.key), record, 300 + len(record.shown or b""))
        return await self.get(who, [record.key for record in new])

    async def of_original(self, who: Caller, id: str) -> DecisionRecord | None:
        return None

    async def page(self, who: Caller, after: int, limit: int) -> Sequence[tuple[int, DecisionRecord]]:
        return ()

    async def sole_originals(
        self, who: Caller, sessions: Collection[str] | None, also: Collection[str] = ()
    ) -> frozenset[str]:
        return frozenset()

    async def forget_sessions(self, who: Caller, sessions: Collection[str] | None) -> int:
        before = len(self._made.items())
        for session in [None] if sessions is None else sessions:
            self.forget(who, session)
        return before - len(self._made.items())

    def forget(self, who: Caller, session: str | None) -> None:
        """Forget the decisions of a session that was deleted, or of all of a person's."""
        for key, record in self._made.items():
            if key[0] == who.scope and session in (None, record.session):
                self._made.forget(key)
        self._compressions.forget_matching(lambda place: place[0] == who.scope and session in (None, place[1]))
        self._compressed = {
            place for place in self._compressed if place[0] != who.scope or session not in (None, place[1])
        }

    async def totals(self, who: Caller) -> DecisionTotals:
        return DecisionTotals({}, 0, 0)

    async def add_compression(self, who: Caller, made: CompressionRecord, after: str | None = None) -> bool:
        place = who.scope, made.session
        before = self._compressions.get(place) or ()
        if (before[0].id if before else None) != after:
            return False
        self._compressions.put(place, (made, *before)[:MAX_COMPRESSIONS])
        if len(self._compressed) < MAX_SESSIONS:
            self._compressed.add(place)
        return True

    async def compressions(
        self, who: Caller, session: str, limit: int = MAX_COMPRESSIONS
    ) -> Sequence[CompressionRecord]:
        return (self._compressions.get((who.scope, session)) or ())[:limit]

    async def compressed_sessions(self, who: Caller) -> frozenset[str]:
        return frozenset(session for scope, session in self._compressed if scope == who.scope)

    async def undo_compression(self, who: Caller, id: str, at: float) -> None:
        """Do nothing: people undo what acted."""

    async def compression_totals(self, who: Caller, session: str | None = None) -> CompressionTotals:
        return CompressionTotals(0, 0, 0, 0)


class ObservedFact(NamedTuple):
    value: bytes
    session: str


class ObservedFacts(FactStore):
    """Facts of conversations as they would have been, in memory only."""

    def __init__(self) -> None:
        self._facts: LruCache[FactPlace, ObservedFact] = LruCache(MAX_DECISIONS, max_bytes=DECISIONS_BYTES)

    async def get(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
        found = ((key, self._facts.get((who.scope, kind, key))) for key in keys)
        return {key: fact.value for key, fact in found if fact is not None}

    async def put_if_absent(
        self, who: Caller, kind: FactKind, facts: Mapping[bytes, bytes], session: str | Mapping[bytes, str] = ""
    ) -> Mapping[bytes, bytes]:
        for key, value in facts.items():
            if self._facts.get((who.scope, kind, key)) is None:
                of = session if isinstance(session, str) else session[key]
                self._facts.put((who.scope, kind, key), ObservedFact(value, of), 100 + len(value))
        return await self.get(who, kind, facts)

    async def delete(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> None:
        for key in keys:
            self._facts.forget((who.scope, kind, key))

    async def forget_sessions(self, who: Caller, sessions: Collection[str] | None) -> None:
        for session in [None] if sessions is None else sessions:
            self.forget(who, session)

    def forget(self, who: Caller, session: str | None) -> None:
        """Forget the facts of a session that was deleted, or of all of a person's."""
        for place, fact in self._facts.items():
            if place[0] == who.scope and fact.session and session in (None, fact.session):
                self._facts.forget(place)

    async def keys(self, who: Caller, kind: FactKind, limit: int) -> Sequence[bytes]:
        return [key for (scope, each, key), _ in self._facts.items() if (scope, each) == (who.scope, kind)][:limit]


class SeenCaches:
    """The prompt caches as the request that really left found them."""

    async def observe(self, draft: Draft) -> CacheMoment:
        if draft.cache is None:
            raise StoreUnavailable("the state of the prompt cache is unknown")
        return draft.cache


@dataclass(frozen=True, slots=True)
class ObservedStages:
    """Stages that leave no trace; `follow_switches` switches them as those that act are."""

    in_order: Sequence[Stage]
    follow_switches: Callable[[], None]
    on_fault: OnFault
    forgetters: Sequence[Forget] = ()  # of what they remember about sessions


class Observation:
    """The requests that are only observed, and how they would have been changed."""

    def __init__(
        self,
        mode: ObserveMode,
        stages: ObservedStages,
        caches: PromptCaches,
        session_store: SessionStore,
        now: Callable[[], float],
    ) -> None:
        self._mode = mode
        self._stages = stages
        self._caches = caches
        self._session_store = session_store
        self._now = now
        self._sessions: LruCache[ScopedSession, bool] = LruCache(MAX_SESSIONS)  # True: observed when last seen

    async def covers(self, draft: Draft) -> bool:
        """Return whether a request is only observed.

        An observed conversation stays so after the switch until its prompt cache is cold: cached text does not change.
        """
        place = draft.caller.scope, draft.session.id
        if self._mode.is_on:
            self._sessions.put(place, True)
            return True
        was_observed = self._sessions.get(place)
        if was_observed is None:
            was_observed = await self._was_observed(draft)
        elif was_observed:
            was_observed = self._caches.is_warm(draft)
        self._sessions.put(place, was_observed)
        return was_observed

    async def _was_observed(self, draft: Draft) -> bool:
        """Return whether an earlier process observed a conversation that is still in the prompt cache."""
        if not any(message.role == "assistant" for message in draft.request.messages):
            return False
        try:
            async with asyncio.timeout(DISK_S):
                last = await self._session_store.newest_metric(draft.caller, draft.session.id)
        except (StoreUnavailable, TimeoutError):
            return False
        if last is None or last.observed_tokens is None:
            return False
        return self._now() - last.at < (last.cache_life_s or LIFE_S) + MARGIN_S

    async def decide(self, received: Draft, outgoing: Draft) -> Draft:
        """Return `outgoing` with the draft that would have been sent in its place."""
        if received.is_attested or outgoing.cache is None:
            return outgoing
        self._stages.follow_switches()
        would = await run_stages(replace(received, cache=outgoing.cache), self._stages.in_order, self._stages.on_fault)
        return replace(outgoing, would=would)

"""The store as the people of a team see it: each what is theirs, and without a caller nothing.

Services name the scope they mean, which is that of the caller. Here it is checked that this is so: a service that
forgets who calls, or is called by no one, gets AccessDenied and not another person's text.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from kimi_proxy.core import caller
from kimi_proxy.core.caller import LOCAL_SCOPE, Caller
from kimi_proxy.core.errors import AccessDenied, PruneIdNotFound
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.accounting import SavingsLine
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store.protocols import (
    NEWEST,
    CompressionRecord,
    CompressionTotals,
    Cursor,
    DecisionRecord,
    Decisions,
    DecisionTotals,
    ListedOriginal,
    MemoryTotals,
    Original,
    Originals,
    Replicas,
    Scopes,
    SessionRecord,
    SessionStore,
    SessionTotals,
    Store,
    StoredText,
    StoreUsage,
)
from kimi_proxy.services.store.team import TeamTables


def _person(scope: str | None = None) -> Caller:
    """Return who calls. Raise AccessDenied if that is no one, or if `scope` is not where their texts are kept."""
    who = caller.current()
    if who.scope == LOCAL_SCOPE or (scope is not None and scope != who.scope):
        raise AccessDenied("this belongs to the people of a team: call with a token of one of them")
    return who


Note = Callable[[str, str], None]  # an action, and the id that it was done to


class TeamOriginals:
    def __init__(self, originals: Originals, note: Note) -> None:
        self._originals = originals
        self._note = note

    async def find(self, scope: str, key: bytes) -> str | None:
        return await self._originals.find(_person(scope).scope, key)

    async def keep(self, original: Original) -> None:
        _person(original.scope)
        await self._originals.keep(original)

    async def get(self, scope: str, id: str) -> Original:
        *others, last = _person(scope).scopes
        self._note("recover", id)
        for each in others:
            try:
                return await self._originals.get(each, id)
            except PruneIdNotFound as e:
                if e.reason == "expired":
                    raise
        return await self._originals.get(last, id)

    async def live(self, scope: str, ids: Collection[str]) -> frozenset[str]:
        found = [await self._originals.live(each, ids) for each in _person(scope).scopes]
        return frozenset[str]().union(*found)

    async def page(self, scope: str, before: int, limit: int) -> Sequence[ListedOriginal]:
        pages = [await self._originals.page(each, before, limit) for each in _person(scope).scopes]
        return sorted((one for page in pages for one in page), key=lambda one: -one.seq)[:limit]

    async def texts(self, scope: str, before: int, limit: int) -> Sequence[StoredText]:
        if before == NEWEST:
            self._note("search", "")
        pages = [await self._originals.texts(each, before, limit) for each in _person(scope).scopes]
        return sorted((one for page in pages for one in page), key=lambda one: -one.seq)[:limit]


class TeamDecisions:
    def __init__(self, decisions: Decisions, sessions: "TeamSessions", note: Note) -> None:
        self._decisions = decisions
        self._sessions = sessions
        self._note = note

    async def get(self, scope: str, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        return await self._decisions.get(_person(scope).scope, keys)

    async def times(self, scope: str, keys: Sequence[bytes]) -> Mapping[bytes, float]:
        return await self._decisions.times(_person(scope).scope, keys)

    async def add(
        self,
        scope: str,
        new: Sequence[DecisionRecord],
        forget: Sequence[bytes] = (),
        replaces: Mapping[bytes, float] = MappingProxyType({}),
    ) -> Mapping[bytes, DecisionRecord]:
        return await self._decisions.add(_person(scope).scope, new, forget, replaces)

    async def of_original(self, scope: str, id: str) -> DecisionRecord | None:
        for each in _person(scope).scopes:
            if (found := await self._decisions.of_original(each, id)) is not None:
                return found
        return None

    async def totals(self, scope: str) -> DecisionTotals:
        return await self._decisions.totals(_person(scope).scope)

    async def add_compression(self, made: CompressionRecord, after: str | None = None) -> bool:
        _person()
        self._note("compress", made.session)
        return await self._decisions.add_compression(made, after)

    async def compressions(self, session: str) -> Sequence[CompressionRecord]:
        return await self._decisions.compressions(session) if await self._sessions.owns(session) else ()

    async def undo_compression(self, id: str, at: float) -> None:
        _person()
        self._note("undo_compression", id)
        await self._decisions.undo_compression(id, at)

    async def compression_totals(self, session: str | None = None, scopes: Scopes = None) -> CompressionTotals:
        return await self._decisions.compression_totals(session, _visible())


class TeamSessions:
    """An admin sees everyone's, as figures: of others neither a title nor what was said."""

    def __init__(self, sessions: SessionStore, note: Note) -> None:
        self._sessions = sessions
        self._note = note

    async def owns(self, id: str) -> bool:
        """Return whether the session is the caller's, or no one's yet."""
        found = await self._sessions.get(id)
        return found is None or found.scope in _person().scopes

    async def write(self, sessions: Sequence[SessionRecord], metrics: Sequence[Metric]) -> None:
        await self._sessions.write(sessions, metrics)  # each says itself whose it is

    async def get(self, id: str) -> SessionRecord | None:
        who, found = _person(), await self._sessions.get(id)
        if found is None or not (who.is_admin or found.scope in who.scopes):
            return None
        return _shown(found, who)

    async def newest(self, limit: int, after: Cursor | None = None, scopes: Scopes = None) -> Sequence[SessionRecord]:
        return [_shown(one, _person()) for one in await self._sessions.newest(limit, after, _visible())]

    async def newest_ids(self, limit: int) -> Sequence[str]:
        return [one.id for one in await self.newest(limit)]

    async def search(self, words: str, limit: int, scopes: Scopes = None) -> Sequence[SessionRecord]:
        # Of others not even an admin may learn whether a title holds some words.
        return await self._sessions.search(words, limit, _person().scopes)

    async def count(self, scopes: Scopes = None) -> int:
        return await self._sessions.count(_visible())

    async def totals(self, scopes: Scopes = None) -> SessionTotals:
        return await self._sessions.totals(_visible())

    async def memory_totals(self, scopes: Scopes = None) -> MemoryTotals:
        return await self._sessions.memory_totals(_visible())

    async def newest_context(self, session: str) -> tuple[JsonValue, JsonValue]:
        return await self._sessions.newest_context(session) if await self.owns(session) else (None, None)

    async def rename(self, id: str, title: str) -> bool:
        return await self.owns(id) and await self._sessions.rename(id, title)

    async def delete(self, ids: Sequence[str]) -> int:
        own = [id for id in ids if await self.owns(id)]
        for id in own:
            self._note("delete_session", id)
        return await self._sessions.delete(own)

    async def delete_all(self, scopes: Scopes = None) -> int:
        self._note("delete_session", "all")
        return await self._sessions.delete_all(_person().scopes)

    async def newest_metric(self, session: str) -> Metric | None:
        found = await self._sessions.newest_metrics(1, session, _visible())
        return found[-1] if found else None

    async def newest_metrics(self, limit: int, session: str | None = None, scopes: Scopes = None) -> Sequence[Metric]:
        return await self._sessions.newest_metrics(limit, session, _visible())

    async def metrics(
        self, session: str | None, after: int, limit: int, scopes: Scopes = None
    ) -> Sequence[tuple[int, Metric]]:
        if not after:
            self._note("export", session or "all")
        return await self._sessions.metrics(session, after, limit, _visible())

    async def accounts(self, since: float, session: str | None = None, scopes: Scopes = None) -> Sequence[SavingsLine]:
        own = {one.session for one in await self._sessions.accounts(since, session, _person().scopes)}
        found = await self._sessions.accounts(since, session, _visible())
        return [one if one.session in own else replace(one, title="") for one in found]


class TeamStore:
    """`note` is called with what people do to texts that are kept."""

    def __init__(self, store: Store, note: Note) -> None:
        self._store = store
        self.originals = TeamOriginals(store.originals, note)
        self.sessions = TeamSessions(store.sessions, note)
        self.decisions = TeamDecisions(store.decisions, self.sessions, note)

    @property
    def replicas(self) -> Replicas | None:
        return self._store.replicas

    @property
    def team(self) -> TeamTables:
        return self._store.team

    async def usage(self) -> StoreUsage:
        return await self._store.usage()

    async def close(self) -> None:
        await self._store.close()


def _visible() -> Scopes:
    """Return whose figures the caller may see."""
    who = _person()
    return None if who.is_admin else who.scopes


def _shown(session: SessionRecord, who: Caller) -> SessionRecord:
    """Return a session without what its person wrote, unless `who` may read that."""
    return session if session.scope in who.scopes else replace(session, name="", title="", directory="")

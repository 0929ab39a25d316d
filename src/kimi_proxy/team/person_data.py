"""All data stored for a person: exported as JSON lines, and erased."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kimi_proxy.api.addon import PersonalFiles
from kimi_proxy.core.cache import in_batches
from kimi_proxy.core.caller import Caller, person_scope, team_scope
from kimi_proxy.core.errors import InvalidParams, StoreUnavailable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.services import serialize
from kimi_proxy.services.chat.memory import Memories, delete_old_files
from kimi_proxy.services.events import iso_time
from kimi_proxy.services.journal import DELETED
from kimi_proxy.services.originals import delete_texts
from kimi_proxy.services.store.protocols import NEWEST, DecisionRecord, Store, StoredEvent
from kimi_proxy.team.audit import AuditLog
from kimi_proxy.team.people import ADMIN, People, is_person_id
from kimi_proxy.team.records import PersonRecord
from kimi_proxy.team.report import audit_line
from kimi_proxy.team.tables import team_tables

PAGE = 200
TEXTS = 20  # originals at once: each may have megabytes
IDS = 500  # of originals in one statement
ALL = 1_000_000
ALL_DAYS = "0001-01-01"

ExportLine = Mapping[str, object]  # of what JSON is made of, with its `kind`


@dataclass(frozen=True, slots=True)
class ErasedData:
    """The number of a person's rows that were erased."""

    sessions: int
    originals: int
    decisions: int
    recordings: int


@dataclass(frozen=True, slots=True)
class DataInScope:
    """What of a scope belongs to a person: all of their own, and of one that a team shares what is listed here."""

    who: Caller  # that reads or deletes it
    sessions: Collection[str]
    loose: Sequence[str] = ()  # originals that belong to no session
    is_shared: bool = False

    def covers(self, session: str) -> bool:
        return session in self.sessions if self.is_shared else True


class PersonData:
    """All data kept for a person, in the store and in recordings on this machine."""

    def __init__(
        self,
        store: Store,
        people: People,
        audit: AuditLog,
        files: PersonalFiles,
        memories: Memories,
        home: Path,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._people = people
        self._audit = audit
        self._files = files
        self._memories = memories
        self._home = home
        self._now = now

    async def find(self, name: str) -> PersonRecord:
        """Return the person of this name, or a removed one by id. Raise InvalidParams if there is none."""
        if name == ADMIN:
            raise InvalidParams("name", "the server's own token belongs to no person")
        removed = PersonRecord("", "member", "", 0.0, 0.0, revoked=0.0, id=name)
        is_removed = is_person_id(name) and all(one.id != name for one in await self._people.list())
        return removed if is_removed else await self._people.one(name)

    async def export(self, actor: Caller, person: PersonRecord) -> AsyncIterator[ExportLine]:
        """Yield one object for each stored item of a person."""
        self._audit.add(actor, "export_person", person.name or person.id)
        yield {"kind": "person", **_person_to_json(person)}
        for token in await team_tables(self._store).tokens(person.id):
            times: JsonObject = {"created_at": iso_time(token.created), "expires_at": iso_time(token.expires)}
            yield {"kind": "token", "id": token.id, "label": token.label, **times}
        for of in await self._all_of(actor, person):
            for id in sorted(of.sessions):
                async for line in self._session(of.who, id):
                    yield line
            async for line in self._texts(of):
                yield line
        own = _acting_for(actor, person_scope(person.id))
        memory = await self._memories.read(replace(own, person_id=person.id))
        if memory.content:
            yield {"kind": "project_memory", "content": memory.content}
        for path in self._files.of_person(person.id):
            text = await asyncio.to_thread(path.read_text, "utf-8", "replace")
            yield {"kind": "recording", "file": path.name, "text": text}
        for key, used in await team_tables(self._store).usage(ALL_DAYS, [person.id]):
            yield {"kind": "usage", **asdict(key), **asdict(used)}
        async for entry in self._audit.entries(0.0, PAGE):
            if entry.person_id == person.id:
                yield {"kind": "audit", **audit_line(entry)}

    async def erase(self, actor: Caller, person: PersonRecord) -> ErasedData:
        """Delete all data stored for a revoked person, and then the name itself.

        Daily totals stay, without the name, and so do audit log entries until they expire. Raise InvalidParams if the
        token still works, because requests could store texts in the meantime.
        """
        if person.revoked is None:
            raise InvalidParams("name", f"{person.name!r} still has a working token: revoke it first")
        own = _acting_for(actor, person_scope(person.id))
        store = self._store
        scopes = [of.who.scope for of in await self._all_of(actor, person)]
        # From here on no request that is still running writes anything for them, so that what is deleted stays so.
        await team_tables(store).erase_person(person.id, sorted(scopes), self._now())
        sessions = originals = decisions = 0
        recordings = len(self._files.of_person(person.id))
        for of in await self._all_of(actor, person):
            deleted = await delete_texts(store, of.who, of.sessions)
            originals += deleted.originals + len(await store.originals.delete(of.who, of.loose))
            decisions += deleted.decisions
            sessions += len(await store.sessions.delete(of.who, sorted(of.sessions)))
            for id in of.sessions:
                self._files.forget(of.who, id)
                self._clear_caches(of.who, id)
        while some := await store.originals.page(own, NEWEST, PAGE):
            originals += len(await store.originals.delete(own, [one.id for one in some]))
        decisions += await store.decisions.forget_sessions(own, None)
        await store.sessions.delete_all(own)
        self._files.forget(own, None)
        self._clear_caches(own, None)
        await store.project_memory.delete(person.id)
        await asyncio.to_thread(delete_old_files, self._home, person.id)
        await team_tables(store).erase_scope(own.scope)
        await team_tables(store).remove_person(person.id)
        self._audit.add(actor, "erase_person", person.name or person.id)
        return ErasedData(sessions, originals, decisions, recordings)

    async def _all_of(self, actor: Caller, person: PersonRecord) -> Sequence["DataInScope"]:
        """Return each scope that may hold data of the person, sorted, with what of it is theirs."""
        found: dict[str, list[str]] = {person_scope(person.id): []}
        if person.team:
            found[team_scope(person.team)] = []
        for scope, id in await self._store.sessions.ids_of_person(person.id):
            found.setdefault(scope, []).append(id)
        return [await self._in_scope(_acting_for(actor, scope), person, found[scope]) for scope in sorted(found)]

    async def _in_scope(self, who: Caller, person: PersonRecord, sessions: Sequence[str]) -> "DataInScope":
        if who.scope == person_scope(person.id):
            return DataInScope(who, sessions)
        # Texts that another gateway has shortened are of conversations that are no sessions here.
        noted = await self._store.originals.of_person(who, person.id)
        known = frozenset((*sessions, *noted.values())) - {""}
        return DataInScope(who, known, [id for id, session in noted.items() if not session], is_shared=True)

    def _clear_caches(self, who: Caller, session: str | None) -> None:
        """Make running servers forget what they have in memory."""
        if self._store.replicas is not None:
            self._store.replicas.publish(StoredEvent(DELETED, 0.0, {"session_id": session}, who.scope))

    async def _session(self, who: Caller, id: str) -> AsyncIterator[ExportLine]:
        session = await self._store.sessions.get(who, id)
        if session is None:
            return
        memory, layout = await self._store.sessions.newest_context(who, id)
        yield {"kind": "session", **serialize.session(session), "memory_context": memory, "layout": layout}
        after = 0
        while page := await self._store.sessions.metrics(who, id, after, PAGE):
            after = page[-1][0]
            for _, metric in page:
                yield {"kind": "request", **serialize.metric(metric)}
        try:
            compressions = await self._store.decisions.compressions(who, id, ALL)
        except StoreUnavailable as e:  # one that is damaged ends no export
            yield {"kind": "damaged", "of": "compression", "session_id": id, "message": str(e)}
            return
        for made in compressions:
            figures = {name: value for name, value in asdict(made).items() if name != "fingerprint"}
            yield {"kind": "compression", **figures, "kept": list(made.kept)}

    async def _texts(self, of: "DataInScope") -> AsyncIterator[ExportLine]:
        """Yield the decisions, facts and originals of a scope that are the person's."""
        cut: set[str] = set()
        after = 0
        while page := await self._store.decisions.page(of.who, after, PAGE):
            after = page[-1][0]
            for _, one in page:
                if of.covers(one.session):
                    cut.update(one.original_ids)
                    yield {"kind": "decision", **_decision_to_json(one)}
        after = 0
        while facts := await self._store.facts.page(of.who, after, PAGE):
            after = facts[-1][0]
            for _, fact in facts:
                if of.covers(fact.session):
                    yield {"kind": "fact", "of": fact.kind, **_text_to_json(fact.value)}
        noted = await self._store.originals.of_sessions(of.who, of.sessions)
        ids = {*cut, *noted, *of.loose}
        async for line in self._originals(of.who, sorted(ids) if of.is_shared else None):
            yield line

    async def _originals(self, who: Caller, ids: Sequence[str] | None) -> AsyncIterator[ExportLine]:
        if ids is not None and len(ids) > IDS:
            for some in in_batches(ids, IDS):
                async for line in self._originals(who, some):
                    yield line
            return
        before = NEWEST
        while page := await self._store.originals.texts(who, before, TEXTS, ids):
            before = page[-1].seq
            for one in page:
                yield {"kind": "original", "id": one.id, **_text_to_json(one.text)}


def _acting_for(actor: Caller, scope: str) -> Caller:
    """Return the caller that reads or deletes a scope's data; the audit log names the person who acts."""
    return Caller(scope, actor.person, is_admin=False)


def _person_to_json(person: PersonRecord) -> JsonObject:
    return {
        "id": person.id,
        "name": person.name,
        "role": person.role,
        "team": person.team,
        "subject": person.subject,
        "created_at": iso_time(person.created),
        "rotated_at": iso_time(person.rotated),
        "revoked_at": None if person.revoked is None else iso_time(person.revoked),
    }


def _decision_to_json(one: DecisionRecord) -> JsonObject:
    return {
        "why": one.why,
        "session_id": one.session,
        "original_ids": list(one.original_ids),
        "preview": one.preview,
        "tokens_before": one.tokens_before,
        "tokens_after": one.tokens_after,
        "created_at": iso_time(one.created),
        **_text_to_json(one.shown),
    }


def _text_to_json(text: bytes | None) -> dict[str, JsonValue]:
    """Return a text, in base 64 if it is not UTF-8; null if there is none, or it is damaged on disk."""
    if text is None:
        return {"text": None}
    try:
        return {"text": text.decode()}
    except UnicodeDecodeError:
        return {"text_base64": base64.b64encode(text).decode()}

"""The session of a request: by the name that its client gives, by how it begins, or by the answers it continues."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

from kimi_proxy.core import json
from kimi_proxy.core.caller import LOCAL_SCOPE, Caller
from kimi_proxy.core.chat import Request
from kimi_proxy.core.errors import ParseError, StoreUnavailable
from kimi_proxy.core.lines import encode_text
from kimi_proxy.features.chat.sessions import (
    LOCAL_IDS,
    Session,
    SessionIds,
    another,
    answers_in,
    is_session_id,
    session_of,
)
from kimi_proxy.services.chat.facts import LateFacts
from kimi_proxy.services.chat.observers import ChatObserver
from kimi_proxy.services.chat.relay import Exchange
from kimi_proxy.services.remembered import Memory, Remembered, stays
from kimi_proxy.services.store.protocols import FactStore, SessionStore

MAX_KNOWN = 10_000
MAX_STORED_KEYS = 50_000  # of a person, in 60 bytes each
MAX_STARTS = 4  # conversations with the same beginning that have not continued yet
# A request in the wrong session loses its cuts, so it waits for a slow disk, but not again for one that hangs.
DISK_S, HUNG_DISK_S = 1.5, 0.25

log = logging.getLogger(__name__)


class SessionNames:
    """Finds the session of a request, by the client's name for it or by its first messages.

    Without a team, ids are plain hashes. In a team they are keyed with a secret of the store, so that no one can claim
    another person's session in advance; sessions that existed before keep their ids.
    """

    def __init__(self, session_store: SessionStore, memory: Memory | None = None) -> None:
        memory = memory or Memory()
        self._session_store = session_store
        self._secret = b""
        self._makeshift = secrets.token_bytes(32)  # the secret while the store cannot be read
        self._in_use: Remembered[tuple[str, str], str] = Remembered(  # by scope and keyed id
            memory, "ids of sessions in use", size=MAX_KNOWN, forget=stays
        )
        self._derived: Remembered[tuple[str, str], bool] = Remembered(
            memory, "ids of sessions that may have no row yet", size=MAX_KNOWN, forget=stays
        )

    async def session_of(
        self,
        who: Caller,
        request: Request,
        headers: Mapping[bytes, bytes],
        provider: str,
        with_reminders: bool = False,  # as older versions named it
    ) -> Session:
        """Return the session of a request. An id that the client sends counts only if that session is the caller's."""
        if who.scope == LOCAL_SCOPE:
            return session_of(request, headers, provider, LOCAL_IDS, with_reminders)
        keyed = session_of(request, headers, provider, await self._ids(who), with_reminders)
        ids = [keyed.id, *([keyed.parent] if keyed.parent else [])]
        if any((who.scope, id) not in self._in_use for id in ids):
            public = session_of(request, headers, provider, SessionIds(who.scope), with_reminders)
            await self._look_up(who, {keyed.id: public.id, **({keyed.parent: public.parent} if keyed.parent else {})})
        id = self._id(who, keyed.id)
        parent = self._id(who, keyed.parent) if keyed.parent else ""
        return replace(keyed, id=id, parent=parent, beginning=id if keyed.beginning else "")

    async def id_of(self, who: Caller, id_or_name: str) -> str:
        """Return the id of the session that is meant; whether the person may see it, the store decides."""
        return id_or_name if is_session_id(id_or_name) else await self.own_id(who, id_or_name)

    async def own_id(self, who: Caller, name: str) -> str:
        """Return the id of the person's own session of that name; an id of another's is a name like any other."""
        if who.scope == LOCAL_SCOPE:
            return LOCAL_IDS.session_named(name).id
        keyed = (await self._ids(who)).session_named(name).id
        if (who.scope, keyed) not in self._in_use:
            await self._look_up(who, {keyed: SessionIds(who.scope).session_named(name).id})
        return self._id(who, keyed)

    def _id(self, who: Caller, keyed: str) -> str:
        found = self._in_use.get((who.scope, keyed)) or keyed
        self._derived.put((who.scope, found), True)
        return found

    async def _look_up(self, who: Caller, public: Mapping[str, str]) -> None:
        """Remember which id is in use: the one that anyone can work out, if the person has a session of that id."""
        try:
            own = await self._session_store.own_ids(who, list(public.values()))
        except StoreUnavailable as e:
            log.warning("the id of a session cannot be looked up", extra={"what": str(e)[:300]})
            return
        for keyed, id in public.items():
            is_own = id in own or (who.scope, id) in self._derived
            self._in_use.put((who.scope, keyed), id if is_own else keyed)

    async def read_secret(self) -> None:
        """Read the store's secret; if that fails, the next request tries again."""
        try:
            self._secret = self._secret or await self._session_store.secret()
        except StoreUnavailable as e:
            log.warning("the key of session ids cannot be read", extra={"what": str(e)[:300]})

    async def _ids(self, who: Caller) -> SessionIds:
        await self.read_secret()
        return SessionIds(who.scope, who.person_id, self._secret or self._makeshift)


@dataclass(slots=True)
class StoredKeys:
    """Eight bytes of every key that may be on disk. A key that is not here is not there either."""

    heads: set[bytes]
    is_read: bool = False

    def add(self, key: bytes) -> None:
        self.heads.add(key[:8])

    def __contains__(self, key: bytes) -> bool:
        return key[:8] in self.heads or len(self.heads) >= MAX_STORED_KEYS


class SessionsByAnswer:
    """Sessions by keys such as the id of a response: in memory at once, on disk soon after.

    The first session stored for a key stays.
    """

    def __init__(self, facts: FactStore, is_shared: bool = False, memory: Memory | None = None) -> None:
        self._facts = facts
        self._is_shared = is_shared
        self._late = LateFacts(facts, "answered", is_shared)
        self._known: Remembered[tuple[str, bytes], Session] = Remembered(
            memory or Memory(), "sessions by answer", size=MAX_KNOWN, forget=stays
        )
        self._stored_keys: dict[str, StoredKeys] = {}  # by scope
        self._patience_s = DISK_S

    def from_memory(self, who: Caller, key: bytes) -> Session | None:
        """Return the session in memory."""
        return self._known.get((who.scope, key))

    def remember(self, who: Caller, key: bytes, session: Session) -> None:
        """Keep it in memory alone."""
        self._known.put((who.scope, key), session)

    async def get(self, who: Caller, key: bytes, waits_s: Sequence[float] = (0.0,)) -> Session | None:
        """Return the session; None if it is not known, or cannot be read in time. `waits_s` come before each try."""
        known = self.from_memory(who, key)
        if known is not None:
            return known
        try:
            async with asyncio.timeout(self._patience_s):
                value = await self._look_up(who, key, waits_s) if await self._may_be_stored(who, key) else None
            self._patience_s = DISK_S
        except (StoreUnavailable, TimeoutError) as e:
            self._patience_s = HUNG_DISK_S
            log.warning("the session of an answer cannot be read", extra={"what": str(e)[:300]})
            return None
        found = None if value is None else _session(value)
        if found is not None:
            self.remember(who, key, found)
        return found

    async def _may_be_stored(self, who: Caller, key: bytes) -> bool:
        """Return False if `key` is certainly not on disk: the first request of a conversation then waits for no disk.

        One read costs as much as a whole request, and waits for every commit in progress.
        """
        if self._is_shared:
            return True
        return key in await self.look(who)

    async def look(self, who: Caller) -> StoredKeys:
        """Return which keys are on disk, which is read once."""
        stored = self._stored_keys_of(who)
        if not stored.is_read:
            for found in await self._facts.keys(who, "answered", MAX_STORED_KEYS):
                stored.add(found)
            stored.is_read = True
        return stored

    def _stored_keys_of(self, who: Caller) -> StoredKeys:
        return self._stored_keys.setdefault(who.scope, StoredKeys(set()))

    async def _look_up(self, who: Caller, key: bytes, waits_s: Sequence[float]) -> bytes | None:
        for wait_s in waits_s:
            await asyncio.sleep(wait_s)
            value = (await self._facts.get(who, "answered", [key])).get(key)
            if value is not None:
                return value
        return None

    def put(self, who: Caller, key: bytes, session: Session) -> None:
        """Keep it in memory, and write it to disk in a batch soon after."""
        self.remember(who, key, session)
        self._stored_keys_of(who).add(key)
        names = ("id", "name", "parent", "beginning")
        self._late.put(who, key, json.encode({name: getattr(session, name) for name in names}))

    async def close(self) -> None:
        """Write the waiting keys."""
        await self._late.close()


class SessionsByResponse(ChatObserver):
    """Remembers the sessions of answers that their provider keeps, by their ids."""

    def __init__(self, sessions: SessionsByAnswer, is_shared: bool = False) -> None:
        self._sessions = sessions
        # Another server may still be storing the response that a client continues at once.
        self._waits_s = (0.0, 0.02, 0.05, 0.1) if is_shared else (0.0,)

    def on_end(self, exchange: Exchange) -> None:
        request = exchange.draft.request
        response_id = exchange.reply.response_id
        if response_id and request.is_kept:
            key = _key(b"answered", encode_text(response_id))
            self._sessions.put(exchange.draft.caller, key, exchange.draft.session)

    async def session_after(self, who: Caller, response_id: str) -> Session | None:
        """Return the session of an answer; None if it is not known, or cannot be read in time."""
        return await self._sessions.get(who, _key(b"answered", encode_text(response_id)), self._waits_s)


@dataclass(slots=True)
class _Start:
    """A conversation of which only the first request has come."""

    session: Session
    is_answered: bool = False


class Conversations(ChatObserver):
    """Keeps conversations with the same beginning apart, such as two runs of an agent with one prompt.

    Continue CLI and Cline then send the same bytes and no name: only the model's answers and the tools' results differ.
    They identify a conversation from its second request on. The first request starts a new conversation if the existing
    one has continued, or was answered with tools available; otherwise a client may be repeating it after a failure. The
    same holds for a second request that is repeated.
    """

    def __init__(self, sessions: SessionsByAnswer, memory: Memory | None = None) -> None:
        memory = memory or Memory()
        self._sessions = sessions
        self._starts: Remembered[tuple[str, str], list[_Start]] = Remembered(
            memory, "conversations with one request", size=MAX_KNOWN, forget=stays
        )
        self._answered: Remembered[tuple[str, bytes], bool] = Remembered(
            memory, "second requests", size=MAX_KNOWN, forget=stays
        )

    def on_end(self, exchange: Exchange) -> None:
        session = exchange.draft.session
        request = exchange.draft.received or exchange.draft.request
        is_answered = exchange.outcome == "ok" and exchange.status == 200
        if not session.beginning or not is_answered or not request.tool_names:
            return
        for said in answers_in(request, with_results=True)[:1]:
            self._answered.put((exchange.draft.caller.scope, _ran(session.beginning, said)), True)
        for start in self._starts.get((exchange.draft.caller.scope, session.beginning)) or ():
            start.is_answered = start.is_answered or start.session.id == session.id

    async def session(
        self, who: Caller, beginning: Session, request: Request, former: Callable[[], Awaitable[Session]]
    ) -> Session:
        """Return the session of a request that is known by its beginning alone; `former` is that of older versions."""
        answers = answers_in(request)
        if not answers:
            return await self._start(who, beginning)
        runs = [_ran(beginning.id, answer) for answer in answers_in(request, with_results=True)]
        keys = [_key(b"said", beginning.id.encode(), answer) for answer in answers]
        found = await self._of_answers(who, runs)
        if len(answers) == 1 and (found is None or (who.scope, runs[0]) in self._answered):
            found = self._take_start(who, beginning) or found
        found = found or await self._of_answers(who, keys)
        found = found or await self._began_before(who, beginning, answers, former)
        found = found or await self._going_on(who, beginning, answers[0], keys)
        began = _key(b"began", beginning.id.encode())
        if self._sessions.from_memory(who, began) is None:
            self._sessions.put(who, began, found)
        for first in (runs[0], keys[0]):
            if self._sessions.from_memory(who, first) is None:
                self._sessions.put(who, first, found)
        for key in (*runs, *keys[1:]):
            self._sessions.remember(who, key, found)
        return found

    def _take_start(self, who: Caller, beginning: Session) -> Session | None:
        """Return the newest conversation with this beginning that was answered and has not continued yet."""
        starts = self._starts.get((who.scope, beginning.id)) or []
        if not starts or not starts[-1].is_answered:
            return None
        self._starts.put((who.scope, beginning.id), starts[:-1])
        return starts[-1].session

    async def _start(self, who: Caller, beginning: Session) -> Session:
        """Return the session of a first request: a new one, unless the client may be repeating one that failed."""
        starts = self._starts.get((who.scope, beginning.id)) or []
        if starts and not starts[-1].is_answered:
            return starts[-1].session
        is_known = bool(starts) or await self._sessions.get(who, _key(b"began", beginning.id.encode())) is not None
        session = another(who.scope, beginning, secrets.token_bytes(16)) if is_known else beginning
        self._starts.put((who.scope, beginning.id), [*starts, _Start(session)][-MAX_STARTS:])
        return session

    async def _of_answers(self, who: Caller, keys: Sequence[bytes]) -> Session | None:
        in_memory = (known for key in keys if (known := self._sessions.from_memory(who, key)) is not None)
        return next(in_memory, None) or await self._sessions.get(who, keys[0])

    async def _began_before(
        self, who: Caller, beginning: Session, answers: Sequence[bytes], former: Callable[[], Awaitable[Session]]
    ) -> Session | None:
        """Return the session of a conversation that began under an older version, if it had another beginning."""
        before = await former()
        if before.id == beginning.id:
            return None
        found = await self._of_answers(who, [_key(b"said", before.id.encode(), answer) for answer in answers])
        return replace(found, beginning=beginning.id) if found else None

    async def _going_on(self, who: Caller, beginning: Session, answer: bytes, keys: Sequence[bytes]) -> Session:
        """Return the session of a second request: the newest that began so and has had only its first."""
        starts = self._starts.get((who.scope, beginning.id)) or []
        if starts:
            self._starts.put((who.scope, beginning.id), starts[:-1])
            return starts[-1].session
        if await self._sessions.get(who, _key(b"began", beginning.id.encode())) is None:
            return beginning
        # Another request of this conversation, here or on another server, may have begun it since we looked.
        return await self._of_answers(who, keys) or another(who.scope, beginning, answer)


class RememberedSessions:
    """The session of a request, by its name, by how its conversation went on, or by the answer it continues."""

    def __init__(self, names: SessionNames, conversations: Conversations, by_response: SessionsByResponse) -> None:
        self._names = names
        self._conversations = conversations
        self._by_response = by_response

    async def find(self, who: Caller, request: Request, headers: Mapping[bytes, bytes], provider: str) -> Session:
        found = await self._names.session_of(who, request, headers, provider)
        previous = request.previous_response_id
        if found.beginning and not request.is_crowded:
            former = partial(self._names.session_of, who, request, headers, provider, with_reminders=True)
            return await self._conversations.session(who, found, request, former)
        return found if found.name or not previous else await self._by_response.session_after(who, previous) or found


def _ran(beginning: str, answer: bytes) -> bytes:
    return _key(b"ran", beginning.encode(), answer)


def _key(kind: bytes, *pieces: bytes) -> bytes:
    return sha256(b"\0".join((kind, *pieces))).digest()


def _session(value: bytes) -> Session | None:
    try:
        match json.decode(value):
            case {"id": str(id), "name": str(name), "parent": str(parent), **more}:
                return Session(id, name, parent, beginning=str(more.get("beginning", "")))
    except ParseError:
        pass
    return None

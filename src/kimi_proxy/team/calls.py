"""Calls between servers that share a database, for actions that only the server that relayed a session can perform.

Calls and results travel like live events. They contain ids and figures, never people's text.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import get_args

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import CompressionRefusal, CompressionRefused, KimiProxyError, NothingSeen, StoreUnavailable
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.markers import new_id
from kimi_proxy.services.store.protocols import FactStore, Replicas, StoredEvent

QUESTION, TAKEN, ANSWER = "replica_question", "replica_taken", "replica_answer"
TAKEN_S = 3.0  # a server that can answer responds within this time

_REFUSALS: Mapping[str, CompressionRefusal] = {reason: reason for reason in get_args(CompressionRefusal)}

# Performs the named action on the session with this id; raises KimiProxyError.
Work = Callable[[Caller, str], Awaitable[Mapping[str, object]]]


class ReplicaCalls:
    """`has` says whether this server relayed a session and can perform `works` on it."""

    def __init__(
        self,
        replicas: Replicas,
        facts: FactStore,
        works: Mapping[str, Work],
        has: Callable[[Caller, str], bool],
        answer_s: float,
        taken_s: float = TAKEN_S,
    ) -> None:
        self._replicas = replicas
        self._facts = facts
        self._works = works
        self._has = has
        self._answer_s = answer_s
        self._taken_s = taken_s
        self._origin = new_id("srv").encode()
        self._asked: dict[str, asyncio.Queue[StoredEvent]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, who: Caller, work: str, session: str) -> JsonObject:
        """Return the response of a server that relayed `session`. Raise NothingSeen if there is none, or its error."""
        id = new_id("ask")
        answers = self._asked[id] = asyncio.Queue[StoredEvent]()
        try:
            asks = {
                "person": who.person,
                "person_id": who.person_id,
                "team": who.team,
                "also_reads": list(who.also_reads),
            }
            self._publish(who, QUESTION, id, {"work": work, "session_id": session, **asks})
            answer = await _next(answers, self._taken_s)
            if answer is None and await self._claims(who, id):
                raise NothingSeen(session)
            while answer is None or answer.name != ANSWER:
                answer = await _next(answers, self._answer_s)
                if answer is None:
                    raise StoreUnavailable("the server that relayed this session did not respond: try again")
            return _read(answer)
        finally:
            del self._asked[id]

    def receive(self, event: StoredEvent) -> bool:
        """Take an event of another server; return False if it is none of a call."""
        match event.fields:
            case {"call": str(id)} if event.name in (TAKEN, ANSWER):
                if id in self._asked:
                    self._asked[id].put_nowait(event)
            case {"call": str(id), "work": str(work), "session_id": str(session), **who} if event.name == QUESTION:
                # Memory is per caller too: without a request here, a caller is as unknown as on any other server.
                asking = _caller(event.scope, who)
                if work in self._works and self._has(asking, session):
                    answering = self._answer(asking, id, self._works[work], session)
                    task = asyncio.get_running_loop().create_task(answering)
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            case _:
                return False
        return True

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _answer(self, who: Caller, id: str, work: Work, session: str) -> None:
        try:
            if await self._claims(who, id):
                self._publish(who, TAKEN, id, {})
                self._publish(who, ANSWER, id, {"done": await work(who, session)})
        except CompressionRefused as e:
            self._publish(who, ANSWER, id, {"refused": e.reason, "message": str(e)})
        except KimiProxyError as e:
            self._publish(who, ANSWER, id, {"failed": str(e)})

    async def _claims(self, who: Caller, id: str) -> bool:
        """Return whether this server claims a question first: no other answers it then, however late it comes."""
        key = sha256(b"call\0" + id.encode()).digest()
        return (await self._facts.put_if_absent(who, "claimed", {key: self._origin}))[key] == self._origin

    def _publish(self, who: Caller, name: str, id: str, fields: Mapping[str, object]) -> None:
        self._replicas.publish(StoredEvent(name, time.time(), {"call": id, **fields}, who.scope, who.person_id))


async def _next(answers: asyncio.Queue[StoredEvent], within_s: float) -> StoredEvent | None:
    try:
        async with asyncio.timeout(within_s):
            return await answers.get()
    except TimeoutError:
        return None


def _caller(scope: str, who: Mapping[str, object]) -> Caller:
    """Return who asked on another server; an admin has no more rights to what people wrote than others."""
    also = who.get("also_reads")
    scopes = tuple(str(one) for one in also) if isinstance(also, list) else ()
    return Caller(
        scope,
        str(who.get("person", "")),
        str(who.get("team", "")),
        is_admin=False,
        also_reads=scopes,
        person_id=str(who.get("person_id", "")),
    )


def _read(answer: StoredEvent) -> JsonObject:
    match answer.fields:
        case {"done": dict(done)}:
            return done
        case {"refused": str(reason), "message": str(said)}:
            raise CompressionRefused(_REFUSALS.get(reason, "nothing_to_compress"), said)
        case {"failed": str(said)}:
            raise StoreUnavailable(said)
    raise StoreUnavailable("another server of the team runs another version: try again once it is upgraded")

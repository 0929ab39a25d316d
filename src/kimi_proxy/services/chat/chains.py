"""Which session an answer belongs to that a client goes on from by its id."""

import asyncio
import logging
from hashlib import sha256

from kimi_proxy.core import caller, json
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.errors import ParseError, StoreUnavailable
from kimi_proxy.core.lines import encoded
from kimi_proxy.features.sessions import Session
from kimi_proxy.services.chat.handler import ChatObserver
from kimi_proxy.services.chat.relay import Exchange
from kimi_proxy.services.store.protocols import DecisionRecord, Decisions

MAX_KNOWN = 10_000
DISK_S = 0.25
KIND = "answered"

log = logging.getLogger(__name__)


class ResponseChains(ChatObserver):
    """Remembers the sessions of answers that their provider keeps, in memory at once and on disk soon after."""

    def __init__(self, decisions: Decisions, is_shared: bool = False) -> None:
        self._decisions = decisions
        # Another server may still be writing down the answer that a client goes on from at once.
        self._looks = (0.0, 0.02, 0.05, 0.1) if is_shared else (0.0,)
        self._known: LruCache[str, Session] = LruCache(MAX_KNOWN)
        self._writing: set[asyncio.Task[None]] = set()

    def on_end(self, exchange: Exchange) -> None:
        request, response_id = exchange.draft.request, exchange.reply.response_id
        if not response_id or not request.is_kept:
            return
        self._known.put(response_id, exchange.draft.session)
        task = asyncio.get_running_loop().create_task(self._write(response_id, exchange.draft.session))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def session_after(self, response_id: str) -> Session | None:
        """Return the session of an answer; None if it is not known, or cannot be read in time."""
        known = self._known.get(response_id)
        if known is not None:
            return known
        key = _key(response_id)
        try:
            async with asyncio.timeout(DISK_S):
                record = await self._look_up(key)
        except (StoreUnavailable, TimeoutError) as e:
            log.warning("the session of an answer cannot be read", extra={"what": str(e)[:300]})
            return None
        found = None if record is None else _session(record.shown or b"")
        if found is not None:
            self._known.put(response_id, found)
        return found

    async def _look_up(self, key: bytes) -> DecisionRecord | None:
        for wait_s in self._looks:
            await asyncio.sleep(wait_s)
            record = (await self._decisions.get(caller.scope(), [key])).get(key)
            if record is not None:
                return record
        return None

    async def close(self) -> None:
        await asyncio.gather(*self._writing)

    async def _write(self, response_id: str, session: Session) -> None:
        value = json.encode({"id": session.id, "name": session.name, "parent": session.parent})
        try:
            await self._decisions.add(caller.scope(), [DecisionRecord(_key(response_id), KIND, value)])
        except StoreUnavailable as e:
            log.warning("the session of an answer is not written down", extra={"what": str(e)[:300]})


def _key(response_id: str) -> bytes:
    return sha256(b"answered\0" + encoded(response_id)).digest()


def _session(value: bytes) -> Session | None:
    try:
        match json.decode(value):
            case {"id": str(id), "name": str(name), "parent": str(parent)}:
                return Session(id, name, parent)
    except ParseError:
        pass
    return None

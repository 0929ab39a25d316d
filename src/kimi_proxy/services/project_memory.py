"""Tells new conversations what is known of the project, and each of them the same for as long as it lives."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from kimi_proxy.core import tokens
from kimi_proxy.core.context import Memory as Settings
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.features.memory.project import begins, block, injected
from kimi_proxy.features.pipeline import Draft, Stage, unchanged
from kimi_proxy.services.decisions import SCOPE
from kimi_proxy.services.fingerprint import decoded, encoded
from kimi_proxy.services.hub import moment
from kimi_proxy.services.memory_file import MemoryFile, Remembered
from kimi_proxy.services.store import Ledger, Pin, Pinboard

MAX_SESSIONS = 10_000  # remembered; who talked last stays

log = logging.getLogger(__name__)


class ProjectMemory:
    def __init__(
        self,
        home: Path,
        settings: Settings,
        pinboard: Pinboard,
        ledger: Ledger,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.is_on = settings.inject
        self._file = MemoryFile(home, settings.max_bytes)
        self._pinboard = pinboard
        self._ledger = ledger
        self._now = now
        self._told: OrderedDict[str, str] = OrderedDict()  # session → its block; none if it began without
        self._unsure: set[bytes] = set()  # places of sessions that began without because the disk was sick

    async def load(self) -> JsonObject:
        return self._shown(await asyncio.to_thread(self._file.read))

    async def save(self, content: JsonValue) -> JsonObject:
        return self._shown(await asyncio.to_thread(self._file.write, content, self._now()))

    async def stage(self, draft: Draft) -> Stage:
        known = self._told.get(draft.session.id)
        if known is not None:
            self._told.move_to_end(draft.session.id)
            return _telling(known)
        # Conversations that began with memory keep it when it is switched off; without a file there is none of them.
        if not self.is_on and not self._file.path.exists():
            return unchanged
        try:
            return await self._met(draft)
        except StoreUnavailable as e:
            log.warning("project memory is not told", extra={"what": str(e)[:300]})
            if self.is_on and begins(draft.request):
                self._goes_without(draft.session.id)
            return unchanged

    async def _met(self, draft: Draft) -> Stage:
        """A conversation that this process has not seen before."""
        if self._unsure:
            await self._pinboard.pin(SCOPE, [], gone=list(self._unsure))
            self._unsure.clear()
        place = _place(draft.session.id)
        pin = (await self._pinboard.pinned(SCOPE, [place])).get(place)
        if pin is not None and pin.shown is not None:
            return _telling(self._know(draft.session.id, decoded(pin.shown)))
        if not self.is_on or not begins(draft.request) or await self._has_begun(draft.session.id):
            return _telling(self._know(draft.session.id, ""))
        told = block((await asyncio.to_thread(self._file.read)).content)
        # On disk before it is told: the next process has to tell the same.
        standing = await self._pinboard.pin(SCOPE, [Pin(place, "memory", encoded(told), session=draft.session.id)])
        told = self._know(draft.session.id, decoded(standing[place].shown or b""))
        return _telling(told, tokens.count(told))

    async def _has_begun(self, session: str) -> bool:
        known = await self._ledger.session(session)
        return known is not None and known.requests > 0

    def _goes_without(self, session: str) -> None:
        """It began without, and so it goes on. Whether the disk has it otherwise, nobody can tell now."""
        self._know(session, "")
        if len(self._unsure) < MAX_SESSIONS:
            self._unsure.add(_place(session))

    def _know(self, session: str, told: str) -> str:
        self._told[session] = told
        if len(self._told) > MAX_SESSIONS:
            self._told.popitem(last=False)
        return told

    def _shown(self, remembered: Remembered) -> JsonObject:
        text = block(remembered.content)
        return {
            "content": remembered.content,
            "updated_at": None if remembered.updated is None else moment(remembered.updated),
            "tokens": tokens.count(text) if text else 0,
            "inject": self.is_on,
            "path": str(self._file.path),
            **({"trouble": remembered.trouble} if remembered.trouble else {}),
        }


def _telling(told: str, tokens: int | None = None) -> Stage:
    return (lambda draft: injected(draft, told, tokens)) if told else unchanged


def _place(session: str) -> bytes:
    return sha256(b"project-memory\0" + encoded(session)).digest()

"""Tells new conversations what is known of the project, and each of them the same for as long as it lives."""

import asyncio
import logging
import stat
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from kimi_proxy.core import json, tokens
from kimi_proxy.core.config.sections import MemorySettings as Settings
from kimi_proxy.core.errors import FileRefused, InvalidParams, ParseError, StoreUnavailable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.memory import begins, block, injected
from kimi_proxy.features.pipeline import Draft, Stage, unchanged
from kimi_proxy.proxy import private_files
from kimi_proxy.services.chat.decisions import SCOPE
from kimi_proxy.services.events import moment
from kimi_proxy.services.originals import decoded, encoded
from kimi_proxy.services.store import DecisionRecord, Decisions, SessionStore

NAME = "project_memory.json"
MODE = 0o600
LATEST = 2**32  # seconds; what is later was not written by a clock


@dataclass(frozen=True, slots=True)
class MemoryContent:
    content: JsonValue = ""
    updated: float | None = None
    trouble: str = ""  # why there is nothing, if there should be


class MemoryFile:
    """Read anew each time: other processes write it too, and people edit it."""

    def __init__(self, home: Path, max_bytes: int) -> None:
        self.path = home.absolute() / NAME
        self._max_bytes = max_bytes

    def read(self) -> MemoryContent:
        """What cannot be read is nothing, and says why."""
        try:
            raw = private_files.read(self.path)
            if raw is None:
                return MemoryContent()
            if len(raw) > self._max_bytes:
                return MemoryContent(trouble=f"{self.path} is larger than memory.max_bytes: shorten it")
            return _remembered(json.decode(raw))
        except ParseError as e:
            return MemoryContent(trouble=f"{self.path} is not JSON ({e}): mend it, or save anew")
        except FileRefused as e:
            return MemoryContent(trouble=str(e))

    def write(self, content: JsonValue, now: float) -> MemoryContent:
        """As a whole or not at all; what somebody broke by hand is put beside it."""
        raw = json.encode({"content": content, "updated": round(now, 3)})
        if json.has_lone_surrogates(content):
            raise InvalidParams("content", "it has half of a surrogate pair, which is no character: leave it out")
        if len(raw) > self._max_bytes:
            raise InvalidParams("content", f"that is {len(raw)} bytes; memory.max_bytes allows {self._max_bytes}")
        if (before := private_files.read(self.path)) is not None:
            self._close_to_others()
            if self.read().trouble:
                private_files.replace(self.path.with_suffix(".damaged"), before, MODE)
        private_files.replace(self.path, raw, MODE)
        return MemoryContent(content, round(now, 3))

    def _close_to_others(self) -> None:
        try:
            if stat.S_IMODE(self.path.stat().st_mode) != MODE:
                self.path.chmod(MODE)
        except OSError as e:
            raise FileRefused(f"{self.path} cannot be closed to others: {e.strerror}") from e


def _remembered(value: JsonValue) -> MemoryContent:
    """As we write it, or as somebody else wrote it: then all of it is to be remembered."""
    match value:
        case {"content": content, "updated": int() | float() as updated} if 0 <= updated < LATEST:
            return MemoryContent(content, float(updated))
        case {"content": content}:
            return MemoryContent(content)
    return MemoryContent(value)


MAX_SESSIONS = 10_000  # remembered; who talked last stays

log = logging.getLogger(__name__)


class ProjectMemory:
    def __init__(
        self,
        home: Path,
        settings: Settings,
        stored_decisions: Decisions,
        session_store: SessionStore,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.is_on = settings.inject
        self._file = MemoryFile(home, settings.max_bytes)
        self._stored_decisions = stored_decisions
        self._session_store = session_store
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
            await self._stored_decisions.add(SCOPE, [], forget=list(self._unsure))
            self._unsure.clear()
        place = _place(draft.session.id)
        pin = (await self._stored_decisions.get(SCOPE, [place])).get(place)
        if pin is not None and pin.shown is not None:
            return _telling(self._know(draft.session.id, decoded(pin.shown)))
        if not self.is_on or not begins(draft.request) or await self._has_begun(draft.session.id):
            return _telling(self._know(draft.session.id, ""))
        told = block((await asyncio.to_thread(self._file.read)).content)
        # On disk before it is told: the next process has to tell the same.
        standing = await self._stored_decisions.add(
            SCOPE, [DecisionRecord(place, "memory", encoded(told), session=draft.session.id)]
        )
        told = self._know(draft.session.id, decoded(standing[place].shown or b""))
        return _telling(told, tokens.count(told))

    async def _has_begun(self, session: str) -> bool:
        known = await self._session_store.get(session)
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

    def _shown(self, remembered: MemoryContent) -> JsonObject:
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

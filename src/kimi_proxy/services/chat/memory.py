"""Project memory: a file, and a block of it in the system prompt of every conversation that begins."""

import asyncio
import logging
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NotRequired, TypedDict

from kimi_proxy.core import json, tokens
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import LOCAL_SCOPE, Caller
from kimi_proxy.core.config.sections import MemorySettings as Settings
from kimi_proxy.core.errors import FileRefused, InvalidParams, ParseError, StoreUnavailable
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.lines import decode_text, encode_text
from kimi_proxy.features.chat.memory import is_new_conversation, memory_block, with_memory
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.proxy import private_files
from kimi_proxy.services.events import iso_time
from kimi_proxy.services.store.protocols import FactStore, SessionStore

NAME = "project_memory.json"
MODE = 0o600
LATEST = 2**32  # seconds; a later time did not come from a clock
MAX_SESSIONS = 10_000  # sessions whose block is kept in memory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemoryContent:
    """The contents of the memory file, and the time it was written."""

    content: JsonValue = ""
    updated: float | None = None
    trouble: str = ""  # why there is nothing, if there should be


class MemoryFile:
    """Read every time: other processes write it too, and people edit it."""

    def __init__(self, home: Path, max_bytes: int) -> None:
        self.path = home.absolute() / NAME
        self._max_bytes = max_bytes

    def read(self) -> MemoryContent:
        """Return the contents of the file, or nothing and the reason if it cannot be read."""
        try:
            raw = private_files.read(self.path)
            if raw is None:
                return MemoryContent()
            if len(raw) > self._max_bytes:
                return MemoryContent(trouble=f"{self.path} is larger than memory.max_bytes: shorten it")
            return _read_content(json.decode(raw))
        except ParseError as e:
            return MemoryContent(trouble=f"{self.path} is not JSON ({e}): fix it, or save it again")
        except FileRefused as e:
            return MemoryContent(trouble=str(e))

    def write(self, content: JsonValue, now: float) -> MemoryContent:
        """Replace the file atomically; an unreadable one is kept under another name."""
        raw = json.encode({"content": content, "updated": round(now, 3)})
        if json.has_lone_surrogates(content):
            raise InvalidParams("content", "contains half of a surrogate pair, which is not a character: remove it")
        if len(raw) > self._max_bytes:
            raise InvalidParams("content", f"has {len(raw)} bytes; memory.max_bytes is {self._max_bytes}")
        if (before := private_files.read(self.path)) is not None:
            self._restrict_access()
            if self.read().trouble:
                private_files.replace(self.path.with_suffix(".damaged"), before, MODE)
        private_files.replace(self.path, raw, MODE)
        return MemoryContent(content, round(now, 3))

    def _restrict_access(self) -> None:
        try:
            if stat.S_IMODE(self.path.stat().st_mode) != MODE:
                self.path.chmod(MODE)
        except OSError as e:
            raise FileRefused(f"cannot restrict access to {self.path}: {e.strerror}") from e


def _read_content(value: JsonValue) -> MemoryContent:
    """Return the content as we write it; a file in another form is all content."""
    match value:
        case {"content": content, "updated": int() | float() as updated} if 0 <= updated < LATEST:
            return MemoryContent(content, float(updated))
        case {"content": content}:
            return MemoryContent(content)
    return MemoryContent(value)


class ProjectMemoryBody(TypedDict):
    content: object
    updated_at: str | None
    tokens: int
    inject: bool
    path: str
    trouble: NotRequired[str]


class ProjectMemory:
    """The stage that puts memory into new conversations, and repeats it in the same bytes in their later requests."""

    def __init__(
        self,
        home: Path,
        settings: Settings,
        facts: FactStore,
        session_store: SessionStore,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.is_on = settings.inject
        self._home, self._max_bytes = home, settings.max_bytes
        self._shared_file = MemoryFile(home, settings.max_bytes)
        self._facts = facts
        self._session_store = session_store
        self._now = now
        self._blocks: LruCache[tuple[str, str], str] = LruCache(
            MAX_SESSIONS
        )  # by scope and session; empty if it began without
        # Scopes and keys of sessions that began without it because the disk failed.
        self._unsure: set[tuple[str, bytes]] = set()

    def _file(self, who: Caller) -> MemoryFile:
        """Return a person's file: in a team everyone has their own."""
        if who.scope == LOCAL_SCOPE:
            return self._shared_file
        return MemoryFile(self._home / "team" / sha256(encode_text(who.scope)).hexdigest(), self._max_bytes)

    async def load(self, who: Caller) -> ProjectMemoryBody:
        return self._to_json(who, await asyncio.to_thread(self._file(who).read))

    async def save(self, who: Caller, content: JsonValue) -> ProjectMemoryBody:
        return self._to_json(who, await asyncio.to_thread(self._file(who).write, content, self._now()))

    async def inject(self, draft: Draft) -> Draft:
        """Return `draft` with the block that its conversation began with, or itself if that began without."""
        block = self._blocks.get((draft.caller.scope, draft.session.id))
        if block is not None:
            return with_memory(draft, block)
        # Conversations that began with memory keep it when it is switched off; without a file there is none of them.
        if not self.is_on and not self._file(draft.caller).path.exists():
            return draft
        try:
            return await self._first_seen(draft)
        except StoreUnavailable as e:
            log.warning("project memory is not injected", extra={"what": str(e)[:300]})
            if self.is_on and is_new_conversation(draft.request):
                self._go_without(draft)
            return draft

    async def _first_seen(self, draft: Draft) -> Draft:
        """Inject into a conversation that this process has not seen before."""
        who = draft.caller
        if unsure := {place for place in self._unsure if place[0] == who.scope}:
            await self._facts.delete(who, "memory", [key for _, key in unsure])
            self._unsure -= unsure
        session, memory_key = draft.session.id, _memory_key(draft.session.id)
        known = (await self._facts.get(who, "memory", [memory_key])).get(memory_key)
        if known is not None:
            return self._inject(draft, decode_text(known))
        if not self.is_on or not is_new_conversation(draft.request) or await self._has_begun(who, session):
            return self._inject(draft, "")
        text = memory_block((await asyncio.to_thread(self._file(who).read)).content)
        # On disk before it is sent: the next process has to send the same.
        blocks = await self._facts.put_if_absent(who, "memory", {memory_key: encode_text(text)}, session)
        text = decode_text(blocks[memory_key])
        return self._inject(draft, text, tokens.count(text))

    def _inject(self, draft: Draft, block: str, tokens: int | None = None) -> Draft:
        self._blocks.put((draft.caller.scope, draft.session.id), block)
        return with_memory(draft, block, tokens)

    async def _has_begun(self, who: Caller, session: str) -> bool:
        known = await self._session_store.get(who, session)
        return known is not None and known.requests > 0

    def _go_without(self, draft: Draft) -> None:
        """The session started without memory, and continues without it; a stored block is deleted later."""
        scope, session = draft.caller.scope, draft.session.id
        self._blocks.put((scope, session), "")
        if len(self._unsure) < MAX_SESSIONS:
            self._unsure.add((scope, _memory_key(session)))

    def _to_json(self, who: Caller, remembered: MemoryContent) -> ProjectMemoryBody:
        text = memory_block(remembered.content)
        body: ProjectMemoryBody = {
            "content": remembered.content,
            "updated_at": None if remembered.updated is None else iso_time(remembered.updated),
            "tokens": tokens.count(text) if text else 0,
            "inject": self.is_on,
            "path": str(self._file(who).path),
        }
        if remembered.trouble:
            body["trouble"] = remembered.trouble
        return body


def _memory_key(session: str) -> bytes:
    return sha256(b"project-memory\0" + encode_text(session)).digest()

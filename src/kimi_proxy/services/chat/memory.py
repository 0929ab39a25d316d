"""Project memory: what a person stored, and a block of it in the system prompt of every conversation that begins."""

import asyncio
import logging
import math
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NotRequired, TypedDict

from kimi_proxy.core import json, tokens
from kimi_proxy.core.caller import LOCAL, LOCAL_SCOPE, Caller, person_scope
from kimi_proxy.core.config.sections import MemorySettings as Settings
from kimi_proxy.core.errors import FileRefused, InvalidParams, ParseError, StoreUnavailable
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.lines import decode_text, encode_text
from kimi_proxy.features.chat.conversations import Conversation
from kimi_proxy.features.chat.memory import is_new_conversation, memory_block, with_memory
from kimi_proxy.features.chat.pipeline import ChangingStage, Draft
from kimi_proxy.proxy import private_files
from kimi_proxy.services.chat.notes import Notes, Wanted
from kimi_proxy.services.events import iso_time
from kimi_proxy.services.remembered import Memory, Remembered, with_session
from kimi_proxy.services.store.protocols import MemoryStore, SessionStore, StoredMemory

NAME = "project_memory.json"
USER_FOLDER = ".kimi-proxy"  # in the user's home directory: where other proxies look for the file
LATEST = 2**32  # seconds; a later time did not come from a clock
MAX_SESSIONS = 10_000  # sessions whose block is kept in memory
LOOK_S = 60.0  # how often to look who has project memory, while it is switched off

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemoryContent:
    """A person's project memory, and the time it was written."""

    content: JsonValue = ""
    updated: float | None = None
    trouble: str = ""  # why there is nothing, if there should be


def read_file(path: Path, max_bytes: int) -> MemoryContent | None:
    """Return the contents of a file, or nothing and the reason if it cannot be read; None if there is no file."""
    try:
        raw = private_files.read(path)
        if raw is None:
            return None
        if len(raw) > max_bytes:
            return MemoryContent(trouble=f"{path} is larger than memory.max_bytes: shorten it")
        return _read_content(json.decode(raw))
    except ParseError as e:
        return MemoryContent(trouble=f"{path} is not JSON ({e}): fix it, or save the project memory again")
    except FileRefused as e:
        return MemoryContent(trouble=str(e))


def _read_stored(stored: StoredMemory) -> MemoryContent:
    try:
        return MemoryContent(json.decode(stored.content), stored.updated)
    except ParseError as e:
        return MemoryContent(trouble=f"the project memory is damaged on disk ({e}): save it again")


def _read_content(value: JsonValue) -> MemoryContent:
    """Return the content of a file of an earlier version; a file in another form is all content."""
    match value:
        case {"content": content, "updated": int() | float() as updated} if 0 <= updated < LATEST:
            return MemoryContent(content, float(updated))
        case {"content": content}:
            return MemoryContent(content)
    return MemoryContent(value)


def delete_old_files(home: Path, person_id: str) -> None:
    """Delete the files in which earlier versions kept the memory of a person of a team."""
    with suppress(FileNotFoundError):
        shutil.rmtree(_team_folder(home, person_id))


def _team_folder(home: Path, person_id: str) -> Path:
    return home.absolute() / "team" / sha256(encode_text(person_scope(person_id))).hexdigest()


class Memories:
    """Everyone's project memory, in the store. A file is read once, while the store has no memory of the person."""

    def __init__(
        self,
        table: MemoryStore,
        home: Path,
        max_bytes: int,
        now: Callable[[], float] = time.time,
        user_home: Callable[[], Path] = Path.home,
    ) -> None:
        self._table = table
        self._home = home
        self._max_bytes = max_bytes
        self._now = now
        self._user_home = user_home

    async def read(self, who: Caller) -> MemoryContent:
        stored = await self._table.load(who)
        if stored is None:
            found = await asyncio.to_thread(self._read_files, who)
            if found is None or found.trouble:
                return found or MemoryContent()
            await self._table.save(who, StoredMemory(json.encode(found.content), found.updated), replaces=False)
            await asyncio.to_thread(self._delete_files, who)
            stored = await self._table.load(who)
        return _read_stored(stored) if stored else MemoryContent()

    async def write(self, who: Caller, content: JsonValue) -> MemoryContent:
        """Replace a person's memory. Raise InvalidParams if it is too long, or no provider could read it."""
        raw = json.encode(content)
        if json.has_lone_surrogates(content):
            raise InvalidParams("content", "contains half of a surrogate pair, which is not a character: remove it")
        if len(raw) > self._max_bytes:
            raise InvalidParams("content", f"has {len(raw)} bytes; memory.max_bytes is {self._max_bytes}")
        now = round(self._now(), 3)
        await self._table.save(who, StoredMemory(raw, now))
        await asyncio.to_thread(self._delete_files, who)
        return MemoryContent(content, now)

    async def people(self) -> frozenset[str]:
        """Return the ids of everyone who may have some."""
        known = await self._table.people()
        has_file = await asyncio.to_thread(lambda: any(path.exists() for path in self._files(LOCAL)))
        return known | {LOCAL.person_id} if has_file else known

    def _files(self, who: Caller) -> Sequence[Path]:
        if who.scope != LOCAL_SCOPE:
            return [_team_folder(self._home, who.person_id) / NAME]
        return [self._home.absolute() / NAME, self._user_home() / USER_FOLDER / NAME]

    def _read_files(self, who: Caller) -> MemoryContent | None:
        found = (read_file(path, self._max_bytes) for path in self._files(who))
        return next((one for one in found if one is not None), None)

    def _delete_files(self, who: Caller) -> None:
        """Delete a file that would outlive its person; that of a machine without a team stays, and counts no more."""
        if who.scope != LOCAL_SCOPE:
            delete_old_files(self._home, who.person_id)


class ProjectMemoryBody(TypedDict):
    content: object
    updated_at: str | None
    tokens: int
    inject: bool
    trouble: NotRequired[str]


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The block that a conversation began with; empty if it began without."""

    block: str
    is_new: bool = False
    tokens: int | None = None  # of a new one


class ProjectMemory(ChangingStage[MemoryPlan]):
    """The stage that puts memory into new conversations, and repeats it in the same bytes in their later requests."""

    def __init__(
        self,
        memories: Memories,
        settings: Settings,
        notes: Notes,
        session_store: SessionStore,
        monotonic: Callable[[], float] = time.monotonic,
        memory: Memory | None = None,
    ) -> None:
        self.is_on = settings.inject
        self._memories = memories
        self._facts = notes
        self._session_store = session_store
        self._monotonic = monotonic
        self._people: frozenset[str] = frozenset()  # who had some when it was last looked
        self._looks_at = -math.inf
        self._looking: asyncio.Task[None] | None = None
        # By scope and session; empty if it began without.
        self._blocks: Remembered[tuple[str, str], str] = Remembered(
            memory or Memory(), "blocks of project memory", size=MAX_SESSIONS, forget=with_session
        )
        # Scopes and keys of sessions that began without it because the disk failed.
        self._unsure: set[tuple[str, bytes]] = set()

    async def load(self, who: Caller) -> ProjectMemoryBody:
        return self._to_json(await self._memories.read(who))

    async def save(self, who: Caller, content: JsonValue) -> ProjectMemoryBody:
        saved = await self._memories.write(who, content)
        self._people |= {who.person_id}
        return self._to_json(saved)

    async def decide(self, draft: Draft) -> MemoryPlan | None:
        """Return the block that a conversation began with, or the one that it begins with now."""
        block = self._blocks.get((draft.caller.scope, draft.session.id))
        if block is not None:
            return MemoryPlan(block) if block else None
        try:
            # Conversations that began with memory keep it when it is switched off.
            return await self._first_seen(draft) if self.is_on or await self._has_some(draft.caller) else None
        except StoreUnavailable as e:
            self._give_up(draft, e)
            return None

    async def commit(self, draft: Draft, plan: MemoryPlan) -> MemoryPlan:
        """Store a new block before it is sent: the next process has to send the same."""
        who = draft.caller
        session = draft.session.id
        if plan.is_new:
            key = _memory_key(session)
            try:
                blocks = await self._facts.put_if_absent(who, "memory", {key: encode_text(plan.block)}, session)
            except StoreUnavailable as e:
                self._give_up(draft, e)
                return MemoryPlan("")
            block = decode_text(blocks[key])
            plan = MemoryPlan(block, is_new=True, tokens=tokens.count(block))
        self._blocks.put((who.scope, session), plan.block)
        return plan

    def render(self, draft: Draft, plan: MemoryPlan) -> Draft:
        return with_memory(draft, plan.block, plan.tokens)

    def wanted(self, draft: Draft) -> Wanted:
        """The note with the block that a session began with."""
        return {"memory": [_memory_key(draft.session.id)]}

    async def _has_some(self, who: Caller) -> bool:
        """Return whether a person may have conversations that began with memory."""
        if self._monotonic() >= self._looks_at:
            is_first = self._looks_at == -math.inf
            self._looks_at = self._monotonic() + LOOK_S
            if is_first:
                await self.look()
            else:  # no request waits for what other processes may have stored in the last minute
                self._looking = asyncio.create_task(self._look_again())
        return who.person_id in self._people

    async def look(self) -> None:
        """Read who has project memory."""
        self._looks_at = self._monotonic() + LOOK_S
        self._people = await self._memories.people()

    async def _look_again(self) -> None:
        with suppress(StoreUnavailable):
            await self.look()

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def inherit(self, draft: Draft, parent: Conversation) -> bool:
        """Give the session of a request the block that another began with; return whether there is one."""
        who = draft.caller
        session = draft.session.id
        theirs = _memory_key(parent.session)
        if parent.session == session or (who.scope, session) in self._blocks:
            return False
        block = (await self._facts.get(who, "memory", [theirs])).get(theirs)
        if block is None:
            return False
        await self._facts.put_if_absent(who, "memory", {_memory_key(session): block}, session)
        return True

    async def _first_seen(self, draft: Draft) -> MemoryPlan:
        """Return the plan for a conversation that this process has not seen before."""
        who = draft.caller
        if unsure := {place for place in self._unsure if place[0] == who.scope}:
            await self._facts.delete(who, "memory", [key for _, key in unsure])
            self._unsure -= unsure
        session = draft.session.id
        memory_key = _memory_key(draft.session.id)
        known = (await self._facts.get(who, "memory", [memory_key])).get(memory_key)
        if known is not None:
            return MemoryPlan(decode_text(known))
        if not self.is_on or not is_new_conversation(draft.request) or await self._has_begun(who, session):
            return MemoryPlan("")
        return MemoryPlan(memory_block((await self._memories.read(who.real)).content), is_new=True)

    async def _has_begun(self, who: Caller, session: str) -> bool:
        known = await self._session_store.get(who.real, session)
        return known is not None and known.requests > 0

    def _give_up(self, draft: Draft, error: StoreUnavailable) -> None:
        log.warning("project memory is not injected", extra={"what": str(error)[:300]})
        if self.is_on and is_new_conversation(draft.request):
            self._go_without(draft)

    def _go_without(self, draft: Draft) -> None:
        """The session started without memory, and continues without it; a stored block is deleted later."""
        scope = draft.caller.scope
        session = draft.session.id
        self._blocks.put((scope, session), "")
        if len(self._unsure) < MAX_SESSIONS:
            self._unsure.add((scope, _memory_key(session)))

    def _to_json(self, remembered: MemoryContent) -> ProjectMemoryBody:
        text = memory_block(remembered.content)
        body: ProjectMemoryBody = {
            "content": remembered.content,
            "updated_at": None if remembered.updated is None else iso_time(remembered.updated),
            "tokens": tokens.count(text) if text else 0,
            "inject": self.is_on,
        }
        if remembered.trouble:
            body["trouble"] = remembered.trouble
        return body


def _memory_key(session: str) -> bytes:
    return sha256(b"project-memory\0" + encode_text(session)).digest()

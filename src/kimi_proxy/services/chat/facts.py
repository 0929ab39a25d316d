"""Facts other than decisions that later requests of a conversation need, such as recall results and our tool."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple

from kimi_proxy.core import json
from kimi_proxy.core.cache import in_batches
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.lines import decode_text, encode_text
from kimi_proxy.features.chat.conversations import Conversation
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.sanitizer.stage import result_call_ids
from kimi_proxy.services.chat.notes import Notes, Wanted
from kimi_proxy.services.store.protocols import FactKind, FactStore

WRITE_AFTER_S = 0.25  # many conversations that begin at once share a commit, during which nothing can be read
WRITE_AGAIN_S = 1.0
UNWRITTEN_MAX = 10_000
AT_ONCE = 64  # calls of one request: thousands would keep the event loop from its other turns

log = logging.getLogger(__name__)


class LateFact(NamedTuple):
    value: bytes
    session: str  # that it belongs to; empty if it outlives its session


class LateFacts:
    """Facts of one kind, which are written together soon after they are put; the request does not wait for the disk.

    While the store cannot be written they are tried again.
    """

    def __init__(self, facts: Notes | FactStore, kind: FactKind, is_shared: bool) -> None:
        self._facts = facts
        self._kind = kind
        self._after_s = 0.0 if is_shared else WRITE_AFTER_S  # other servers look for it at once
        self._unwritten: dict[str, dict[bytes, LateFact]] = {}  # by scope
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._closing = asyncio.Event()

    def is_unwritten(self, who: Caller, key: bytes) -> bool:
        return key in self._unwritten.get(who.scope, ())

    def put(self, who: Caller, key: bytes, value: bytes, session: str = "") -> None:
        """Add a fact unless there is one."""
        waiting = self._unwritten.setdefault(who.scope, {})
        if len(waiting) < UNWRITTEN_MAX:
            waiting.setdefault(key, LateFact(value, session))
        if who.scope not in self._writing:
            self._writing[who.scope] = asyncio.get_running_loop().create_task(self._write(who, waiting))

    async def close(self) -> None:
        """Write what waits, if that takes no time now."""
        self._closing.set()
        if tasks := tuple(self._writing.values()):
            _, late = await asyncio.wait(tasks, timeout=WRITE_AGAIN_S)
            for task in late:
                task.cancel()
            await asyncio.wait(tasks)

    def unwritten(self, who: Caller, keys: Collection[bytes]) -> dict[bytes, bytes]:
        """Return those of these facts that wait to be written."""
        waiting = self._unwritten.get(who.scope, {})
        return {key: waiting[key].value for key in keys if key in waiting}

    def forget(self, who: Caller, session: str | None) -> None:
        """Drop what waits of a session that was deleted, or of all of a person's."""
        waiting = self._unwritten.get(who.scope, {})
        for key in [key for key, fact in waiting.items() if fact.session and session in (None, fact.session)]:
            del waiting[key]

    async def _write(self, who: Caller, waiting: dict[bytes, LateFact]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._after_s):
                await self._closing.wait()
        try:
            while facts := dict(waiting):
                values = {key: fact.value for key, fact in facts.items()}
                sessions = {key: fact.session for key, fact in facts.items()}
                try:
                    await self._facts.put_if_absent(who, self._kind, values, sessions)
                except StoreUnavailable as e:
                    log.warning("facts are not stored yet", extra={"kind": self._kind, "what": str(e)[:300]})
                    await asyncio.sleep(WRITE_AGAIN_S)
                    continue
                for key in facts:
                    waiting.pop(key, None)
        finally:
            del self._writing[who.scope]


class ChatFacts:
    """Recall results that wait for a request, the real ids of responses, and which tools conversations have."""

    def __init__(self, notes: Notes) -> None:
        self.is_shared = notes.is_shared
        self._facts = notes
        self._tools = LateFacts(notes, "tool", notes.is_shared)

    def wanted(self, draft: Draft) -> Wanted:
        """The notes that the stages ask for about a conversation."""
        place = draft.conversation.place.hex()
        calls = result_call_ids(draft.request)
        return {
            "tool": [_key("tool", place)],
            "thinking": [_key("thinking", place)],
            "deferred": [_key("deferred", place)],
            "owed": [_key("owed", draft.session.id, call) for call in calls],
        }

    async def save_pending_result(self, who: Caller, session: str, call: str, text: str) -> None:
        """Remember a recall result that the model reads with the result of this call, from the next request on."""
        key = _key("owed", session, call)
        self._facts.forget(who, "owed", key)
        await self._facts.put_if_absent(who, "owed", {key: encode_text(text)}, session)

    def assume_none_pending(self, who: Caller, session: str, calls: Sequence[str]) -> None:
        """Remember that no recall result waits for these calls, unless this process knows of one."""
        for call in calls:
            key = _key("owed", session, call)
            if not self._facts.last(who, "owed", key):
                self._facts.assume(who, "owed", key, b"", session)

    async def pending_results(self, who: Caller, session: str, calls: Sequence[str]) -> dict[str, str]:
        """Return the recall results that the model reads with the results of these calls."""
        keys: dict[bytes, str] = {}
        for some in in_batches(calls, AT_ONCE):
            keys |= {_key("owed", session, call): call for call in some}
            await asyncio.sleep(0)
        found = await self._facts.get(who, "owed", keys)
        return {call: decode_text(found[key]) for key, call in keys.items() if key in found}

    async def save_response_id(self, who: Caller, shown: str, real: str) -> None:
        """Remember which response is meant by an id that the client knows."""
        await self._facts.put_if_absent(who, "renamed", {_key("renamed", shown): encode_text(real)})

    async def real_response_id(self, who: Caller, shown: str) -> str | None:
        key = _key("renamed", shown)
        real = (await self._facts.get(who, "renamed", [key])).get(key)
        return None if real is None else decode_text(real)

    async def save_open_results(self, who: Caller, session: str, response_id: str, results: Mapping[str, str]) -> None:
        """Remember recall results for a response that the provider keeps, by the ids of their calls."""
        await self._facts.put_if_absent(who, "open", {_key("open", response_id): json.encode(results)}, session)

    async def open_results(self, who: Caller, response_id: str) -> Mapping[str, str]:
        """Return the results that the first request after a response has to carry."""
        key = _key("open", response_id)
        found = (await self._facts.get(who, "open", [key])).get(key)
        results = None if found is None else json.decode(found)
        return {id: str(text) for id, text in results.items()} if isinstance(results, Mapping) else {}

    def knows_tool(self, who: Caller, conversation: bytes) -> bool | None:
        """Return whether our tool is in the tools of a conversation; None if that has to be read."""
        key = _key("tool", conversation.hex())
        if self._tools.is_unwritten(who, key):
            return True
        known = self._facts.known(who, "tool", key)
        return None if known is None else bool(known)

    def assume_tool(self, who: Caller, conversation: bytes, has_tool: bool) -> None:
        """Remember that it is, or that it is not, for as long as no other server may add it."""
        key = _key("tool", conversation.hex())
        if has_tool or not self.is_shared:
            self._facts.assume(who, "tool", key, b"offered" if has_tool else b"")
        else:
            self._facts.forget(who, "tool", key)

    async def has_tool(self, who: Caller, conversation: bytes) -> bool:
        """Return whether our tool is in the tools of a conversation."""
        key = _key("tool", conversation.hex())
        return self._tools.is_unwritten(who, key) or bool(await self._facts.get(who, "tool", [key]))

    def save_has_tool(self, who: Caller, conversation: bytes) -> None:
        """Remember that our tool is in the tools of a conversation, on disk soon after."""
        self._tools.put(who, _key("tool", conversation.hex()), b"offered")

    async def save_refused_recall(self, who: Caller, session: str) -> None:
        """Remember that the agent of a session has no permission to read cut text back."""
        await self._facts.put_if_absent(who, "recall_refused", {_key("recall refused", session): b"refused"}, session)

    async def is_recall_refused(self, who: Caller, session: str) -> bool:
        return bool(await self._facts.get(who, "recall_refused", [_key("recall refused", session)]))

    async def inherit(self, draft: Draft, parent: Conversation) -> bool:
        """Give the conversation of a request what there is about `parent`; return whether there is anything."""
        who = draft.caller
        own = draft.conversation
        has_tool = await self.has_tool(who, parent.place)
        turns = await self.cleared_turns(who, parent.place)
        names = await self.deferred_tools(who, parent.place)
        if parent.place != own.place:
            if has_tool:
                self.save_has_tool(who, own.place)
            if turns:
                await self.save_cleared_turns(who, own.place, turns)
            if names:
                await self.save_deferred_tools(who, own.place, names)
        if parent.session != own.session:
            pending = await self.pending_results(who, parent.session, result_call_ids(draft.request))
            for call, text in pending.items():
                await self.save_pending_result(who, own.session, call, text)
        return has_tool or turns > 0 or bool(names)

    async def cleared_turns(self, who: Caller, conversation: bytes) -> int:
        """Return the number of turns of a conversation from which the provider drops the thinking at our request."""
        key = _key("thinking", conversation.hex())
        return int((await self._facts.get(who, "thinking", [key])).get(key) or 0)

    def last_cleared_turns(self, who: Caller, conversation: bytes) -> int:
        """Return that number as it was last seen."""
        return int(self._facts.last(who, "thinking", _key("thinking", conversation.hex())) or 0)

    async def save_cleared_turns(self, who: Caller, conversation: bytes, turns: int) -> None:
        key = _key("thinking", conversation.hex())
        await self._facts.delete(who, "thinking", [key])
        await self._facts.put_if_absent(who, "thinking", {key: str(turns).encode()})

    def knows_deferred_tools(self, who: Caller, conversation: bytes) -> frozenset[str] | None:
        """Return the names of the tools that a conversation leaves out; None if they have to be read."""
        known = self._facts.known(who, "deferred", _key("deferred", conversation.hex()))
        return None if known is None else _names(known)

    def last_deferred_tools(self, who: Caller, conversation: bytes) -> frozenset[str]:
        """Return those names as they were last seen."""
        return _names(self._facts.last(who, "deferred", _key("deferred", conversation.hex())))

    async def was_window_freed(self, who: Caller, conversation: bytes) -> bool:
        """Return whether cached results of a conversation were cut in place of a compaction by the client."""
        return bool(await self._facts.get(who, "window", [_key("window", conversation.hex())]))

    async def save_window_freed(self, who: Caller, conversation: bytes) -> None:
        await self._facts.put_if_absent(who, "window", {_key("window", conversation.hex()): b"freed"})

    async def deferred_tools(self, who: Caller, conversation: bytes) -> frozenset[str]:
        """Return the names of the tools that a conversation leaves out."""
        key = _key("deferred", conversation.hex())
        return _names((await self._facts.get(who, "deferred", [key])).get(key, b""))

    async def save_deferred_tools(self, who: Caller, conversation: bytes, names: Collection[str]) -> None:
        key = _key("deferred", conversation.hex())
        await self._facts.delete(who, "deferred", [key])
        if names:
            await self._facts.put_if_absent(who, "deferred", {key: json.encode(sorted(names))})
        else:
            self._facts.assume(who, "deferred", key, b"")

    def assume_no_deferred_tools(self, who: Caller, conversation: bytes) -> None:
        """Remember that a new conversation leaves out none."""
        self._facts.assume(who, "deferred", _key("deferred", conversation.hex()), b"")

    async def tool_days(self, who: Caller, client: str, names: Collection[str]) -> dict[str, tuple[int, int]]:
        """Return the first and the last day on which tools were called, for those that were."""
        keys = {_key("tool_use", client, name): name for name in names}
        found = await self._facts.get(who, "tool_use", list(keys))
        days = {keys[key]: value.decode().partition(" ") for key, value in found.items()}
        return {name: (int(first), int(last)) for name, (first, _, last) in days.items()}

    def last_tool_day(self, who: Caller, client: str, name: str) -> int | None:
        """Return the last day on which a tool was called, as far as this process knows."""
        days = self._facts.last(who, "tool_use", _key("tool_use", client, name))
        return int(days.split()[1]) if days else None

    async def save_tool_days(self, who: Caller, client: str, days: Mapping[str, tuple[int, int]]) -> None:
        facts = {_key("tool_use", client, name): b"%d %d" % each for name, each in days.items()}
        await self._facts.delete(who, "tool_use", list(facts))
        await self._facts.put_if_absent(who, "tool_use", facts)

    async def save_handed_over(self, who: Caller, hashes: Sequence[str]) -> None:
        """Remember that another gateway was given these names of originals, and may read them."""
        keys = [_key("handed over", hashed) for hashed in hashes]
        known = await self._facts.get(who, "handed_over", keys)
        if new := {key: b"offered" for key in keys if key not in known}:
            await self._facts.put_if_absent(who, "handed_over", new)

    async def is_handed_over(self, who: Caller, hashed: str) -> bool:
        """Return whether another gateway was given this name of an original."""
        return bool(await self._facts.get(who, "handed_over", [_key("handed over", hashed)]))

    async def close(self) -> None:
        await self._tools.close()


def _names(stored: bytes) -> frozenset[str]:
    names = json.decode(stored) if stored else None
    return frozenset(map(str, names)) if isinstance(names, list) else frozenset()


def _key(kind: str, *names: str) -> bytes:
    return sha256(b"\0".join(map(encode_text, (kind, *names)))).digest()

"""Which conversation a request goes on with, if its name has changed: by the tool results that it has in common."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from kimi_proxy.core import json
from kimi_proxy.core.aside import PARSED_BYTES, aside
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Part, Request
from kimi_proxy.core.errors import ParseError, StoreUnavailable
from kimi_proxy.features.chat.conversations import (
    Conversation,
    Owner,
    closest,
    conversation_with,
    first_words,
    former_name,
    is_answered,
    result_marks,
    tool_results,
)
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.services.chat.facts import LateFacts
from kimi_proxy.services.chat.notes import Notes, Wanted
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.remembered import Memory, Remembered
from kimi_proxy.services.store.protocols import FactKind

MAX_KNOWN = 10_000
MAX_MARKS = 64  # of the first results of a conversation, and as many of the last
MAX_OWNERS = 8  # of a result: the first one, and the newest
# A fork that is not recognized loses its cuts, so it waits for a slow disk, but not again for one that hangs.
LOOK_S, COPY_S, HUNG_S = 1.5, 3.0, 0.25

# Gives a conversation a copy of what is remembered of another; returns whether there was anything.
Inherit = Callable[[Draft, Conversation], Awaitable[bool]]

# Names the notes that a stage will ask for about the conversation of a request.
Wants = Callable[[Draft], Wanted]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    session: str
    results: int  # that were noted


class Lineage:
    """Recognizes conversations whose name has changed, and gives them a copy of what is remembered.

    A request under an unknown name goes on with another conversation if at least two of its tool results have the same
    call id and text: a session was forked or resumed under another id, or a client without ids has changed its system
    prompt. The other conversation stays as it is.
    """

    def __init__(
        self,
        facts: Notes,
        heirs: Sequence[Inherit],
        metrics: Metrics,
        wants: Sequence[Wants] = (),
        memory: Memory | None = None,
    ) -> None:
        self._facts = facts
        self._wants = wants
        self._heirs = heirs
        self._metrics = metrics
        # Other servers may wait a moment: a fork is known by its older results as well.
        self._late = LateFacts(facts, "conversation", is_shared=False)
        self._known: Remembered[tuple[str, bytes], _Known] = Remembered(  # by scope and name
            memory or Memory(), "conversations", size=MAX_KNOWN, forget=lambda place, known: known.session
        )
        self._patience_s = LOOK_S

    async def recognize(self, draft: Draft) -> Draft:
        """Return the draft with its conversation, which has a copy of what it continues by then."""
        request = draft.request
        words = first_words(request)
        found = conversation_with(draft.session.id, words, is_kept=request.is_kept)
        draft = replace(draft, known_as=found)
        if request.is_continued:  # only the newest results are here, and the session is certain
            return draft
        results, read = tool_results(request)
        known = self._known.get((draft.caller.scope, found.name))
        if known is not None:
            draft = replace(draft, is_followed=read <= known.results)
            self._note(draft, words, await _marks(request, results[min(known.results, read) :]), len(results))
            return draft
        marks = await _marks(request, results)
        if is_answered(request):
            try:
                draft = replace(draft, known_as=await self._find(draft, words, _ends(marks)))
            except (StoreUnavailable, TimeoutError) as e:
                log.warning("a conversation was not looked up", extra={"what": str(e)[:300]})
                self._metrics.chat_faults.labels("lineage", "store_unavailable").inc()
                return draft
        self._late.put(draft.caller, _known_key(found), b"seen", found.session)
        self._note(draft, words, marks, len(results))
        return draft

    def forget(self, who: Caller, session: str | None) -> None:
        """Write nothing more of a session that was deleted, or of all of a person's."""
        self._late.forget(who, session)

    async def close(self) -> None:
        await self._late.close()

    def _note(self, draft: Draft, words: bytes, marks: Sequence[bytes], results: int) -> None:
        """Remember the conversation of a request, and that these results are its own."""
        who = draft.caller
        session = draft.session.id
        self._known.put((who.scope, draft.conversation.name), _Known(session, results))
        owner = _encode([(session, words)])
        for mark in _ends(marks):
            self._late.put(who, mark, owner, session)

    async def _find(self, draft: Draft, words: bytes, marks: Sequence[bytes]) -> Conversation:
        """Return the conversation of a request, whose name this process does not know."""
        who = draft.caller
        own = draft.conversation
        known_key = _known_key(own)
        keys = [known_key, *marks]
        stored = await self._read(draft, keys)
        unwritten = self._late.unwritten(who, keys)
        owners = {mark: _owners(stored.get(mark), unwritten.get(mark)) for mark in marks}
        has_own = any((own.session, words) in found for found in owners.values())
        if has_own or known_key in stored or known_key in unwritten:
            return own
        async with asyncio.timeout(COPY_S):
            parent = closest(marks, owners, own.session)
            if parent is None:
                # Older versions gave it another name.
                is_known = await self._inherit(draft, former_name(own.session, draft.request))
                return own if is_known else replace(own, is_unknown=True)
            session, began = parent
            copied = conversation_with(session, began, is_kept=draft.request.is_kept)
            await self._inherit(draft, copied)
            await self._add_owner(who, (own.session, words), owners)
        return replace(own, parent=copied)

    async def _read(self, draft: Draft, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the notes for `keys`; the same read brings whatever the stages need of the conversation."""
        wanted: dict[FactKind, Collection[bytes]] = {"conversation": keys}
        for wants in self._wants:
            wanted |= wants(draft)
        try:
            async with asyncio.timeout(self._patience_s):
                stored = (await self._facts.read(draft.caller, wanted))["conversation"]
        except TimeoutError:
            self._patience_s = HUNG_S
            raise
        self._patience_s = LOOK_S
        return stored

    async def _inherit(self, draft: Draft, parent: Conversation) -> bool:
        """Give the conversation of a request a copy of all that is remembered of `parent`."""
        found = [await inherit(draft, parent) for inherit in self._heirs]
        return any(found)

    async def _add_owner(self, who: Caller, own: Owner, owners: Mapping[bytes, Sequence[Owner]]) -> None:
        """Note whose the shared results are from now on, so that a fork of a fork is recognized."""
        shared = {mark: (*found[:1], *found[1:][-MAX_OWNERS + 2 :], own) for mark, found in owners.items() if found}
        await self._facts.delete(who, "conversation", list(shared))
        values = {mark: _encode(found) for mark, found in shared.items()}
        sessions = {mark: found[0][0] for mark, found in shared.items()}
        await self._facts.put_if_absent(who, "conversation", values, sessions)


async def _marks(request: Request, results: Sequence[Part]) -> list[bytes]:
    """Return the marks of results; in a thread where reading them takes its time."""
    return await aside(len(request.body) <= PARSED_BYTES, result_marks, results)


def _ends(marks: Sequence[bytes]) -> list[bytes]:
    """Return the first and the last: a fork has the same beginning, a compaction may keep the end."""
    return list(dict.fromkeys((*marks[:MAX_MARKS], *marks[-MAX_MARKS:])))


def _known_key(conversation: Conversation) -> bytes:
    return sha256(b"known\0" + conversation.name).digest()


def _encode(owners: Sequence[Owner]) -> bytes:
    return json.encode([[session, words.hex()] for session, words in owners])


def _owners(*values: bytes | None) -> list[Owner]:
    return list(dict.fromkeys(owner for value in values for owner in _decode(value)))


def _decode(value: bytes | None) -> list[Owner]:
    try:
        found = json.decode(value) if value else None
    except ParseError:
        return []
    owners: list[Owner] = []
    for each in found if isinstance(found, list) else ():
        match each:
            case [str(session), str(words)]:
                owners.append((session, bytes.fromhex(words)))
    return owners

"""Decisions about tool results: written to disk before anything is cut, and repeated in every later request."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from kimi_proxy.core.cache import in_batches
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import AnyReason, OtherReason, PruneIdNotFound, Reason, StoreUnavailable
from kimi_proxy.core.lines import decode_text, encode_text
from kimi_proxy.core.markers import quoted_ids
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.sanitizer.decide import ShortenedOutput
from kimi_proxy.features.sanitizer.plan import LongOutput
from kimi_proxy.features.sanitizer.shorten import Hidden
from kimi_proxy.features.sanitizer.stage import Decision
from kimi_proxy.services.originals import Keeper
from kimi_proxy.services.remembered import Memory, Remembered, stays, with_any
from kimi_proxy.services.store.notes import session_of
from kimi_proxy.services.store.protocols import (
    NEWEST,
    DecisionRecord,
    Decisions,
    DecisionTotals,
    ListedOriginal,
    Originals,
)

PREVIEW_CHARS = 200
UNWRITTEN_MAX = 10_000
WRITE_AGAIN_S = 1.0
# Local reasons for sending a result uncut: a decision of another server overrides them.
YIELDING = frozenset[AnyReason]({"switched_off", "not_worth_resending", "recall_refused"})
AT_ONCE = 64  # results of one request: thousands would block the event loop
# Enough for fifty live conversations of two hundred results, a third of them cut; older ones are read from disk.
REMEMBER_MAX, REMEMBER_BYTES = 20_000, 8 * 1024**2
MAX_OBSERVED, OBSERVED_BYTES = 50_000, 32 * 1024**2
MAX_SHORT, SHORT_S = 10_000, 86_400  # entries of a few hundred bytes

log = logging.getLogger(__name__)


ScopedKey = tuple[str, bytes]  # a scope, and the key of a decision in it


class ChatDecisions:
    """The forms in which tool results were first sent, in memory and on disk."""

    def __init__(
        self,
        originals: Originals,
        decisions: Decisions,
        remember_s: float = 0,  # decisions read within this time are not read again
        now: Callable[[], float] = time.monotonic,
        is_shared: bool = False,  # other servers decide too: decisions in memory are compared with theirs
        remember_max: int = REMEMBER_MAX,  # results
        memory: Memory | None = None,
    ) -> None:
        self.is_shared = is_shared
        self._originals = originals
        self._keeper = Keeper(originals)
        self._stored = decisions
        # Repeated from memory while the store cannot be read: the provider's prompt cache depends on it.
        # As on disk: decoded, a marker would make every character take two bytes; decoding takes no time.
        memory = memory or Memory()
        self._last: Remembered[ScopedKey, DecisionRecord] = Remembered(
            memory,
            "cuts",
            size=remember_max,
            max_bytes=REMEMBER_BYTES,
            forget=lambda key, record: record.session,
        )
        self._checked: Remembered[ScopedKey, float] = Remembered(  # when made
            memory, "cuts as read", size=remember_max, life_s=remember_s, now=now, forget=with_any
        )
        # Results that were too short to be cut when they entered: no store lookup in every request.
        self._short: Remembered[ScopedKey, bool] = Remembered(
            memory, "results without a cut", size=MAX_SHORT, life_s=SHORT_S, now=now, forget=stays
        )
        # What observed requests would have been sent with: nothing on disk stands behind it.
        self._observed: Remembered[ScopedKey, DecisionRecord] = Remembered(
            memory,
            "cuts of observed conversations",
            size=MAX_OBSERVED,
            max_bytes=OBSERVED_BYTES,
            forget=lambda key, record: record.session,
        )
        self.replacements = 0  # times that decisions on old results were written
        # Decisions by scope that are not on disk yet; they precede stored ones. Most results are sent uncut.
        self._unwritten_of: dict[str, dict[bytes, DecisionRecord]] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}

    def _unwritten(self, who: Caller) -> dict[bytes, DecisionRecord]:
        return self._unwritten_of.setdefault(who.scope, {})

    async def read_known(
        self, who: Caller, outputs: Sequence[LongOutput], is_followed: bool = False
    ) -> dict[bytes, Decision]:
        """Return the forms in which these outputs were sent before. Raise StoreUnavailable if they cannot be read.

        Of a conversation that this process has followed, nothing is on disk about results that no model has read; were
        there a decision of another process after all, it would win when ours is committed.
        """
        if self._is_shared_with(who):
            places = ((who.scope, output.key) for output in outputs)
            held = [place for place in places if place in self._checked or place in self._short]
            await self._forget_replaced(who, [key for _, key in held])
        # Not looked up: the disk may say otherwise until it is written, which may be while we read.
        unwritten = self._as_unwritten(who, outputs)
        checked = [output for output in outputs if (who.scope, output.key) in self._checked]
        found = self.from_memory(who, checked) | unwritten
        unread = [output for output in outputs if output.key not in found and not self.is_short(who, output)]
        if is_followed and not self._is_shared_with(who):
            unread = [output for output in unread if not output.is_unread]
        since = self.replacements
        looked_up = await self._look_up(who, unread) if unread else {}
        # Of what the model has read, there will be no decision unless this process makes one.
        self.note_short(who, (one for one in unread if one.key not in looked_up and not one.is_unread), since)
        found |= looked_up
        return self._as_unwritten(who, outputs, yielding=True) | found | self._as_unwritten(who, outputs)

    async def _forget_replaced(self, who: Caller, keys: Sequence[bytes]) -> None:
        """Forget decisions that another server has replaced or deleted."""
        made = await self._stored.times(who, keys) if keys else {}
        for key in keys:
            if made.get(key) != self._checked.get((who.scope, key)):
                self._checked.forget((who.scope, key))
                self._short.forget((who.scope, key))

    def is_short(self, who: Caller, output: LongOutput) -> bool:
        """Return whether a result is known to have no decision, since it was too short to be cut when it entered."""
        return (who.scope, output.key) in self._short

    def note_short(self, who: Caller, outputs: Iterable[LongOutput], since: int) -> None:
        """Remember that these have no decision, as was read when there had been `since` replacements."""
        # Otherwise a decision stored in the meantime would be hidden, and its cut text sent uncut again.
        if since == self.replacements:
            for output in outputs:
                self._short.put((who.scope, output.key), True)

    def from_memory(self, who: Caller, outputs: Sequence[LongOutput]) -> dict[bytes, Decision]:
        """Return the forms in which these outputs were last sent, as far as they are in memory."""
        records = (self._last.get((who.scope, output.key)) for output in outputs)
        found = {record.key: _decision(record) for record in records if record is not None}
        return self._as_unwritten(who, outputs, yielding=True) | found | self._as_unwritten(who, outputs)

    def _as_unwritten(
        self, who: Caller, outputs: Sequence[LongOutput], yielding: bool = False
    ) -> dict[bytes, Decision]:
        unwritten = self._unwritten(who)
        records = (unwritten[output.key] for output in outputs if output.key in unwritten)
        return {record.key: _decision(record) for record in records if self._yields(record) is yielding}

    def _yields(self, record: DecisionRecord) -> bool:
        """Return whether the decision on disk takes precedence over `record`, which is only in memory."""
        return self.is_shared and record.why in YIELDING

    def _is_shared_with(self, who: Caller) -> bool:
        """Return whether other servers may decide about the same results."""
        return self.is_shared and not who.is_observed

    async def _read(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        if not who.is_observed:
            return await self._stored.get(who, keys)
        found = ((key, self._observed.get((who.scope, key))) for key in keys)
        return {key: record for key, record in found if record is not None}

    async def _write(
        self,
        who: Caller,
        new: Sequence[DecisionRecord],
        forget: Sequence[bytes] = (),
        replaces: Mapping[bytes, float] = MappingProxyType({}),
    ) -> Mapping[bytes, DecisionRecord]:
        """Add decisions, and return those that won; observed ones are only remembered."""
        if not who.is_observed:
            how = {"replaces": replaces} if replaces else {}
            return await self._stored.add(who, new, forget=forget, **how)
        for key in (*forget, *replaces):
            self._observed.forget((who.scope, key))
        for record in new:
            if (who.scope, record.key) not in self._observed:
                self._observed.put((who.scope, record.key), record, 300 + len(record.shown or b""))
        return await self._read(who, [record.key for record in new])

    def _remember(self, who: Caller, record: DecisionRecord) -> Decision:
        self._last.put((who.scope, record.key), replace(record, preview=""), len(record.shown or b""))
        self._checked.put((who.scope, record.key), record.created)
        return _decision(record)

    async def _look_up(self, who: Caller, outputs: Sequence[LongOutput]) -> dict[bytes, Decision]:
        records = dict(await self._read(who, [output.key for output in outputs]))
        ids = [id for record in records.values() for id in record.original_ids]
        # Originals of observed cuts were not stored; had they been, they would be live.
        live = await self._originals.live(who, ids) if ids and not who.is_observed else frozenset(ids)
        for output in outputs:
            record = records.get(output.key)
            if record and not live.issuperset(record.original_ids) and not await self._store_again(who, output, record):
                records[output.key] = self._record_uncut(who, output, "expired")
        return {key: self._remember(who, record) for key, record in records.items()}

    async def commit(self, who: Caller, shortened: Sequence[ShortenedOutput], session: str) -> dict[bytes, Decision]:
        """Store decisions and originals, and return the decisions in force. Raise StoreUnavailable if that fails."""
        kept: list[bool] = []
        for some in in_batches(shortened, AT_ONCE):
            kept += await asyncio.gather(*(self._keep(who, one, session) for one in some))
        records: list[DecisionRecord] = []
        for pairs in in_batches(list(zip(shortened, kept, strict=True)), AT_ONCE):
            records += [_record(made, is_kept, session) for made, is_kept in pairs]
            await asyncio.sleep(0)
        replaced = [made.output.key for made in shortened if made.replaces]
        try:
            on_disk = await self._add(who, records, replaced)
        finally:
            self.replacements += bool(replaced)
            for record in records:
                self._short.forget((who.scope, record.key))
        own = {record.key: self._remember(who, on_disk[record.key]) for record in records if record.key in on_disk}
        return {key: replace(decision, is_new=True) for key, decision in own.items()}

    async def copy(self, who: Caller, keys: Mapping[bytes, bytes], session: str) -> bool:
        """Give a session the decisions of another under keys of its own; return whether there were any.

        They are on disk when it returns. Raise StoreUnavailable if that fails.
        """
        unwritten = self._unwritten(who)
        stored = await self._read(who, list(keys))
        found = {**stored, **{key: unwritten[key] for key in keys if key in unwritten}}
        if found:
            await self._write(who, [replace(one, key=keys[key], session=session) for key, one in found.items()])
        return bool(found)

    async def _add(
        self, who: Caller, records: Sequence[DecisionRecord], replaced: Sequence[bytes]
    ) -> Mapping[bytes, DecisionRecord]:
        """Store new decisions and those not on disk yet; return the resulting decisions for all of them.

        Decisions in `replaced` replace earlier ones.
        """
        before = await self._read(who, replaced) if replaced else {}
        unwritten = self._unwritten(who)
        late = tuple(record for key, record in unwritten.items() if key not in replaced)
        forget = [record.key for record in late if not self._yields(record)]
        # If two servers replace the same decision, the first one wins.
        read = {key: made for key in replaced if (made := self._checked.get((who.scope, key))) is not None}
        is_shared = self._is_shared_with(who)
        forget += [] if is_shared else replaced
        try:
            on_disk = await self._write(who, [*late, *records], forget, read if is_shared else MappingProxyType({}))
        except BaseException:
            # The write may still succeed later, but the form that is sent now counts.
            for record in records:
                self._add_unwritten(who, before.get(record.key) or DecisionRecord(record.key, "store_unavailable"))
            self._write_soon(who)
            raise
        for record in late:
            unwritten.pop(record.key, None)
        for key in replaced:
            unwritten.pop(key, None)
        return on_disk

    async def totals(self, who: Caller) -> DecisionTotals:
        return await self._stored.totals(who)

    async def newest(self, who: Caller, limit: int) -> Sequence[ListedOriginal]:
        """Return the newest cuts, in chats and elsewhere."""
        return await self._originals.page(who, NEWEST, limit)

    async def mark_cut(self, who: Caller, outputs: Sequence[LongOutput], session: Session) -> list[LongOutput]:
        """Return the outputs, those with a marker of this conversation as already cut.

        A marker with an id that we never gave out, or gave to another conversation, is text like any other.
        """
        named = {output.key: ids for output in outputs if (ids := quoted_ids(output.text))}
        real = await self._originals.live(who, frozenset().union(*named.values())) if named else frozenset[str]()
        ours = {id for id in real if await self._belongs_to(who, session, id)}
        return [
            output
            if output.whole_because or ours.isdisjoint(named.get(output.key, ()))
            else replace(output, whole_because="already_cut")
            for output in outputs
        ]

    async def _belongs_to(self, who: Caller, session: Session, id: str) -> bool:
        try:
            about = (await self._originals.get(who, id)).about
        except PruneIdNotFound:
            return False
        return session_of(about) in ("", session.id, session.parent)

    def mark_uncut(self, who: Caller, outputs: Iterable[LongOutput], why: Reason) -> dict[bytes, Decision]:
        """Remember that these were sent uncut, and must be again."""
        return {output.key: _decision(self._record_uncut(who, output, why)) for output in outputs}

    def _record_uncut(self, who: Caller, output: LongOutput, why: Reason) -> DecisionRecord:
        return self._add_unwritten(who, DecisionRecord(output.key, why))

    def _add_unwritten(self, who: Caller, record: DecisionRecord) -> DecisionRecord:
        unwritten = self._unwritten(who)
        if len(unwritten) >= UNWRITTEN_MAX:
            unwritten.pop(next(iter(unwritten)))
        return unwritten.setdefault(record.key, record)

    def _write_soon(self, who: Caller) -> None:
        """Correct the decisions on disk as soon as possible: until then a crash would bring the old ones back."""
        task = self._writing.get(who.scope)
        if task is None or task.done():
            self._writing[who.scope] = asyncio.create_task(self._write_unwritten(who))

    async def _write_unwritten(self, who: Caller) -> None:
        unwritten = self._unwritten(who)
        while late := tuple(unwritten.values()):
            try:
                forget = [record.key for record in late if not self._yields(record)]
                on_disk = await self._write(who, late, forget)
            except StoreUnavailable:
                await asyncio.sleep(WRITE_AGAIN_S)
                continue
            for record in late:
                if unwritten.get(record.key) is record:
                    self._remember(who, on_disk.get(record.key, record))
                    del unwritten[record.key]

    async def close(self) -> None:
        """Write what could not be written, if that takes no time now."""
        if tasks := tuple(self._writing.values()):
            await asyncio.wait(tasks, timeout=WRITE_AGAIN_S)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _store_again(self, who: Caller, output: LongOutput, record: DecisionRecord) -> bool:
        """Keep an original that has expired again under its id: it comes with every request."""
        # Before there were heads and tails, an original had them in it: which of both it was cannot be said any more.
        if len(record.original_ids) > 1 or output.head or output.tail:
            return False
        try:
            hidden = Hidden(record.original_ids[0], output.text)
            await self._keeper.keep_hidden(who, hidden, output.key, "", record.session)
        except StoreUnavailable:
            return False
        return True

    async def _keep(self, who: Caller, made: ShortenedOutput, session: str) -> bool:
        """Store all originals of the cuts; return whether they are on disk. Those of observed cuts are not needed."""
        if who.is_observed:
            return True
        try:
            for hidden in made.shortened.hidden:
                await self._keeper.keep_hidden(who, hidden, made.output.key, made.goal, session)
        except StoreUnavailable as e:
            log.warning("nothing cut: the store is unavailable", extra={"what": str(e)[:300]})
            return False
        return True


def _record(made: ShortenedOutput, is_kept: bool, session: str) -> DecisionRecord:
    done = made.shortened
    if not is_kept:
        return DecisionRecord(made.output.key, "store_unavailable", session=session)
    is_cut = bool(done.hidden)
    return DecisionRecord(
        key=made.output.key,
        why=done.why,
        shown=encode_text(f"{made.output.head}{done.shown}{made.output.tail}") if is_cut else None,
        original_ids=tuple(hidden.id for hidden in done.hidden),
        preview=made.output.text[:PREVIEW_CHARS] if is_cut else "",
        session=session,
        tokens_before=done.tokens_before,
        tokens_after=done.tokens_after,
    )


def _decision(record: DecisionRecord) -> Decision:
    shown = None if record.shown is None else decode_text(record.shown)
    return Decision(OtherReason(record.why), shown, record.tokens_before, record.tokens_after)

"""Compression of sessions: on demand or automatic, repeated in every later request, and reversible."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from kimi_proxy.core import json
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Request
from kimi_proxy.core.config.sections import CompressionSettings
from kimi_proxy.core.errors import CompressionRefusal, CompressionRefused, NothingSeen, Reason, StoreUnavailable
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.lines import encode_text
from kimi_proxy.core.markers import Entropy, new_id
from kimi_proxy.features.chat.compression import (
    Preset,
    Proposal,
    WindowFullness,
    apply_compression,
    can_compress,
    propose,
    with_summary,
)
from kimi_proxy.features.chat.context import is_certainly_below
from kimi_proxy.features.chat.conversations import Conversation
from kimi_proxy.features.chat.pipeline import ActiveCompression, ChangingStage, Draft, Note
from kimi_proxy.features.metering import window_percent
from kimi_proxy.features.models import Models
from kimi_proxy.features.sanitizer.stage import EVENT as SANITIZED
from kimi_proxy.features.sanitizer.stage import result_call_ids, with_pending_results
from kimi_proxy.services import serialize
from kimi_proxy.services.chat.context import TokenCounter
from kimi_proxy.services.chat.models import count_ratio
from kimi_proxy.services.chat.summaries import Summaries, Summary, SummaryTask
from kimi_proxy.services.events import Publish, no_op
from kimi_proxy.services.originals import Keeper, SummarizedHistory, key_of
from kimi_proxy.services.remembered import Memory, Remembered, stays, with_session
from kimi_proxy.services.serialize import (
    CompressedBody,
    CompressionEventFields,
    CompressionStatsBody,
    CompressionTotalsBody,
    PastCompressionBody,
    SessionCompressionStatsBody,
    UndoneBody,
    UndoneFields,
)
from kimi_proxy.services.sessions import Sessions
from kimi_proxy.services.store.protocols import CompressionRecord, Decisions, Originals, SessionStore

DAY_S = 86_400
MAX_SESSIONS = 10_000
MAX_IN_A_ROW = 20  # of automatic compressions that are remembered, as many as the store returns
MAX_LAST, MAX_LAST_BYTES = 1_000, 12 * 1024**2
ROW_S = 3600.0  # automatic compressions that follow each other within an hour are in a row

EVENT = "compression_event"
NOTHING_TO_COMPRESS: CompressionRefusal = "nothing_to_compress"

OnDemand = Literal["compress", "simulate"]
_ON_DEMAND: tuple[OnDemand, ...] = ("compress", "simulate")

# Returns what another server did with a session of this id that it relayed.
AskElsewhere: TypeAlias = Callable[[Caller, str, str], Awaitable[JsonObject]]

# Returns the recall results that a session's model reads with the results of these calls.
PendingResults: TypeAlias = Callable[[Caller, str, Sequence[str]], Awaitable[Mapping[str, str]]]


async def no_pending_results(who: Caller, session: str, calls: Iterable[str]) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class CompressionState:
    """The compressions of a session, as stored on disk."""

    active: CompressionRecord | None
    is_paused: bool  # the last one was undone, so there are no more automatic ones
    automatic: tuple[float, ...]  # when there were automatic ones, the newest first


def _state(rows: Sequence[CompressionRecord]) -> CompressionState:
    live = [one for one in rows if one.undone is None]
    is_paused = bool(rows) and rows[0].undone is not None
    return CompressionState(live[0] if live else None, is_paused, tuple(one.at for one in live if one.is_automatic))


NEVER_COMPRESSED = _state(())

ScopedSession = tuple[str, str]  # a scope, and the id of a session in it


@dataclass(frozen=True, slots=True)
class RepeatPlan:
    """The compression that a session's requests are sent with."""

    active: CompressionRecord | None
    results: Mapping[str, str]  # recall results that the model reads with the results of its calls
    costs: tuple[Note, ...]  # of summaries that no request has been charged for


@dataclass(frozen=True, slots=True)
class DueCompression:
    """A compression to be made, or why there is none; once it is committed, what is sent and what is said of it."""

    why_not: Reason | None = None
    preset: Preset | None = None
    sent: Draft | None = None
    notes: tuple[Note, ...] = ()
    reasons: tuple[Reason, ...] = ()

    def render(self, draft: Draft) -> Draft:
        sent = self.sent or draft
        return replace(sent, notes=(*sent.notes, *self.notes), reasons=(*sent.reasons, *self.reasons))


class Compressor(ChangingStage[RepeatPlan]):
    """As a stage it repeats the active compression of a session; `compress` and `undo` change which one that is."""

    def __init__(
        self,
        models: Models,
        counter: TokenCounter,
        originals: Originals,
        decisions: Decisions,
        summaries: Summaries,
        offers_tool: bool,
        publish: Publish = no_op,
        now: Callable[[], float] = time.time,
        pending_results: PendingResults = no_pending_results,
        is_shared: bool = False,  # other servers compress sessions too
        draw: Entropy = secrets.token_bytes,
        memory: Memory | None = None,
    ) -> None:
        self._is_shared = is_shared
        self._models = models
        self._counter = counter
        self._keeper = Keeper(originals)
        self._decisions = decisions
        self._summaries = summaries
        self._offers_tool = offers_tool
        self._publish = publish
        self._now = now
        self._draw = draw
        self._pending_results = pending_results
        # In memory, because a disk read costs as much as a whole request.
        memory = memory or Memory()
        self._states: Remembered[ScopedSession, CompressionState] = Remembered(
            memory, "compressions", size=MAX_SESSIONS, life_s=DAY_S, now=now, forget=with_session
        )
        # Nearly no session was ever compressed, and the first request of a new one does not look at the disk for it.
        # By scopes; it stays, because a session joins it before its compression is on disk.
        self._compressed: Remembered[tuple[str, ...], set[str]] = Remembered(
            memory, "sessions that were ever compressed", size=MAX_SESSIONS, life_s=DAY_S, now=now, forget=stays
        )
        # The last request of a session, uncompressed; in memory only, because people wrote it.
        self._last: Remembered[ScopedSession, Draft] = Remembered(
            memory,
            "last requests, uncompressed",
            size=MAX_LAST,
            max_bytes=MAX_LAST_BYTES,
            life_s=DAY_S,
            now=now,
            forget=with_session,
        )
        # Costs of summaries that no request has been charged for yet.
        self._pending_costs: Remembered[ScopedSession, tuple[Note, ...]] = Remembered(
            memory,
            "costs of summaries",
            size=MAX_SESSIONS,
            max_bytes=MAX_SESSIONS,
            life_s=DAY_S,
            now=now,
            forget=with_session,
        )
        self._observed: Remembered[ScopedSession, CompressionState] = Remembered(
            memory, "compressions of observed sessions", size=MAX_SESSIONS, forget=with_session
        )
        self._locks: WeakValueDictionary[ScopedSession, asyncio.Lock] = WeakValueDictionary()

    async def decide(self, draft: Draft) -> RepeatPlan:
        """Return the active compression of the session, and what the model waits to read with it."""
        # Without an answer there is no exchange that a summary could have replaced.
        is_answered = any(message.role == "assistant" for message in draft.request.messages)
        active = (await self.state(draft.caller, draft.session.id)).active if is_answered else None
        costs = self._pending_costs.get((draft.caller.scope, draft.session.id)) or ()
        return RepeatPlan(active, await self._results_of(draft) if active else {}, costs)

    async def commit(self, draft: Draft, plan: RepeatPlan) -> RepeatPlan:
        """Charge this request for summaries, and remember it, so that people can compress it."""
        place = draft.caller.scope, draft.session.id
        if not draft.caller.is_observed:  # people compress what really left
            last = _drop_parsed(draft)
            self._last.put(place, last, last.size)
        self._pending_costs.forget(place)
        return plan

    def render(self, draft: Draft, plan: RepeatPlan) -> Draft:
        """Return `draft` with the active compression applied, in the same bytes as in the request before."""
        charged = replace(draft, notes=(*draft.notes, *plan.costs)) if plan.costs else draft
        return self._with_summary(charged, plan.active, plan.results)

    async def state(self, who: Caller, session: str) -> CompressionState:
        """Return the stored state; raise StoreUnavailable if it cannot be read and is not in memory."""
        known = self._states.get((who.scope, session))
        if who.is_observed:
            return self._observed.get((who.scope, session)) or NEVER_COMPRESSED
        if known is not None and not self._is_shared:
            return known
        try:
            if not self._is_shared and session not in await self._compressed_sessions(who):
                return NEVER_COMPRESSED
            found = _state(await self._decisions.compressions(who, session))
        except StoreUnavailable:
            if known is None:
                raise
            return known
        self._states.put((who.scope, session), found)
        return found

    async def look(self, who: Caller) -> None:
        """Read which sessions were ever compressed."""
        await self._compressed_sessions(who)

    async def _compressed_sessions(self, who: Caller) -> set[str]:
        known = self._compressed.get(who.scopes)
        if known is None:
            known = set(await self._decisions.compressed_sessions(who))
            self._compressed.put(who.scopes, known)
        return known

    async def inherit(self, draft: Draft, parent: Conversation) -> bool:
        """Give the session of a request the active compression of another; return whether there is one."""
        who = draft.caller
        session = draft.session.id
        if parent.session == session:
            return False
        active = (await self.state(who, parent.session)).active
        if active is None:
            return False
        if who.is_observed:
            self._observed.put((who.scope, session), CompressionState(active, False, ()))
            return True
        async with self._lock(who, session):
            copied = replace(active, id=new_id("cmp", self._draw), session=session)
            (await self._compressed_sessions(who)).add(session)
            try:
                await self._decisions.add_compression(who, copied)  # unless it has one
            finally:
                self._states.forget((who.scope, session))
        return True

    def last(self, who: Caller, session: str) -> Draft:
        """Return the last request of a session, uncompressed; raise NothingSeen if there was none."""
        draft = self._last.get((who.scope, session))
        if draft is None:
            raise NothingSeen(session)
        return draft

    def has_seen(self, who: Caller, session: str) -> bool:
        """Return whether a request of this session passed here, and is still in memory."""
        return self._last.get((who.scope, session)) is not None

    def window(self, draft: Draft) -> int | None:
        return self._models.window(draft.target)

    async def tokens(self, request: Request) -> int:
        return (await self._counter.composition(request)).total

    async def now_sent(self, draft: Draft) -> Draft:
        """Return `draft` as it would be sent now: with the active compression, if there is one."""
        return await self._compress(draft, (await self.state(draft.caller, draft.session.id)).active)

    async def simulate(self, draft: Draft, preset: Preset) -> CompressedBody:
        """Return a preview of the compression; no provider is called, and nothing changes."""
        proposal, now_tokens = await self._propose(draft, preset)
        summary = await self._summaries.outline(await self._task(draft, proposal))
        _, made = await self._make_record(draft, proposal, summary, now_tokens, preset, is_automatic=False)
        # A preview stores nothing, so it has no id to restore from.
        return {**_made_to_json(made, proposal), "original_id": None, "simulated": True}

    async def compress(self, draft: Draft, preset: Preset, is_automatic: bool = False) -> CompressedBody:
        """Compress a session permanently; raise CompressionRefused if that would save too little."""
        who = draft.caller
        session = draft.session.id
        async with self._lock(who, session):
            active = (await self.state(who, session)).active
            proposal, now_tokens = await self._propose(draft, preset)
            task = await self._task(draft, proposal)
            summarize = (
                self._summaries.from_provider(draft, task) if preset.asks_provider else self._summaries.outline(task)
            )
            summary = await summarize
            try:
                raw, made = await self._make_record(draft, proposal, summary, now_tokens, preset, is_automatic)
                await self._commit(who, made, raw, active)
            except (CompressionRefused, StoreUnavailable, asyncio.CancelledError):
                self._charge(who, session, summary)
                raise
        done: CompressedBody = {**_made_to_json(made, proposal), **summary.cost_to_json()}
        if not is_automatic:
            self._charge(who, session, summary)
            self._publish(who, EVENT, event_of(done))
        return done

    async def _commit(self, who: Caller, made: CompressionRecord, raw: bytes, active: CompressionRecord | None) -> None:
        """Store a compression with the text that it replaces; an observed one is only remembered."""
        place = who.scope, made.session
        if who.is_observed:
            earlier = (self._observed.get(place) or NEVER_COMPRESSED).automatic
            automatic = (made.at, *earlier)[:MAX_IN_A_ROW] if made.is_automatic else earlier
            self._observed.put(place, CompressionState(made, False, automatic))
            return
        try:
            await self._keeper.keep(who, made.original, key_of("history", raw), raw, SummarizedHistory(made.session))
            (await self._compressed_sessions(who)).add(made.session)
            if not await self._decisions.add_compression(who, made, active.id if active else None):
                raise CompressionRefused("compressed_meanwhile", "another server has just compressed this session")
        finally:
            # A write that we no longer wait for may succeed all the same.
            self._states.forget(place)

    async def summary(self, who: Caller, session: str, id: object) -> str:
        """Return the summary of a stored compression; "" if it is not stored."""
        self._states.forget((who.scope, session))
        return next((one.summary for one in await self._decisions.compressions(who, session) if one.id == id), "")

    async def undo(self, who: Caller, session: str) -> UndoneBody:
        """Undo the newest compression: the next request is sent as if it had never been made."""
        async with self._lock(who, session):
            live = [one for one in await self._decisions.compressions(who, session) if one.undone is None]
            if not live:
                raise CompressionRefused("nothing_to_undo", "this session is not compressed")
            try:
                await self._decisions.undo_compression(who, live[0].id, round(self._now(), 3))
            finally:
                self._states.forget((who.scope, session))
        active = live[1].id if len(live) > 1 else None
        done: UndoneBody = {"session_id": session, "undone": live[0].id, "active": active}
        event: UndoneFields = {**done, "event": "undone"}
        self._publish(who, EVENT, event)
        return done

    async def stats(self, who: Caller, session: str | None = None) -> CompressionTotalsBody:
        totals = await self._decisions.compression_totals(who, session)
        return {
            "compressions": totals.compressions,
            "undone": totals.undone,
            **serialize.saving(totals.original_tokens, totals.compressed_tokens),
        }

    async def history(self, who: Caller, session: str) -> list[PastCompressionBody]:
        """Return every compression of a session, the newest first."""
        return [serialize.past_compression(one) for one in await self._decisions.compressions(who, session)]

    def _lock(self, who: Caller, session: str) -> asyncio.Lock:
        place = who.scope, session
        lock = self._locks.get(place)
        if lock is None:
            lock = self._locks[place] = asyncio.Lock()
        return lock

    def _charge(self, who: Caller, session: str, summary: Summary) -> None:
        """Let the next request of the session carry the cost; outlines cost nothing."""
        if summary.usage is not None:
            note = Note("compression_paid", summary.cost_to_json())
            place = who.scope, session
            costs = (*(self._pending_costs.get(place) or ()), note)
            self._pending_costs.put(place, costs, len(costs))

    async def _compress(self, draft: Draft, active: CompressionRecord | None) -> Draft:
        """Return the draft with the summary of the active compression in place of its old messages."""
        return self._with_summary(draft, active, await self._results_of(draft) if active else {})

    def _with_summary(self, draft: Draft, active: CompressionRecord | None, results: Mapping[str, str]) -> Draft:
        if active is None:
            return draft
        compression = ActiveCompression(active.id, active.cut, active.kept, active.fingerprint, active.message)
        if not results:
            return apply_compression(draft, compression, self._offers_tool)
        # Added before anything is cut: which of several calls with one id is meant, only the whole history shows.
        done = apply_compression(
            replace(draft, request=with_pending_results(draft.request, results)), compression, self._offers_tool
        )
        is_done = done.compression is compression
        return replace(done, uncompressed=draft) if is_done else replace(done, request=draft.request)

    async def _results_of(self, draft: Draft) -> Mapping[str, str]:
        """Return pending recall results; where a tool result was cut, the sanitizer has added them already."""
        if not self._offers_tool or any(note.event == SANITIZED for note in draft.notes):
            return {}
        try:
            return await self._pending_results(draft.caller, draft.session.id, result_call_ids(draft.request))
        except StoreUnavailable:
            return {}

    async def _propose(self, draft: Draft, preset: Preset) -> tuple[Proposal, int]:
        """Return the messages that could be summarized, and the tokens that are sent now."""
        if not can_compress(draft.request):
            raise CompressionRefused(
                "kept_by_provider", "the provider stores the history of this conversation: start a new one"
            )
        active = (await self.state(draft.caller, draft.session.id)).active
        sent = await self.now_sent(draft)
        after = active.cut if active and sent.request is not draft.request else 0
        now_tokens = await self.tokens(sent.request)
        window = self.window(draft)
        weighed = await self._counter.composition(draft.request)
        found = await asyncio.to_thread(propose, draft, weighed, now_tokens, preset, window, after)
        if found is None:
            raise CompressionRefused(
                NOTHING_TO_COMPRESS,
                f"the history before the last {preset.keep_exchanges} exchanges is too short to compress",
            )
        return found, now_tokens

    async def _task(self, draft: Draft, proposal: Proposal) -> SummaryTask:
        active = (await self.state(draft.caller, draft.session.id)).active if proposal.after else None
        before = active.summary if active else ""
        return SummaryTask(proposal.messages_to_summarize, before, proposal.plan.summary_tokens, self.window(draft))

    async def _make_record(
        self, draft: Draft, proposal: Proposal, summary: Summary, now_tokens: int, preset: Preset, is_automatic: bool
    ) -> tuple[bytes, CompressionRecord]:
        """Return the compression, with the text that it replaces; raise CompressionRefused if it saves nothing."""
        id = new_id("msk", self._draw)
        plan = proposal.plan
        message = await asyncio.to_thread(proposal.message, summary.text, id)
        request = await asyncio.to_thread(with_summary, draft.request, plan.cut, plan.kept, message)
        tokens = await self.tokens(request)
        if tokens >= now_tokens:
            raise CompressionRefused(NOTHING_TO_COMPRESS, "the summary would be as long as the messages it replaces")
        raw = encode_text(await asyncio.to_thread(lambda: proposal.original))
        return raw, CompressionRecord(
            id=new_id("cmp", self._draw),
            session=draft.session.id,
            at=round(self._now(), 3),
            original_tokens=now_tokens,
            compressed_tokens=tokens,
            cut=plan.cut,
            kept=plan.kept,
            fingerprint=proposal.fingerprint,
            message=message,
            summary=summary.text,
            original=id,
            summary_by=summary.by,
            kind=preset.kind,
            is_automatic=is_automatic,
        )


def _drop_parsed(draft: Draft) -> Draft:
    """Return it with the bytes only: the parsed form takes several times their memory."""
    received = draft.received or draft.request
    bare = Request(draft.request.wire, draft.request.body)
    return replace(
        draft, request=bare, received=bare if received is draft.request else Request(received.wire, received.body)
    )


class AutoCompression(ChangingStage[DueCompression]):
    """The stage after the one that repeats a compression: it makes one if the context window is nearly full."""

    def __init__(
        self,
        settings: CompressionSettings,
        preset: Preset,
        compressor: Compressor,
        session_store: SessionStore,
        now: Callable[[], float] = time.time,
        memory: Memory | None = None,
    ) -> None:
        self.is_on = settings.automatic
        self._settings = settings
        self._preset = preset
        self._compressor = compressor
        self._session_store = session_store
        self._now = now
        # Sessions for which it did not help, and when.
        self._tried: Remembered[ScopedSession, float] = Remembered(
            memory or Memory(), "automatic compressions in vain", size=MAX_SESSIONS, forget=with_session
        )

    async def decide(self, draft: Draft) -> DueCompression | None:
        if not self.is_on or not await self._is_full(draft):
            return None
        reason = self._why_not(await self._compressor.state(draft.caller, draft.session.id), draft)
        # No provider is asked for what is only observed.
        asks_provider = self._preset.asks_provider and not draft.caller.is_observed
        return DueCompression(why_not=reason or None, preset=replace(self._preset, asks_provider=asks_provider))

    async def commit(self, draft: Draft, plan: DueCompression) -> DueCompression:
        """Compress the session, unless it was or may not be; the active compression is sent in any case."""
        if plan.why_not is not None or plan.preset is None:
            # Another request, or another server, may have compressed it since this one was read.
            sent = draft if draft.uncompressed else await self._compressor.now_sent(draft)
            return replace(plan, sent=sent, reasons=(plan.why_not,) if plan.why_not else ())
        whole = draft.uncompressed or draft
        try:
            done = await self._compressor.compress(whole, plan.preset, is_automatic=True)
            plan = replace(plan, notes=(Note(EVENT, event_of(done)),))
        except (CompressionRefused, StoreUnavailable) as e:
            plan = replace(plan, reasons=(e.reason if isinstance(e, CompressionRefused) else "store_unavailable",))
            self._tried.put((whole.caller.scope, whole.session.id), self._now())
        # Another request may have compressed the session in the meantime: the active compression is sent.
        return replace(plan, sent=await self._compressor.now_sent(whole))

    def render(self, draft: Draft, plan: DueCompression) -> Draft:
        return plan.render(draft)

    async def _is_full(self, draft: Draft) -> bool:
        limit = (self._compressor.window(draft) or 0) * self._preset.threshold_percentage / 100
        if not limit or is_certainly_below(draft.request, limit):
            return False
        ratio = await count_ratio(self._session_store, draft)
        return await self._compressor.tokens(draft.request) * ratio >= limit

    def _why_not(self, state: CompressionState, draft: Draft) -> Reason | Literal[""]:
        """Return why there is no automatic compression now; empty if there may be one."""
        now = self._now()
        if state.is_paused:
            return "compression_taken_back"
        # A time in the future was written before the clock was corrected: it counts as long ago.
        last = (*state.automatic[:1], self._tried.get((draft.caller.scope, draft.session.id)) or 0.0)
        if any(0 <= now - at < self._settings.cooldown_s for at in last):
            return "compression_cooldown"
        in_a_row = sum(1 for at in state.automatic if 0 <= now - at < ROW_S)
        return "compression_limit" if in_a_row >= self._settings.max_in_a_row else ""


def works_of(
    compressor: Compressor, presets: Iterable[Preset | None]
) -> Mapping[str, Callable[[Caller, str], Awaitable[Mapping[str, object]]]]:
    """Return this server's actions for other servers, by name; summaries are not part of the results."""
    kinds = [preset for preset in presets if preset is not None]
    return {
        f"{what} {preset.kind}": partial(_for_another, compressor, what, preset)
        for what in _ON_DEMAND
        for preset in kinds
    }


async def _for_another(
    compressor: Compressor, what: OnDemand, preset: Preset, who: Caller, session: str
) -> Mapping[str, object]:
    done = await _here(compressor, what, who, session, preset)
    return {name: value for name, value in done.items() if name != "summary"}


async def _here(compressor: Compressor, what: OnDemand, who: Caller, session: str, preset: Preset) -> CompressedBody:
    draft = compressor.last(who, session)
    if what == "simulate":
        return await compressor.simulate(draft, preset)
    return await compressor.compress(draft, preset)


class SessionCompressions:
    """Compression on demand, by the id or the name of a session.

    Where several servers share a store, only the one that relayed a session has its messages: `elsewhere` asks it.
    """

    def __init__(
        self,
        compressor: Compressor,
        sessions: Sessions,
        session_store: SessionStore,
        usual: Preset,
        light: Preset | None,
        elsewhere: AskElsewhere | None = None,
    ) -> None:
        self.usual = usual
        self.light = light
        self._elsewhere = elsewhere
        self._compressor = compressor
        self._sessions = sessions
        self._session_store = session_store

    async def fullness(self, who: Caller, id_or_name: str, preset: Preset) -> WindowFullness:
        session = await self._id(who, id_or_name)
        newest = await self._session_store.newest_metric(who, session)
        if newest is not None:
            return WindowFullness(newest.percent, preset.threshold_percentage)
        draft = await self._compressor.now_sent(self._compressor.last(who, session))
        share = window_percent(await self._compressor.tokens(draft.request), self._compressor.window(draft))
        return WindowFullness(share, preset.threshold_percentage)

    async def compress(self, who: Caller, id_or_name: str, preset: Preset) -> CompressedBody:
        return await self._here_or_elsewhere("compress", who, await self._id(who, id_or_name), preset)

    async def simulate(self, who: Caller, id_or_name: str, preset: Preset) -> CompressedBody:
        return await self._here_or_elsewhere("simulate", who, await self._id(who, id_or_name), preset)

    async def _here_or_elsewhere(self, what: OnDemand, who: Caller, session: str, preset: Preset) -> CompressedBody:
        if self._elsewhere is None or self._compressor.has_seen(who, session):
            return await _here(self._compressor, what, who, session, preset)
        done = await self._elsewhere(who, f"{what} {preset.kind}", session)
        summary = await self._compressor.summary(who, session, done.get("compression_id"))
        made = json.as_type({**done, "summary": summary}, CompressedBody)
        if made is None:
            raise StoreUnavailable("another server of the team runs another version: try again once it is upgraded")
        return made

    async def undo(self, who: Caller, id_or_name: str) -> UndoneBody:
        return await self._compressor.undo(who, await self._id(who, id_or_name))

    async def stats(self, who: Caller, preset: Preset) -> CompressionStatsBody:
        return {"threshold": preset.threshold_percentage, **await self._compressor.stats(who)}

    async def session_stats(self, who: Caller, preset: Preset, id_or_name: str) -> SessionCompressionStatsBody:
        session = (await self._sessions.session(who, id_or_name)).id
        history = await self._compressor.history(who, session)
        return {
            "threshold": preset.threshold_percentage,
            "session_id": session,
            **await self._compressor.stats(who, session),
            "active": next((one["compression_id"] for one in history if not one["undone"]), None),
            "history": history,
        }

    async def _id(self, who: Caller, id_or_name: str) -> str:
        return (await self._sessions.own_session(who, id_or_name)).id


def event_of(done: CompressedBody) -> CompressionEventFields:
    return msgspec.convert(done, CompressionEventFields)


def _made_to_json(made: CompressionRecord, proposal: Proposal) -> CompressedBody:
    removed = len(proposal.plan.removed)
    kept = len(proposal.history.request.messages) - removed
    return {**serialize.compression(made), "summary": made.summary, "messages_removed": removed, "messages_kept": kept}

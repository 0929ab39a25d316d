"""Compression at work: what was decided for a session is done to its requests, and can be taken back."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakValueDictionary

from kimi_proxy.core import json, tokens
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.chat import Message, Request
from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.core.config.providers import Model
from kimi_proxy.core.errors import (
    CompressionRefusal,
    CompressionRefused,
    KimiProxyError,
    NothingSeen,
    StoreUnavailable,
    UpstreamUnreadable,
)
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.markers import new_id
from kimi_proxy.features import compression
from kimi_proxy.features.compression import (
    Limits,
    Preset,
    Proposal,
    can_compress,
    compressed,
    outline,
    proposed,
    transcript,
    with_summary,
)
from kimi_proxy.features.models import Target
from kimi_proxy.features.pipeline import ActiveCompression, Draft, Note, Stage
from kimi_proxy.features.sanitizer.stage import EVENT as SANITIZED
from kimi_proxy.features.sanitizer.stage import call_names, with_owed
from kimi_proxy.proxy.headers import Question
from kimi_proxy.services.chat.counting import TokenCounter
from kimi_proxy.services.chat.handler import RateLimiter
from kimi_proxy.services.events import Publish, no_op
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.originals import encoded
from kimi_proxy.services.store import CompressionRecord, CompressionTotals, Decisions, Original, Originals

if TYPE_CHECKING:
    from kimi_proxy.proxy.upstream import Upstreams


DAY_S = 86_400
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class CompressionState:
    active: CompressionRecord | None
    is_paused: bool  # somebody took the last one back: nothing happens by itself any more
    automatic: tuple[float, ...]  # when it happened by itself, the newest first


class CompressionStates:
    """On disk; a session that was looked up is remembered, because a look costs as much as a whole request."""

    def __init__(self, decisions: Decisions, now: Callable[[], float]) -> None:
        self._decisions = decisions
        self._known: LruCache[str, CompressionState] = LruCache(
            ttl_s=DAY_S, max_entries=REMEMBERED, max_bytes=REMEMBERED, now=now
        )

    async def of(self, session: str) -> CompressionState:
        """StoreUnavailable if nobody can tell."""
        known = self._known.get(session)
        if known is None:
            known = _standing(await self._decisions.compressions(session))
            self._known.put(session, known, 1)
        return known

    def forget(self, session: str | None = None) -> None:
        """One of them, or all: the next look is at the disk."""
        if session is None:
            self._known.clear()
        else:
            self._known.forget(session)


def _standing(rows: Sequence[CompressionRecord]) -> CompressionState:
    live = [one for one in rows if one.undone is None]
    is_paused = bool(rows) and rows[0].undone is not None
    return CompressionState(live[0] if live else None, is_paused, tuple(one.at for one in live if one.is_automatic))


MAX_ANSWER_BYTES = 1024**2
MAX_TRANSCRIPT_TOKENS = 60_000
TRANSCRIPT_SHARE = 0.5  # of the window

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Summary:
    text: str
    by: str  # provider or heuristic
    usage: Usage | None = None  # what the provider charges for it


@dataclass(frozen=True, slots=True)
class Story:
    """What is to be summarised: messages, and the summary of what came before them."""

    messages: Sequence[Message]
    before: str
    max_tokens: int
    window: int | None


class Summaries:
    def __init__(self, upstreams: "Upstreams | None", turns: RateLimiter, metrics: Metrics, timeout_s: float) -> None:
        self._upstreams = upstreams
        self._turns = turns
        self._metrics = metrics
        self._timeout_s = timeout_s

    async def asked(self, draft: Draft, story: Story) -> Summary:
        """The provider's summary; whatever keeps it from giving a good one, there is another."""
        try:
            async with asyncio.timeout(self._timeout_s):
                summary = await self._answered(draft, story)
            if 0 < await asyncio.to_thread(tokens.count, summary.text) <= story.max_tokens:
                return summary
            self._fell_back("too_long" if summary.text else "no_words")
            # What is of no use was paid for all the same.
            return replace(await self.outlined(story), usage=summary.usage)
        except TimeoutError:
            self._fell_back("timeout")
        except KimiProxyError as e:
            self._fell_back(e.code)
        return await self.outlined(story)

    async def outlined(self, story: Story) -> Summary:
        text = await asyncio.to_thread(outline, story.messages, story.before, story.max_tokens, tokens.count)
        return Summary(text, "heuristic")

    async def _answered(self, draft: Draft, story: Story) -> Summary:
        if self._upstreams is None:
            raise UpstreamUnreadable("no provider is switched on")
        room = min(MAX_TRANSCRIPT_TOKENS, int(TRANSCRIPT_SHARE * (story.window or MAX_TRANSCRIPT_TOKENS)))
        told = await asyncio.to_thread(transcript, story.messages, room, tokens.count)
        wire, target = draft.request.wire, draft.target
        body = compression.body(wire, target.model, story.before, told, story.max_tokens)
        self._turns.take(target.provider)
        async with self._upstreams.send(target.provider, Question(wire, body, draft.headers)) as reply:
            if reply.status != 200 or reply.encoding:
                raise UpstreamUnreadable(f"{target.provider} answered HTTP {reply.status} when asked for a summary")
            answer = bytearray()
            async for piece in reply.pieces():
                answer += piece
                if len(answer) > MAX_ANSWER_BYTES:
                    raise UpstreamUnreadable(f"{target.provider} answered at great length when asked for a summary")
        usage = wire.format.facts_of(bytes(answer)).usage
        return Summary(compression.summary_in(wire, bytes(answer)), "provider", usage)

    def _fell_back(self, code: str) -> None:
        self._metrics.chat_faults.labels("summary", code).inc()
        log.warning("no summary from the provider", extra={"what": code})


def row(made: CompressionRecord) -> JsonObject:
    return {
        "compression_id": made.id,
        "session_id": made.session,
        "at": made.at,
        "kind": made.kind,
        "automatic": made.is_automatic,
        **_saving(made.original_tokens, made.compressed_tokens),
        "summary_by": made.summary_by,
        "original_id": made.original,
        "undone": made.undone is not None,
    }


def past(made: CompressionRecord) -> JsonObject:
    """One of the history, with what stands in the place of the messages that it removed."""
    removed = made.cut - len(made.kept)
    return {**row(made), "undone_at": made.undone, "messages_removed": removed, "summary": made.summary}


def compression_to_json(made: CompressionRecord, proposal: Proposal) -> JsonObject:
    removed = len(proposal.plan.removed)
    kept = len(proposal.history.request.messages) - removed
    return {**row(made), "summary": made.summary, "messages_removed": removed, "messages_kept": kept}


def event(told: JsonObject) -> JsonObject:
    """Whoever watches hears that it happened, not what people said."""
    return {name: value for name, value in told.items() if name not in ("summary", "at")}  # events have their own time


def price(summary: Summary) -> JsonObject:
    usage = summary.usage
    return {
        "summary_input_tokens": usage.input_tokens if usage else 0,
        "summary_output_tokens": usage.output_tokens if usage else 0,
    }


def sums_to_json(sums: CompressionTotals) -> JsonObject:
    counted: JsonObject = {"compressions": sums.compressions, "undone": sums.undone}
    return counted | _saving(sums.original_tokens, sums.compressed_tokens)


def _saving(before: int, after: int) -> JsonObject:
    return {
        "original_tokens": before,
        "compressed_tokens": after,
        "tokens_saved": before - after,
        "compression_ratio": round((before - after) / before, 4) if before else 0.0,
    }


class PendingSummaryCosts:
    def __init__(self, now: Callable[[], float]) -> None:
        self._owed: LruCache[str, tuple[Note, ...]] = LruCache(
            ttl_s=DAY_S, max_entries=REMEMBERED, max_bytes=REMEMBERED, now=now
        )

    def owe(self, session: str, summary: Summary) -> None:
        """Outlines cost nothing."""
        if summary.usage is not None:
            owed = (*(self._owed.get(session) or ()), Note("compression_paid", price(summary)))
            self._owed.put(session, owed, len(owed))

    def taken(self, session: str) -> tuple[Note, ...]:
        """All that a session owes, once."""
        owed = self._owed.get(session) or ()
        self._owed.forget(session)
        return owed


SCOPE = "local"
COMPRESSOR_REMEMBERED, MAX_BYTES = 1_000, 64 * 1024**2

NOTHING_TO_COMPRESS: CompressionRefusal = "nothing_to_compress"

# What a session's model is told beside the results of these calls.
Owed: TypeAlias = Callable[[str, Iterable[str]], Awaitable[Mapping[str, str]]]


async def nothing_owed(session: str, calls: Iterable[str]) -> Mapping[str, str]:
    """Where no model asks for anything."""
    return {}


class Compressor:
    """As a step it repeats what stands; `compress` makes more of it."""

    def __init__(
        self,
        models: Mapping[str, Model],
        counting: TokenCounter,
        originals: Originals,
        decisions: Decisions,
        summaries: Summaries,
        offers_tool: bool,
        publish: Publish = no_op,
        now: Callable[[], float] = time.time,
        owed: Owed = nothing_owed,
    ) -> None:
        self._models = models
        self._counting = counting
        self._originals = originals
        self._decisions = decisions
        self._summaries = summaries
        self._offers_tool = offers_tool
        self._publish = publish
        self._now = now
        self._owed = owed
        self._standings = CompressionStates(decisions, now)
        # What was sent last, before anything of it gave way; in memory only, because people said it.
        self._last: LruCache[str, Draft] = LruCache(
            ttl_s=DAY_S, max_entries=COMPRESSOR_REMEMBERED, max_bytes=MAX_BYTES, now=now
        )
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._unpaid = PendingSummaryCosts(now)

    async def stage(self, draft: Draft) -> Stage:
        """The stage for this request: the same cut in the same words as before."""
        self._last.put(draft.session.id, _unread(draft), len(draft.request.body))
        active = (await self._standings.of(draft.session.id)).active
        owed = await self._owed_to(draft) if active else {}
        unpaid = self._unpaid.taken(draft.session.id)

        def repeated(draft: Draft) -> Draft:
            paying = replace(draft, notes=(*draft.notes, *unpaid)) if unpaid else draft
            return paying if active is None else self._done(paying, active, owed)

        return repeated

    async def standing(self, session: str) -> CompressionState:
        return await self._standings.of(session)

    def last(self, session: str) -> Draft:
        """What was sent last, before anything of it gave way."""
        draft = self._last.get(session)
        if draft is None:
            raise NothingSeen(session)
        return draft

    def window(self, draft: Draft) -> int | None:
        return self.window_of(draft.target)

    def window_of(self, target: Target) -> int | None:
        model = self._models.get(target.key or "")
        return model.max_context_size if model else None

    async def tokens(self, request: Request) -> int:
        return (await self._counting.composition(request)).total

    async def now_sent(self, draft: Draft) -> Draft:
        """The draft with what stands done to it."""
        active = (await self._standings.of(draft.session.id)).active
        return draft if active is None else self._done(draft, active, await self._owed_to(draft))

    async def simulate(self, session: str, preset: Preset) -> JsonObject:
        """What would become of the session; nothing is asked, and nothing changes."""
        draft = self.last(session)
        proposal, now_tokens = await self._proposed(draft, preset)
        summary = await self._summaries.outlined(await self._story(draft, proposal))
        _, made = await self._made(draft, proposal, summary, now_tokens, preset, is_automatic=False)
        return {**compression_to_json(made, proposal), "simulated": True}

    async def compress(
        self, draft: Draft, preset: Preset, is_automatic: bool = False
    ) -> tuple[CompressionRecord, JsonObject]:
        """Cut a session's history for good; CompressionRefused if that would win too little."""
        async with self._turn(draft.session.id):
            proposal, now_tokens = await self._proposed(draft, preset)
            story = await self._story(draft, proposal)
            summary = await (
                self._summaries.asked(draft, story) if preset.asks_provider else self._summaries.outlined(story)
            )
            try:
                original, made = await self._made(draft, proposal, summary, now_tokens, preset, is_automatic)
                await self._originals.keep(original)
                await self._decisions.add_compression(made)
            except (CompressionRefused, StoreUnavailable, asyncio.CancelledError):
                self._unpaid.owe(draft.session.id, summary)
                raise
            finally:
                # A disk that nobody waits for any more may do what it was told all the same.
                self._standings.forget(draft.session.id)
        told = {**compression_to_json(made, proposal), **price(summary)}
        if not is_automatic:
            self._unpaid.owe(draft.session.id, summary)
            self._publish("compression_event", event(told))
        return made, told

    async def undo(self, session: str) -> JsonObject:
        """Take the newest back: the next request leaves as if it had never been."""
        async with self._turn(session):
            rows = await self._decisions.compressions(session)
            standing = [one for one in rows if one.undone is None]
            if not standing:
                raise CompressionRefused("nothing_to_undo", "this session is not compressed")
            try:
                await self._decisions.undo_compression(standing[0].id, round(self._now(), 3))
            finally:
                self._standings.forget(session)
        told: JsonObject = {
            "session_id": session,
            "undone": standing[0].id,
            "active": standing[1].id if len(standing) > 1 else None,
        }
        self._publish("compression_event", {**told, "event": "undone"})
        return told

    async def stats(self, session: str | None = None) -> JsonObject:
        sums = sums_to_json(await self._decisions.compression_totals(session))
        if session is None:
            return sums
        rows = await self._decisions.compressions(session)
        active = next((one.id for one in rows if one.undone is None), None)
        history: list[JsonValue] = [past(one) for one in rows]
        return {"session_id": session, **sums, "active": active, "history": history}

    def forget(self, session: str | None = None) -> None:
        """Somebody deleted a session, or all."""
        self._standings.forget(session)
        if session is None:
            self._last.clear()
        else:
            self._last.forget(session)

    def _turn(self, session: str) -> asyncio.Lock:
        lock = self._turns.get(session)
        if lock is None:
            lock = self._turns[session] = asyncio.Lock()
        return lock

    def _done(self, draft: Draft, made: CompressionRecord, owed: Mapping[str, str]) -> Draft:
        decided = ActiveCompression(made.id, made.cut, made.kept, made.fingerprint, made.message)
        if not owed:
            return compressed(draft, decided, self._offers_tool)
        # Told before anything gives way: which of several calls with one id is meant, only the whole history knows.
        telling = replace(draft, request=with_owed(draft.request, owed))
        done = compressed(telling, decided, self._offers_tool)
        return replace(done, uncut=draft) if done.cut is decided else replace(done, request=draft.request)

    async def _owed_to(self, draft: Draft) -> Mapping[str, str]:
        """What the model asked for beside the client's calls; where an output was cut as well, it is told already."""
        if not self._offers_tool or any(note.event == SANITIZED for note in draft.notes):
            return {}
        try:
            return await self._owed(draft.session.id, call_names(draft.request))
        except StoreUnavailable:
            return {}

    async def _proposed(self, draft: Draft, preset: Preset) -> tuple[Proposal, int]:
        """What could give way, and the tokens that are sent today."""
        if not can_compress(draft.request):
            raise CompressionRefused(
                "kept_by_provider", "the provider keeps the history of this conversation: begin a new one there"
            )
        standing = (await self._standings.of(draft.session.id)).active
        sent = await self.now_sent(draft)
        applies = standing if sent.request is not draft.request else None
        now_tokens, window = await self.tokens(sent.request), self.window(draft)
        is_full = window is None or now_tokens >= window * preset.threshold_percentage / 100
        limits = Limits(preset.keep_exchanges, preset.summary_tokens, window, is_full)
        weighed = await self._counting.composition(draft.request)
        came, after = draft.came or draft.request, applies.cut if applies else 0
        found = await asyncio.to_thread(proposed, came, draft.request, weighed, now_tokens, limits, after)
        if found is None:
            raise CompressionRefused(
                NOTHING_TO_COMPRESS, f"what came before the last {preset.keep_exchanges} exchanges is too short"
            )
        return found, now_tokens

    async def _story(self, draft: Draft, proposal: Proposal) -> Story:
        active = (await self._standings.of(draft.session.id)).active if proposal.after else None
        before = active.summary if active else ""
        return Story(proposal.untold, before, proposal.plan.summary_tokens, self.window(draft))

    async def _made(
        self, draft: Draft, proposal: Proposal, summary: Summary, now_tokens: int, preset: Preset, is_automatic: bool
    ) -> tuple[Original, CompressionRecord]:
        """The compression as it would stand, with the original that it needs; never one that makes it longer."""
        id, plan = new_id("msk"), proposal.plan
        message = await asyncio.to_thread(proposal.message, summary.text, id)
        request = await asyncio.to_thread(with_summary, draft.request, plan.cut, plan.kept, message)
        tokens = await self.tokens(request)
        if tokens >= now_tokens:
            raise CompressionRefused(NOTHING_TO_COMPRESS, "the summary would be as long as what it replaces")
        raw = encoded(await asyncio.to_thread(lambda: proposal.original))
        about = json.encode({"what": "history", "session": draft.session.id})
        made = CompressionRecord(
            *(new_id("cmp"), draft.session.id, round(self._now(), 3), now_tokens, tokens),
            *(plan.cut, plan.kept, proposal.fingerprint, message, summary.text),
            *(id, summary.by, preset.kind, is_automatic),
        )
        return Original(id, SCOPE, sha256(b"history\0" + raw).digest(), raw, about), made


def _unread(draft: Draft) -> Draft:
    """Only the bytes: what was read in them takes several times their room."""
    came = draft.came or draft.request
    bare = Request(draft.request.wire, draft.request.body)
    return replace(draft, request=bare, came=bare if came is draft.request else Request(came.wire, came.body))

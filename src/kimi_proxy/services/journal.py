"""Records every chat request without delaying it."""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TypedDict

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.core.config.providers import Model
from kimi_proxy.core.errors import AnyReason, Reason, StoreUnavailable, location
from kimi_proxy.core.markers import new_id
from kimi_proxy.features.accounting import (
    Bill,
    PrefixTracker,
    Prices,
    PromptCacheBelief,
    Sent,
    Weights,
    account,
    account_observed,
    account_unanswered,
    prices_of,
    rewrite_usd,
    sent_tokens,
    weights,
)
from kimi_proxy.features.chat.context import EVENT as REINJECTED
from kimi_proxy.features.chat.context import Composition, Context, context_of, has_same_messages
from kimi_proxy.features.chat.pipeline import Draft, Note
from kimi_proxy.features.chat.prompt_cache import CacheMoment, ExplainedMiss, explain_miss
from kimi_proxy.features.chat.sessions import Session, directory_of, title_of
from kimi_proxy.features.metering import (
    MAX_SESSIONS,
    PAID,
    Ending,
    Metric,
    WindowLevels,
    charged_usd,
    estimate_usage,
    with_ending,
)
from kimi_proxy.features.models import Models, Target
from kimi_proxy.features.token_scale import CountedRequest, TokenScales
from kimi_proxy.services import serialize
from kimi_proxy.services.chat.context import TokenCounter
from kimi_proxy.services.chat.observers import MAX_MODEL_CHARS, ChatObserver
from kimi_proxy.services.chat.relay import Exchange
from kimi_proxy.services.events import LazyFields, Publish, no_op
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store.protocols import SessionRecord, SessionStore
from kimi_proxy.services.store.usage import OpenRequest, OpenRequests, UsageKey, UsageSum, usage_key

CREATED, DELETED = "session_created", "session_deleted"

MAX_UNWRITTEN = 10_000
BATCH = 500  # written in one transaction
FLUSH_S = 1.0
LEASE_S = 60.0  # an open request that was not held for so long belongs to a process that died

MAX_QUEUED = 2_000  # events that wait to be noted
MAX_QUEUED_BYTES = 16 * 1024**2  # of requests whose tokens wait to be counted
BYTES_PER_TOKEN = 4
PATIENCE_S = 2.0  # for a reader that waits for pending records
RETRY_S = 10.0  # after the disk could not be read
# The reason if no stage gives one: tool results are short, or there are none.
BELOW_THRESHOLD: Reason = "below_threshold"
NOTHING_TO_DO: Reason = "nothing_to_do"
STANDING: tuple[Reason, ...] = ("recall_refused", "safety_check")  # reported also if something was saved

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AccountStart:
    """The part of a bill that is known when the request is sent."""

    model: Model | None  # that answers
    wanted: Model | None  # that the client asked for; another one if the request was routed
    is_rewritten: bool  # its beginning is not the one that the session had
    is_continued: bool = False  # only the end of the conversation is here
    cache: CacheMoment | None = None
    is_marked: bool = False
    observed: "AccountStart | None" = None  # as the request would have left, if it was only observed
    is_observed: bool = False
    clears_thinking: bool = False

    @property
    def changed_from(self) -> int | None:
        """Return the first message that the client changed; None if it only added some."""
        difference = self.cache.difference if self.cache else None
        return difference.cold_from if difference else None

    @property
    def window(self) -> int | None:
        return self.model.max_context_size if self.model else None


class Accounts:
    """Calculates the savings of requests from the prompt cache behaviour seen so far."""

    def __init__(self, models: Models, metrics: Metrics) -> None:
        self._models = models
        self._metrics = metrics
        self._prefixes = PrefixTracker()
        self._observed_prefixes = PrefixTracker()
        self._prompt_caches = PromptCacheBelief()
        self._scales = TokenScales()

    def start(self, received: Draft, outgoing: Draft, is_would: bool = False) -> AccountStart:
        model, wanted = (self._models.model(one.target) for one in (outgoing, received))
        routed = "" if outgoing.target == received.target else outgoing.target.model
        prefix = f"{outgoing.compression.id if outgoing.compression else ''} {routed}"
        prefixes = self._observed_prefixes if is_would else self._prefixes
        is_rewritten = prefixes.changes(outgoing.session.id, prefix)
        observed = None if outgoing.would is None else self.start(received, outgoing.would, is_would=True)
        kept = outgoing.request.is_continued, outgoing.cache, outgoing.is_marked, observed, outgoing.is_observed
        return AccountStart(model, wanted, is_rewritten, *kept, outgoing.clears_thinking)

    def weigh(self, entry: "JournalEntry", request: Request, weighed: Composition) -> CountedRequest:
        """Note the size of a request as sent, which the provider's count will be compared with."""
        model = self._models.counted_name(entry.target)
        conversation = entry.caller.scope, entry.session.id, f"{entry.target.provider} {model}"
        return self._scales.send(conversation, request, weighed)

    def settle(self, metric: Metric, start: AccountStart, sent: Sent, ending: Ending, ratio: float | None) -> Metric:
        """Return `metric` with the net savings of the request."""
        prices = prices_of(start.wanted), prices_of(start.model)
        if ending.status == PAID:
            model = f"{metric.provider} {metric.model}"
            if prices[1] is not None and ending.counted_usage is None and ending.outcome != "ok":
                about = prices[1].cost_usd(estimate_usage(sent, ending, self._prompt_caches[model]))
                metric = replace(metric, cost_usd=max(about, ending.reserved_usd))
            caches = self._prompt_caches[model]
            cleared = ending.reply.cleared_tokens
            done = account(sent, Bill(ending.counted_usage, ending.recalled, *prices, caches, cleared, ratio))
            self._prompt_caches.observe(model, sent, ending.counted_usage)
            metric = replace(metric, miss=self._miss(metric, start, sent, ending, prices[1]) if caches else None)
        elif sent.summaries:
            done = account_unanswered(sent, prices[1])
        else:
            return metric
        self._metrics.net_saved_tokens.labels(metric.provider).inc(done.net_saved_tokens)
        return replace(metric, account=done)

    def ratio(self, counted: CountedRequest | None, sent: Sent, ending: Ending) -> float | None:
        """Return the provider's tokens for one of ours in this conversation; None if they were not both counted."""
        usage = ending.recalled.first or ending.counted_usage
        if counted is None or usage is None or not usage.input_tokens or ending.status != PAID:
            return None
        total = usage.input_tokens + ending.reply.cleared_tokens
        is_one_turn = not ending.recalled.turns  # of several, the client sends back parts that we do not know
        if is_one_turn and ending.outcome == "ok":
            self._scales.count(counted, usage, ending.reply.cleared_tokens)
        whole = 1.0 if sent.is_continued else total / max(1, sent.after)
        return self._scales.ratio(counted.conversation, whole)

    def forget(self, scope: str, session: str | None) -> None:
        self._scales.forget(scope, session)

    def observe(
        self, metric: Metric, start: AccountStart, would: Sent | None, ending: Ending, ratio: float | None
    ) -> Metric:
        """Return `metric` with its potential savings, if it was only observed and got a response."""
        if not start.is_observed or ending.status != PAID:
            return metric
        observed = start.observed
        if observed is None or would is None:
            return replace(metric, observed_tokens=0, observed_usd=None if metric.cost_usd is None else 0.0)
        caches = self._prompt_caches[f"{metric.provider} {metric.model}"]
        is_cold = start.cache is None or start.cache.is_cold
        prices = prices_of(start.model), prices_of(observed.model)
        bill = Bill(ending.counted_usage, ending.recalled, *prices, caches, ending.reply.cleared_tokens, ratio)
        tokens, usd = account_observed(would, bill, is_cold)
        return replace(metric, observed_tokens=tokens, observed_usd=usd)

    def _miss(
        self, metric: Metric, start: AccountStart, sent: Sent, ending: Ending, prices: Prices | None
    ) -> ExplainedMiss | None:
        """Return why the prompt cache was missed, with what that cost; None if it was not."""
        usage = ending.recalled.first or ending.counted_usage
        if start.cache is None or usage is None:
            return None
        counts = usage.input_tokens, usage.cached_tokens
        miss = explain_miss(start.cache, *counts, sent.is_rewritten, ending.reply.miss_reason)
        if miss is None:
            return None
        self._metrics.cache_missed_tokens.labels(metric.provider, miss.cause).inc(miss.tokens)
        return replace(miss, usd=rewrite_usd(prices, miss.tokens, usage) if prices else None)


class WriteQueue:
    """The queue of rows to write to disk; when it is full, the oldest row is dropped and counted.

    A request that is still running during a write is stored as open: if this process dies, its estimated cost is in the
    account.
    """

    def __init__(
        self,
        session_store: SessionStore,
        metrics: Metrics,
        open_requests: OpenRequests | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._session_store = session_store
        self._open_requests = open_requests
        self._now = now
        self._opened: dict[str, OpenRequest] = {}  # that run and are not on disk
        self._held: set[str] = set()  # that run and are
        self._held_until = 0.0
        self._looks_at = 0.0  # when to look for what servers left that died
        self._relayed: list[tuple[str, UsageKey, UsageSum]] = []
        self._dropped = metrics.journal_dropped
        self._sessions: dict[str, SessionRecord] = {}
        self._metrics: deque[Metric] = deque()
        self._has_work = asyncio.Event()
        self._turn = asyncio.Lock()
        self._writing = asyncio.create_task(self._keep_writing())

    def open_session(self, session: SessionRecord) -> None:
        self._sessions[session.id] = session
        self._has_work.set()
        if len(self._sessions) > MAX_UNWRITTEN:  # the next request creates its session again, without its name
            del self._sessions[next(iter(self._sessions))]

    def open_request(self, id: str, use: UsageKey, usd: float, input_tokens: int) -> None:
        self._opened[id] = OpenRequest(id, use, usd, input_tokens, 0.0)
        self._has_work.set()

    def close_request(self, id: str) -> None:
        """Release a finished request: its usage was added or dropped."""
        self._opened.pop(id, None)
        self._held.discard(id)

    def add_relayed(self, id: str, use: UsageKey, came_to: UsageSum) -> None:
        if len(self._relayed) < MAX_UNWRITTEN:
            self._relayed.append((id, use, came_to))
        self._has_work.set()

    def add(self, metric: Metric) -> None:
        self._metrics.append(metric)
        self._has_work.set()
        if len(self._metrics) > MAX_UNWRITTEN:
            self._metrics.popleft()
            self._dropped.labels("disk").inc()

    async def flush(self) -> None:
        """Write what waits; if the disk fails, raise StoreUnavailable and keep it."""
        async with self._turn:
            while self._metrics or self._sessions:
                sessions = tuple(self._sessions.values())
                batch = tuple(islice(self._metrics, BATCH))
                await self._session_store.write(sessions, batch)
                self._written(sessions, {metric.id for metric in batch})
            await self._write_open()

    async def _write_open(self) -> None:
        """Write which requests run; close those that other processes left when they died."""
        if self._open_requests is None:
            return
        if relayed := tuple(self._relayed):
            await self._open_requests.close_requests(relayed)
            del self._relayed[: len(relayed)]
        now = self._now()
        # A clock that was set back must not keep them from being held.
        is_due = bool(self._held) and not now < self._held_until - LEASE_S / 2 < now + LEASE_S
        if self._opened or is_due:
            new = [replace(one, expires=now + LEASE_S) for one in self._opened.values()]
            await self._open_requests.hold_open(new, self._held, now + LEASE_S)
            self._held_until = now + LEASE_S
            for one in new:
                if self._opened.pop(one.id, None) is not None:
                    self._held.add(one.id)
        if not now < self._looks_at < now + 2 * LEASE_S:
            await self._open_requests.close_expired(now)
            self._looks_at = now + LEASE_S

    async def close(self) -> None:
        """End; what could not be written by now is lost, and counted."""
        self._writing.cancel()
        await asyncio.wait([self._writing])
        self._dropped.labels("stopped").inc(len(self._metrics))

    async def _keep_writing(self) -> None:
        while True:
            await self._has_work.wait()  # a server without requests is not woken every second
            await asyncio.sleep(FLUSH_S)
            with suppress(StoreUnavailable):
                await self.flush()
            if not (self._metrics or self._sessions or self._opened or self._held or self._relayed):
                self._has_work.clear()

    def _written(self, sessions: Sequence[SessionRecord], metrics: Collection[str]) -> None:
        """Forget what is on disk, but nothing that was added in the meantime."""
        for session in sessions:
            if self._sessions.get(session.id) is session:
                del self._sessions[session.id]
        while self._metrics and self._metrics[0].id in metrics:
            self._metrics.popleft()


class SessionFields(TypedDict):
    """The fields of a `session_created` and a `session_renamed`."""

    session: serialize.SessionBody


class DeletedFields(TypedDict):
    """The fields of a `session_deleted`; without an id it was all of a person's."""

    session_id: str | None


class MetricFields(TypedDict):
    """The fields of a `metric` and a `metric_updated`."""

    metric: serialize.MetricBody


@dataclass(slots=True)
class JournalEntry:
    """A request that is being noted."""

    id: str
    at: float
    wire: Wire
    target: Target
    session: Session
    caller: Caller
    notes: tuple[Note, ...]
    reasons: tuple[AnyReason, ...]
    start: AccountStart
    metric: Metric | None = None  # once it is announced
    sent: Sent | None = None
    counted: CountedRequest | None = None  # None if its tokens were only estimated from its length
    would_notes: tuple[Note, ...] = ()
    would_sent: Sent | None = None  # as it would have left, if it was only observed
    title: str = ""  # of its session, if that is new
    directory: str = ""


Work = Callable[[], Coroutine[None, None, None]]


class Journal(ChatObserver):
    """Events are noted one after the other; when too many wait, new ones are dropped and counted."""

    def __init__(
        self,
        session_store: SessionStore,
        models: Models,
        counter: TokenCounter,
        metrics: Metrics,
        publish: Publish = no_op,
        now: Callable[[], float] = time.time,
        open_requests: OpenRequests | None = None,
    ) -> None:
        self._session_store = session_store
        self._models = models
        self._counter = counter
        self._metrics = metrics
        self._publish = publish
        self._now = now
        self._running: dict[str, JournalEntry] = {}  # by the id of the request
        self._queue: asyncio.Queue[tuple[Work, int]] = asyncio.Queue(MAX_QUEUED)
        self._queued_bytes = 0
        self._windows = WindowLevels()
        self._accounts = Accounts(models, metrics)
        self._reads_at = 0.0  # when to read which sessions there were before this process
        self._unwritten = WriteQueue(session_store, metrics, open_requests, now)
        self._noting = asyncio.create_task(self._note())

    def on_start(self, received: Draft, outgoing: Draft) -> None:
        # All of the draft but its request, which may be large.
        kept = (
            outgoing.request.wire,
            outgoing.target,
            outgoing.session,
            outgoing.caller,
            outgoing.notes,
            outgoing.reasons,
        )
        start = self._accounts.start(received, outgoing)
        entry = JournalEntry(outgoing.id or new_id("req"), round(self._now(), 3), *kept, start)
        requests = received.request, outgoing.request
        would = outgoing.would.request if outgoing.would is not None else None
        entry.would_notes = outgoing.would.notes if outgoing.would is not None else ()
        size = sum(len(request.body) for request in (*requests, *([would] if would else [])))
        # What people write is not kept in memory for long: when much waits, its length has to do.
        if self._queued_bytes + size <= MAX_QUEUED_BYTES:
            is_noted = self._later(lambda: self._announce(entry, *requests, would), size)
        else:
            self._name_session(entry, received.request)
            before, after = (len(request.body) // BYTES_PER_TOKEN for request in requests)
            is_noted = self._later(lambda: self._publish_sent(entry, Weights(before), Weights(after)))
        if is_noted:
            self._running[outgoing.id] = entry
            self._open(entry, len(outgoing.request.body) // BYTES_PER_TOKEN)

    def _open(self, entry: JournalEntry, tokens: int) -> None:
        """Keep a request on disk while it runs, with its estimated price."""
        prices = prices_of(entry.start.model)
        caller = entry.caller
        usd = prices.cost_usd(Usage(tokens, 0, 0)) if prices else 0.0
        model = self._models.counted_name(entry.target)[:MAX_MODEL_CHARS]
        self._unwritten.open_request(entry.id, usage_key(entry.at, caller.person_id, caller.team, model), usd, tokens)

    def on_relayed(self, exchange: Exchange) -> None:
        if exchange.status != PAID:
            return
        draft = exchange.draft
        usage = exchange.usage
        prices = prices_of(self._models.model(draft.target))
        caller = draft.caller
        about = Usage(len(draft.request.body) // BYTES_PER_TOKEN, exchange.events, 0)
        counted = usage or about
        usd = (charged_usd(prices, usage, exchange.ending) or prices.cost_usd(about)) if prices else 0.0
        came_to = UsageSum(
            requests=1,
            input_tokens=counted.input_tokens,
            cached_tokens=counted.cached_tokens,
            output_tokens=counted.output_tokens,
            cost_usd=usd,
        )
        model = self._models.counted_name(draft.target)[:MAX_MODEL_CHARS]
        self._unwritten.add_relayed(draft.id, usage_key(self._now(), caller.person_id, caller.team, model), came_to)

    def on_end(self, exchange: Exchange) -> None:
        entry = self._running.pop(exchange.draft.id, None)
        if entry is not None:
            self._unwritten.close_request(entry.id)
            ending = exchange.ending  # not the exchange itself: it holds the request
            self._later(lambda: self._conclude(entry, ending))

    def add(self, metric: Metric) -> None:
        """Write down a request of our own, which no client waits for."""
        self._unwritten.add(metric)

    def introduce(self, who: Caller, session: SessionRecord) -> None:
        """Write a new session of a person's down and publish it."""
        session = replace(session, scope=who.scope, person=who.person_id, team=who.team, person_name=who.person)
        self._windows.meet([(who.scope, session.id)])
        self._unwritten.open_session(session)
        self._publish(who, CREATED, SessionFields(session=serialize.session(session)))

    def on_rename(self, who: Caller, session: SessionRecord) -> None:
        self._publish(who, "session_renamed", SessionFields(session=serialize.session(session)))

    def forget(self, who: Caller, session: str | None) -> None:
        """Forget a deleted session, or all sessions of a person: if one returns, it is new."""
        self._windows.forget(who.scope, session)
        self._accounts.forget(who.scope, session)
        self._publish(who, DELETED, DeletedFields(session_id=session))

    def follow(self, who: Caller, event: str, fields: Mapping[str, object]) -> None:
        """Apply changes that another server made to its sessions, without publishing them again."""
        match event, fields:
            case str(name), {"session": {"id": str(session)}} if name == CREATED:
                self._windows.meet([(who.scope, session)])
            case str(name), {"session_id": str() | None as session} if name == DELETED:
                self._windows.forget(who.scope, session)
                self._accounts.forget(who.scope, session)

    async def caught_up(self) -> None:
        """Wait up to a limit for pending records to be written."""
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(PATIENCE_S):
                await self._queue.join()
                await self.flush()

    async def flush(self) -> None:
        """Write the queued rows. Raise StoreUnavailable if the store cannot take them now."""
        await self._unwritten.flush()

    async def close(self) -> None:
        await self.caught_up()
        self._noting.cancel()
        await asyncio.wait([self._noting])
        await self._unwritten.close()

    def _later(self, work: Work, size: int = 0) -> bool:
        """Queue `work`; return False if there is no room for it."""
        if self._queue.full():
            self._metrics.journal_dropped.labels("busy").inc()
            return False
        self._queued_bytes += size
        self._queue.put_nowait((work, size))
        return True

    async def _note(self) -> None:
        while True:
            work, size = await self._queue.get()
            self._queued_bytes -= size
            try:
                await work()
            except Exception as e:  # noqa: BLE001 - a note that can't be taken is no reason to take no more
                log.warning("journal failed", extra={"what": location(e)})
                self._metrics.journal_dropped.labels("fault").inc()
            finally:
                self._queue.task_done()
                del work  # it holds the request, and the next one may be long in coming
            await asyncio.sleep(0)  # lets everything else run between two notes

    def _name_session(self, entry: JournalEntry, received: Request) -> None:
        """Give a new session its title, and the folder it works in."""
        if (entry.caller.scope, entry.session.id) not in self._windows:
            entry.title = title_of(received)
            entry.directory = directory_of(received)

    async def _announce(
        self, entry: JournalEntry, received: Request, outgoing: Request, would: Request | None = None
    ) -> None:
        self._name_session(entry, received)  # here and not when it is sent, so that the request does not wait for it
        before, after = await self._counter.both(received, outgoing)
        is_reminded = any(note.event == REINJECTED for note in entry.notes)
        context = context_of(after, entry.start.window, is_reminded)
        # In a compressed conversation messages have other places.
        is_aligned = len(received.messages) == len(outgoing.messages)
        changed_from = entry.start.changed_from if is_aligned else None
        weight = weights(received, before, changed_from)
        if would is not None and entry.start.observed is not None:
            _, counted = await self._counter.both(received, would)
            observed = entry.start.observed
            sent = sent_tokens(weight, weights(would, counted), entry.would_notes, observed.is_rewritten)
            entry.would_sent = replace(sent, is_continued=observed.is_continued, is_marked=observed.is_marked)
        read = received if has_same_messages(received, outgoing) else outgoing
        left = weight if after is before else weights(read, after, changed_from)
        entry.counted = self._accounts.weigh(entry, read, after)
        await self._publish_sent(entry, weight, left, context)

    async def _publish_sent(
        self, entry: JournalEntry, before: Weights, after: Weights, context: Context | None = None
    ) -> None:
        """Publish a sent request, with its tokens as received and as sent."""
        sent = sent_tokens(before, after, entry.notes, entry.start.is_rewritten)
        start = entry.start
        entry.sent = replace(
            sent,
            is_continued=start.is_continued,
            is_marked=start.is_marked,
            clears_thinking=start.clears_thinking,
        )
        why = entry.reasons or (BELOW_THRESHOLD if before.has_outputs else NOTHING_TO_DO,)
        target = entry.target
        saved = before.total - after.total
        entry.metric = metric = Metric(
            id=entry.id,
            session=entry.session.id,
            at=entry.at,
            provider=target.provider,
            model=self._models.counted_name(target)[:MAX_MODEL_CHARS],
            api=entry.wire.format.name,
            tokens_estimated=after.total,
            tokens_saved=saved,
            reasons=tuple(reason for reason in why if reason in STANDING) if saved > 0 else why,
            max_context=entry.start.window,
            context=context,
            scope=entry.caller.scope,
            person=entry.caller.person_id,
            team=entry.caller.team,
            cache_life_s=(entry.start.cache.rules.life_s or None) if entry.start.cache else None,
        )
        await self._meet(metric, entry)
        publish = partial(self._publish, entry.caller)
        figures = _without_texts(metric)
        publish("metric", LazyFields(lambda: MetricFields(metric=serialize.metric(figures))))
        for note in entry.notes:
            publish(note.event, {"session_id": metric.session, "request_id": metric.id, **note.fields})
        if context is not None and context.layout is not None:
            counts = context.without_layout()
            publish("memory_metrics_update", LazyFields(lambda: serialize.memory(figures, counts)))
            if self._windows.sinks(metric, context.layout.is_sunk):
                publish("attention_sink_alert", serialize.sink(metric, context.layout.sink))

    async def _conclude(self, entry: JournalEntry, ending: Ending) -> None:
        """Settle the account of a finished request, and publish it."""
        if entry.metric is None or entry.sent is None:
            return
        rules = entry.start.cache.rules if entry.start.cache else None
        # Where a provider caches by marks, each write is counted with its own life.
        if rules is not None and rules.is_long and rules.match != "marks":
            ending = ending.with_long_writes()
        ended = with_ending(entry.metric, ending, entry.start.model)
        ratio = self._accounts.ratio(entry.counted, entry.sent, ending)
        metric = self._accounts.settle(ended, entry.start, entry.sent, ending, ratio)
        metric = self._accounts.observe(metric, entry.start, entry.would_sent, ending, ratio)
        self._unwritten.add(metric)
        await self._meet(metric, entry)
        figures = _without_texts(metric)
        fields = LazyFields(lambda: MetricFields(metric=serialize.metric(figures)))
        self._publish(entry.caller, "metric_updated", fields)
        if level := self._windows.rise(metric):
            self._publish(entry.caller, "context_alert", serialize.alert(metric, level))

    async def _meet(self, metric: Metric, entry: JournalEntry) -> None:
        """Introduce the session of a request if it is new."""
        if asyncio.get_running_loop().time() >= self._reads_at:
            await self._read_known()
        if (metric.scope, metric.session) not in self._windows:
            session = entry.session
            at = metric.at
            record = SessionRecord(session.id, session.name, entry.title, metric.provider, metric.model, at, at)
            self.introduce(entry.caller, replace(record, parent=session.parent, directory=entry.directory))

    async def _read_known(self) -> None:
        """Read the sessions of earlier processes; once, because reading the disk costs as much as a whole request."""
        self._reads_at = asyncio.get_running_loop().time() + RETRY_S
        with suppress(StoreUnavailable):
            self._windows.meet(reversed(await self._session_store.newest_ids(MAX_SESSIONS // 2)))
            self._reads_at = math.inf


def _without_texts(metric: Metric) -> Metric:
    """Return what events show of a request: they outlive its session, and its layout quotes how memory begins."""
    return replace(metric, context=metric.context.without_layout() if metric.context else None)

"""Notes what becomes of every chat request, behind the request's back: its bytes go first."""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.config.providers import Model
from kimi_proxy.core.errors import AnyReason, Reason, StoreUnavailable, location
from kimi_proxy.core.markers import new_id
from kimi_proxy.features import context as reinjection
from kimi_proxy.features import metering
from kimi_proxy.features.accounting import (
    Account,
    Bill,
    PrefixTracker,
    PromptCacheBelief,
    Sent,
    Weights,
    account,
    prices_of,
    sent,
    unanswered,
    weights,
)
from kimi_proxy.features.context import Context, context_of
from kimi_proxy.features.metering import MAX_SESSIONS, Ending, Metric, WindowLevels
from kimi_proxy.features.models import Target
from kimi_proxy.features.pipeline import Draft, Note
from kimi_proxy.features.sessions import Session
from kimi_proxy.services import serialize
from kimi_proxy.services.chat.counting import TokenCounter
from kimi_proxy.services.chat.relay import Exchange
from kimi_proxy.services.events import Publish, no_op
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store import SessionRecord, SessionStore

PAID = 200  # nobody pays for an answer of another status


@dataclass(frozen=True, slots=True)
class AccountStart:
    model: Model | None  # that answers
    asked_for: Model | None  # by the client; another one if the request was routed
    is_rewritten: bool  # its beginning is not the one that the session had


class Accounts:
    def __init__(self, models: Mapping[str, Model], metrics: Metrics) -> None:
        self._models = models
        self._metrics = metrics
        self._prefixes = PrefixTracker()
        self._caching = PromptCacheBelief()

    def open(self, came: Draft, leaves: Draft) -> AccountStart:
        model, asked_for = (self._models.get(one.target.key or "") for one in (leaves, came))
        routed = "" if leaves.target == came.target else leaves.target.model
        prefix = f"{leaves.cut.id if leaves.cut else ''} {routed}"
        return AccountStart(model, asked_for, self._prefixes.changes(leaves.session.id, prefix))

    def settled(self, metric: Metric, opened: AccountStart, sent: Sent, ending: Ending) -> Metric:
        """With what the request saved, after all that this cost."""
        if ending.status != PAID and not sent.summaries:
            return metric
        told = self._account(metric, opened, sent, ending)
        self._metrics.net_saved_tokens.labels(metric.provider).inc(told.net_saved_tokens)
        return replace(metric, account=told)

    def _account(self, metric: Metric, opened: AccountStart, sent: Sent, ending: Ending) -> Account:
        prices = prices_of(opened.asked_for), prices_of(opened.model)
        if ending.status != PAID:
            return unanswered(sent, prices[1])
        known = f"{metric.provider} {metric.model}"
        told = account(sent, Bill(ending.counted, ending.recalled, *prices, self._caching[known]))
        self._caching.observe(known, sent, ending.counted)
        return told


MAX_WAITING = 10_000
BATCH = 500  # written in one transaction
FLUSH_S = 1.0


class WriteQueue:
    """When too much waits, the oldest is dropped and counted."""

    def __init__(self, session_store: SessionStore, metrics: Metrics) -> None:
        self._session_store = session_store
        self._dropped = metrics.journal_dropped
        self._sessions: dict[str, SessionRecord] = {}
        self._metrics: deque[Metric] = deque()
        self._turn = asyncio.Lock()
        self._writing = asyncio.create_task(self._keep_writing())

    def open_session(self, session: SessionRecord) -> None:
        self._sessions[session.id] = session
        if len(self._sessions) > MAX_WAITING:  # a request makes its session anew, without its name
            del self._sessions[next(iter(self._sessions))]

    def add(self, metric: Metric) -> None:
        self._metrics.append(metric)
        if len(self._metrics) > MAX_WAITING:
            self._metrics.popleft()
            self._dropped.labels("disk").inc()

    async def flush(self) -> None:
        """Write what waits; StoreUnavailable, and it goes on waiting, if the disk is sick."""
        async with self._turn:
            while self._metrics or self._sessions:
                sessions, batch = tuple(self._sessions.values()), tuple(islice(self._metrics, BATCH))
                await self._session_store.write(sessions, batch)
                self._written(sessions, {metric.id for metric in batch})

    async def close(self) -> None:
        """End; what could not be written by now is lost, and counted."""
        self._writing.cancel()
        await asyncio.wait([self._writing])
        self._dropped.labels("stopped").inc(len(self._metrics))

    async def _keep_writing(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            with suppress(StoreUnavailable):
                await self.flush()

    def _written(self, sessions: Sequence[SessionRecord], metrics: Collection[str]) -> None:
        """Forget what is on disk, and nothing that came meanwhile."""
        for session in sessions:
            if self._sessions.get(session.id) is session:
                del self._sessions[session.id]
        while self._metrics and self._metrics[0].id in metrics:
            self._metrics.popleft()


MAX_STEPS = 2_000  # that wait to be looked at
MAX_WAITING_BYTES = 16 * 1024**2  # of requests whose tokens wait to be counted
BYTES_PER_TOKEN = 4
PATIENCE_S = 2.0  # of somebody who reads, for what was not noted yet
RETRY_S = 10.0  # after the disk could not be read
# Why nothing was saved where no step says more: outputs of tools are short, or there are none.
BELOW_THRESHOLD: Reason = "below_threshold"
NOTHING_TO_DO: Reason = "nothing_to_do"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class JournalEntry:
    """A request that is being noted."""

    id: str
    at: float
    wire: Wire
    target: Target
    session: Session
    notes: tuple[Note, ...]
    reasons: tuple[AnyReason, ...]
    opened: AccountStart
    metric: Metric | None = None  # once it is announced
    sent: Sent | None = None


Step = Callable[[], Coroutine[None, None, None]]


class Journal:
    """Steps are taken one after the other; when too many wait, new ones are dropped and counted."""

    def __init__(
        self,
        session_store: SessionStore,
        models: Mapping[str, Model],
        counting: TokenCounter,
        metrics: Metrics,
        publish: Publish = no_op,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._session_store = session_store
        self._counting = counting
        self._metrics = metrics
        self._publish = publish
        self._now = now
        self._steps: asyncio.Queue[tuple[Step, int]] = asyncio.Queue(MAX_STEPS)
        self._waiting_bytes = 0
        self._windows = WindowLevels()
        self._accounts = Accounts(models, metrics)
        self._reads_at = 0.0  # when to look who was there before us
        self._backlog = WriteQueue(session_store, metrics)
        self._noting = asyncio.create_task(self._take_steps())

    def began(self, came: Draft, leaves: Draft) -> Callable[[Exchange], None]:
        """Note that a request leaves; what this gives is to be told how that ended."""
        entry = self._entry(came, leaves)
        bodies = came.request, leaves.request
        room = sum(len(request.body) for request in bodies)
        # Nobody keeps what people say in memory for long: when much waits, its length has to do.
        if self._waiting_bytes + room <= MAX_WAITING_BYTES:
            is_noted = self._later(lambda: self._announce(entry, *bodies), room)
        else:
            before, after = (len(request.body) // BYTES_PER_TOKEN for request in bodies)
            is_noted = self._later(lambda: self._announced(entry, Weights(before), Weights(after)))

        def ended(exchange: Exchange) -> None:
            # Not the exchange itself: it holds the request.
            ended = exchange.status, exchange.outcome, exchange.reply, exchange.first_byte_s, exchange.elapsed_s
            ending = Ending(*ended, exchange.recalled)
            if is_noted:
                self._later(lambda: self._conclude(entry, ending))

        return ended

    def introduce(self, session: SessionRecord) -> None:
        """Write a session down and tell of it."""
        self._windows.meet([session.id])
        self._backlog.open_session(session)
        self._publish("session_created", {"session": serialize.session(session)})

    def renamed(self, session: SessionRecord) -> None:
        self._publish("session_renamed", {"session": serialize.session(session)})

    def forget(self, session: str | None = None) -> None:
        """Somebody deleted a session, or all: whoever comes back is new."""
        self._windows.forget(session)
        self._publish("session_deleted", {"session_id": session})

    async def caught_up(self) -> None:
        """Wait for what has happened to be noted and written, for a while."""
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(PATIENCE_S):
                await self._steps.join()
                await self.flush()

    async def flush(self) -> None:
        """Write what waits; StoreUnavailable if that can't be done now."""
        await self._backlog.flush()

    async def close(self) -> None:
        await self.caught_up()
        self._noting.cancel()
        await asyncio.wait([self._noting])
        await self._backlog.close()

    def _later(self, step: Step, room: int = 0) -> bool:
        """Whether there is room for a step."""
        if self._steps.full():
            self._metrics.journal_dropped.labels("busy").inc()
            return False
        self._waiting_bytes += room
        self._steps.put_nowait((step, room))
        return True

    async def _take_steps(self) -> None:
        while True:
            step, room = await self._steps.get()
            self._waiting_bytes -= room
            try:
                await step()
            except Exception as e:  # noqa: BLE001 - a note that can't be taken is no reason to take no more
                log.warning("journal failed", extra={"what": location(e)})
                self._metrics.journal_dropped.labels("fault").inc()
            finally:
                self._steps.task_done()
            await asyncio.sleep(0)  # between two steps, everybody else has a turn

    def _entry(self, came: Draft, draft: Draft) -> JournalEntry:
        """All of a draft but its request, which may be large."""
        kept = draft.request.wire, draft.target, draft.session, draft.notes, draft.reasons
        return JournalEntry(new_id("req"), round(self._now(), 3), *kept, self._accounts.open(came, draft))

    async def _announce(self, entry: JournalEntry, came: Request, leaves: Request) -> None:
        before, after = await self._counting.both(came, leaves)
        model = entry.opened.model
        window = model.max_context_size if model else None
        context = context_of(after, window, any(note.event == reinjection.EVENT for note in entry.notes))
        await self._announced(entry, weights(came, before), weights(leaves, after), context)

    async def _announced(
        self, entry: JournalEntry, before: Weights, after: Weights, context: Context | None = None
    ) -> None:
        entry.sent = sent(before, after, entry.notes, entry.opened.is_rewritten)
        why = entry.reasons or (BELOW_THRESHOLD if before.has_outputs else NOTHING_TO_DO,)
        entry.metric = metric = _metric(entry, after.total, before.total - after.total, why, context)
        await self._meet(metric, entry.session.name)
        self._publish("metric", {"metric": serialize.metric(metric)})
        for note in entry.notes:
            self._publish(note.event, {"session_id": metric.session, "request_id": metric.id, **note.fields})
        if context is not None:
            self._tell_context(metric, context)

    def _tell_context(self, metric: Metric, context: Context) -> None:
        self._publish("memory_metrics_update", serialize.memory(metric, context))
        if self._windows.sinks(metric.session, context.is_sunk) and context.layout is not None:
            self._publish("attention_sink_alert", serialize.sink(metric, context.layout.sink))

    async def _conclude(self, entry: JournalEntry, ending: Ending) -> None:
        if entry.metric is None or entry.sent is None:
            return
        ended = metering.ended(entry.metric, ending, entry.opened.model)
        metric = self._accounts.settled(ended, entry.opened, entry.sent, ending)
        self._backlog.add(metric)
        await self._meet(metric, entry.session.name)
        self._publish("metric_updated", {"metric": serialize.metric(metric)})
        if level := self._windows.rise(metric):
            self._publish("context_alert", serialize.alert(metric, level))

    async def _meet(self, metric: Metric, name: str) -> None:
        """Tell of a session that nobody has met yet."""
        if asyncio.get_running_loop().time() >= self._reads_at:
            await self._read_known()
        if metric.session not in self._windows:
            at = metric.at
            self.introduce(SessionRecord(metric.session, name, "", metric.provider, metric.model, at, at))

    async def _read_known(self) -> None:
        """The sessions of earlier lives; once, because a look into the file costs as much as a whole request."""
        self._reads_at = asyncio.get_running_loop().time() + RETRY_S
        with suppress(StoreUnavailable):
            self._windows.meet(reversed(await self._session_store.newest_ids(MAX_SESSIONS // 2)))
            self._reads_at = math.inf


def _metric(entry: JournalEntry, estimated: int, saved: int, why: tuple[str, ...], context: Context | None) -> Metric:
    target, model = entry.target, entry.opened.model
    return Metric(
        id=entry.id,
        session=entry.session.id,
        at=entry.at,
        provider=target.provider,
        model=(target.key or target.model)[:200],
        api=entry.wire.format.name,
        tokens_estimated=estimated,
        tokens_saved=saved,
        reasons=() if saved > 0 else why,
        max_context=model.max_context_size if model else None,
        context=context,
    )

"""Sessions as people ask for them: listed, looked at, renamed, deleted, exported."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from datetime import time as clock_time
from typing import Literal, NotRequired, TypedDict

from kimi_proxy.core import json
from kimi_proxy.core.cache import in_batches
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config.sections import DisplaySettings
from kimi_proxy.core.errors import SessionNotFound, StoreUnavailable
from kimi_proxy.core.markers import new_id
from kimi_proxy.features import accounting, metering
from kimi_proxy.features.chat.context import AttentionSinkBody, CompositionBody, MemoryContextBody, NotedLayout
from kimi_proxy.features.chat.sessions import is_session_id
from kimi_proxy.features.metering import Metric, NewerCount, fill, no_newer_count
from kimi_proxy.features.status_line import status_line
from kimi_proxy.services import serialize
from kimi_proxy.services.chat.session_lookup import SessionNames
from kimi_proxy.services.events import iso_time
from kimi_proxy.services.journal import DELETED, Journal
from kimi_proxy.services.originals import delete_texts
from kimi_proxy.services.serialize import MetricBody, SessionBody
from kimi_proxy.services.store.protocols import Cursor, SessionRecord, SessionTotals, Store

Forget = Callable[[Caller, str | None], None]  # one session, or all of a person's

PAGE = 500  # requests read at once
SHOWN_SESSIONS, SHOWN_METRICS = 50, 100  # to a viewer that has just connected
ALERTED_SESSIONS = 10  # of these, the last used

SESSIONS_AT_ONCE = 200  # that are deleted together


class SessionsBody(TypedDict):
    sessions: list[SessionBody]
    total: int
    after: str | None


class DeletedBody(TypedDict):
    deleted: int
    originals_deleted: int  # that no other session uses; their ids answer `expired` from now on


class MetricsBody(TypedDict):
    metrics: list[MetricBody]


class SessionHealthBody(TypedDict):
    """The fill level of a session's context window, and its contents by kind."""

    session_id: str
    provider: str
    model: str
    level: metering.Level
    percent: float | None
    tokens: int
    max_context: int | None
    counted_by: Literal[metering.CountedBy, "log"]
    requests: int
    tokens_saved: int
    reasons: Sequence[str]
    hint: str
    composition: CompositionBody | None
    distribution: Sequence[CompositionBody] | None
    attention_sink: AttentionSinkBody | None


class MemoryHistoryBody(serialize.MemoryMetricBody):
    at: str
    tokens: int


class SessionMemoryBody(TypedDict):
    session_id: str
    memory_context: MemoryContextBody | None
    history: list[MemoryHistoryBody]


class CurrencyBody(TypedDict):
    """The currency in which people read money; amounts in answers are in USD."""

    currency: str
    currency_per_usd: float


class PeriodsBody(TypedDict):
    today: serialize.PeriodBody
    week: serialize.PeriodBody
    month: serialize.PeriodBody


class SavingsRange(TypedDict):
    """From the first day to the last, both included."""

    since: str
    until: str
    totals: serialize.PeriodBody
    models: list[serialize.ModelSavings]
    projects: list[serialize.ProjectSavings]


class StatusLineBody(TypedDict):
    """`text` is the whole line; fields without a session or a price are null."""

    text: str
    percent: float | None
    saved_today_usd: float | None
    saved_today_tokens: int
    observed_today_usd: float | None
    observed_today_tokens: int
    cache_left_s: int | None


class SavingsBody(TypedDict):
    currency: CurrencyBody
    periods: PeriodsBody
    range: SavingsRange


class HeldAlert(AttentionSinkBody):
    """An alert that was published before, and still holds."""

    type: Literal["attention_sink_alert"]
    session_id: str


class Snapshot(TypedDict):
    """The state that a viewer needs before it can interpret events."""

    alerts: NotRequired[list[HeldAlert]]
    sessions: list[SessionBody]
    metrics: list[MetricBody]
    totals: NotRequired[SessionTotals]
    currency: NotRequired[CurrencyBody]
    store: NotRequired[str]


@dataclass(frozen=True, slots=True)
class DeletedSessions:
    """The number of sessions that were deleted, and of originals deleted with them."""

    sessions: int
    originals: int


class Sessions:
    def __init__(
        self,
        store: Store,
        names: SessionNames,
        journal: Journal,
        forgetters: Sequence[Forget] = (),  # of what else is remembered about sessions
        now: Callable[[], float] = time.time,
        newer_count: NewerCount = no_newer_count,
        display: DisplaySettings | None = None,
    ) -> None:
        self._store = store
        self._session_store = store.sessions
        self._names = names
        self._journal = journal
        self._forgetters = forgetters
        self._now = now
        self._newer_count = newer_count
        self._display = display or DisplaySettings()

    async def caught_up(self) -> None:
        """Wait up to a limit for pending records to be written."""
        await self._journal.caught_up()

    async def create(self, who: Caller, name: str, title: str) -> SessionRecord:
        """Return a new session that requests can name; without a name, its id is one."""
        id = await self._names.own_id(who, name) if name else new_id("ses")
        now = round(self._now(), 3)
        self._journal.introduce(who, SessionRecord(id, "" if is_session_id(name) else name, title, "", "", now, now))
        await self._journal.flush()
        return await self.session(who, id)

    async def session(self, who: Caller, id_or_name: str) -> SessionRecord:
        await self._journal.caught_up()
        found = await self._session_store.get(who, await self._names.id_of(who, id_or_name))
        if found is None:
            raise SessionNotFound(id_or_name)
        return found

    async def own_session(self, who: Caller, id_or_name: str) -> SessionRecord:
        """Return a session that this person may change: of another's even an admin only sees figures."""
        found = await self.session(who, id_or_name)
        if found.scope not in who.scopes:
            raise SessionNotFound(id_or_name)
        return found

    async def page(self, who: Caller, limit: int, after: Cursor | None) -> tuple[Sequence[SessionRecord], int]:
        """Return some sessions, the last used first, and how many there are in all."""
        await self._journal.caught_up()
        return await self._session_store.newest(who, limit, after), await self._session_store.count(who)

    async def matching(self, who: Caller, words: str, limit: int) -> Sequence[SessionRecord]:
        """Return sessions with `words` in their title, name, id, model or provider."""
        await self._journal.caught_up()
        return await self._session_store.search(who, words, limit)

    async def history(self, who: Caller, id_or_name: str, limit: int) -> Sequence[Metric]:
        """Return the newest requests of a session, the newest last."""
        return await self._session_store.newest_metrics(who, limit, (await self.session(who, id_or_name)).id)

    async def rename(self, who: Caller, id_or_name: str, title: str) -> SessionRecord:
        session = await self.own_session(who, id_or_name)
        if not await self._session_store.rename(who, session.id, title):
            raise SessionNotFound(id_or_name)
        renamed = await self.session(who, session.id)
        self._journal.on_rename(who, renamed)
        return renamed

    async def delete(self, who: Caller, ids: Sequence[str]) -> DeletedSessions:
        """Delete sessions with the texts that only they use, some at a time.

        Raise StoreUnavailable, with the number of those that are gone, if the store does not go on in the middle.
        """
        await self._journal.caught_up()
        wanted = list(dict.fromkeys([await self._names.id_of(who, each) for each in ids]))
        gone = DeletedSessions(0, 0)
        for some in in_batches(wanted, SESSIONS_AT_ONCE):
            try:
                originals = (await delete_texts(self._store, who, some)).originals
                deleted = await self._session_store.delete(who, some)
            except StoreUnavailable as e:
                raise StoreUnavailable(f"{gone.sessions} sessions were deleted before this: {e}") from e
            for id in deleted:
                self._forget(who, id)
            gone = DeletedSessions(gone.sessions + len(deleted), gone.originals + originals)
            await asyncio.sleep(0)  # lets everything else run
        return gone

    async def delete_all(self, who: Caller) -> DeletedSessions:
        """Delete all sessions of a person; where a team shares, those of colleagues stay."""
        await self._journal.caught_up()
        if who.also_reads:
            own = await self._session_store.ids_of_person(who.person_id)
            return await self.delete(who, [id for scope, id in own if scope in who.scopes])
        originals = (await delete_texts(self._store, who, None)).originals
        deleted = await self._session_store.delete_all(who)
        self._forget(who, None)
        return DeletedSessions(len(deleted), originals)

    def follow(self, who: Caller, event: str, fields: Mapping[str, object]) -> None:
        """Apply changes that another server made to its sessions."""
        self._journal.follow(who, event, fields)
        deleted = fields.get("session_id", "")
        if event == DELETED and (deleted is None or isinstance(deleted, str)):
            self._call_forgetters(who, deleted)

    def _forget(self, who: Caller, session: str | None) -> None:
        self._journal.forget(who, session)
        self._call_forgetters(who, session)

    def _call_forgetters(self, who: Caller, session: str | None) -> None:
        for forget in self._forgetters:
            forget(who, session)

    async def health(self, who: Caller, id_or_name: str) -> SessionHealthBody:
        """Return how full the context window is, its composition, and its buried instructions."""
        session = await self.session(who, id_or_name)
        newest = await self._session_store.newest_metric(who, session.id)
        layout = await self._layout(who, session.id)
        filled = fill(newest, self._newer_count(newest, session.id))
        level = metering.level(filled.percent) if newest else "ok"
        return {
            "session_id": session.id,
            "provider": session.provider,
            "model": session.model,
            "level": level,
            "percent": filled.percent,
            "tokens": filled.tokens,
            "max_context": filled.max_context,
            "counted_by": filled.counted_by,
            "requests": session.requests,
            "tokens_saved": session.tokens_saved,
            "reasons": newest.reasons if newest else (),
            "hint": metering.hint(level, session.id),
            "composition": newest.context.to_json() if newest and newest.context else None,
            # As recorded with the newest request; None if it was not analysed.
            "distribution": layout["distribution"] if layout else None,
            "attention_sink": layout["attention_sink"] if layout else None,
        }

    async def memory(self, who: Caller, id_or_name: str, limit: int) -> SessionMemoryBody:
        """Return how much of a session's newest requests was memory, the newest last."""
        session = await self.session(who, id_or_name)
        history: list[MemoryHistoryBody] = [
            {"at": iso_time(one.at), "tokens": one.tokens_estimated, **serialize.memory(one, one.context)}
            for one in await self._session_store.newest_metrics(who, limit, session.id)
            if one.context is not None
        ]
        memory, _ = await self._session_store.newest_context(who, session.id)
        noted = json.as_type(memory, MemoryContextBody)
        return {"session_id": session.id, "memory_context": noted, "history": history}

    async def savings(self, who: Caller, zone: tzinfo | None, since: date | None, until: date | None) -> SavingsBody:
        """Return the savings of today, this week and this month, and from `since` to `until`, both inclusive.

        Days begin and end in `zone`, or in this machine's own; a range without a beginning is this month.
        """
        await self._journal.caught_up()
        today = datetime.fromtimestamp(self._now(), zone).date()
        month = today.replace(day=1)
        first = since or month
        last = until or today
        end = _midnight(last + timedelta(1), zone)
        chosen = await self._session_store.accounts(who, _midnight(first, zone), until=end)

        async def period(since: date) -> serialize.PeriodBody:
            return serialize.period(await self._session_store.accounts(who, _midnight(since, zone)))

        return {
            "currency": self._currency(),
            "periods": {
                "today": await period(today),
                "week": await period(today - timedelta(today.weekday())),
                "month": await period(month),
            },
            "range": {
                "since": first.isoformat(),
                "until": last.isoformat(),
                "totals": serialize.period(chosen),
                "models": serialize.savings_by_model(chosen),
                "projects": serialize.savings_by_project(chosen),
            },
        }

    async def status_line(self, who: Caller, id_or_name: str) -> StatusLineBody:
        """Return the status line of an agent: its context window, today's savings, the lifetime of its cache."""
        today = datetime.fromtimestamp(self._now()).date()
        saved = accounting.sum_lines(await self._session_store.accounts(who, _midnight(today, None)))
        id = await self._names.id_of(who, id_or_name) if id_or_name else ""
        session = await self._session_store.get(who, id) if id else None
        is_own = session is not None and session.scope in who.scopes
        metrics = await self._session_store.newest_metrics(who, 1, id) if is_own else ()
        newest = metrics[-1] if metrics else None
        life = newest.cache_life_s if newest is not None else None
        # A request of ours that keeps the cache warm may be newer.
        sent = await self._session_store.newest_request(who, id) if life is not None else None
        left = None if sent is None or life is None else max(0, round(sent.at + life - self._now()))
        percent = newest.percent if newest is not None else None
        return {
            "text": status_line(percent, saved, left, self._display),
            "percent": percent,
            "saved_today_usd": saved.net_saved_usd,
            "saved_today_tokens": saved.net_saved_tokens,
            "observed_today_usd": saved.observed_usd,
            "observed_today_tokens": saved.observed_tokens,
            "cache_left_s": left,
        }

    def _currency(self) -> CurrencyBody:
        return {"currency": self._display.currency, "currency_per_usd": self._display.currency_per_usd}

    async def losses(self, who: Caller, sessions: Sequence[SessionRecord]) -> Mapping[str, serialize.LossesBody]:
        """Return the costs of those `sessions` that cost more than they saved, by id."""
        losing = [each.id for each in sessions if each.net_saved_tokens < 0 or (each.net_saved_usd or 0.0) < 0]
        return {
            id: serialize.losses(accounting.sum_lines(await self._session_store.accounts(who, 0.0, id)))
            for id in losing
        }

    async def memory_stats(self, who: Caller) -> serialize.MemoryStatsBody:
        """Return how much of all requests was memory."""
        await self._journal.caught_up()
        return serialize.memory_sums(await self._session_store.memory_totals(who))

    async def metrics(self, who: Caller, id_or_name: str | None) -> AsyncIterator[Sequence[Metric]]:
        """Return the requests of a session, or of all, some at a time; no read is a long one."""
        session = None if id_or_name is None else (await self.session(who, id_or_name)).id
        await self._journal.caught_up()
        after = 0
        while page := await self._session_store.metrics(who, session, after, PAGE):
            after = page[-1][0]
            yield [metric for _, metric in page]

    async def _layout(self, who: Caller, session: str) -> NotedLayout | None:
        _, layout = await self._session_store.newest_context(who, session)
        return json.as_type(layout, NotedLayout)

    async def _sink_alert(self, who: Caller, session: str) -> HeldAlert | None:
        """Return the alert of a session with buried instructions, as published."""
        layout = await self._layout(who, session)
        if layout is None or not layout["attention_sink"]["is_sunk"]:
            return None
        return {"type": "attention_sink_alert", "session_id": session, **layout["attention_sink"]}

    async def snapshot(self, who: Caller) -> Snapshot:
        """Return the initial state that a viewer needs before it can interpret events."""
        await self._journal.caught_up()
        sessions = await self._session_store.newest(who, SHOWN_SESSIONS)
        metrics = await self._session_store.newest_metrics(who, SHOWN_METRICS)
        alerts = [alert for each in sessions[:ALERTED_SESSIONS] if (alert := await self._sink_alert(who, each.id))]
        return {
            "alerts": alerts,
            "sessions": [serialize.session(each) for each in sessions],
            "metrics": [serialize.metric(each) for each in metrics],
            "totals": serialize.sums(await self._session_store.totals(who)),
            "currency": self._currency(),
        }


def _midnight(day: date, zone: tzinfo | None) -> float:
    """Return when a day begins, in seconds of wall time."""
    return datetime.combine(day, clock_time.min, zone).timestamp()

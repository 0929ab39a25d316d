"""Sessions as people ask for them: listed, looked at, renamed, deleted, exported."""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, tzinfo
from datetime import time as clock_time

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config.sections import DisplaySettings
from kimi_proxy.core.errors import SessionNotFound
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.markers import new_id
from kimi_proxy.features import accounting, metering
from kimi_proxy.features.metering import Metric, NewerCount, fill, no_newer_count
from kimi_proxy.features.sessions import is_session_id
from kimi_proxy.services import serialize
from kimi_proxy.services.chat.session_lookup import SessionNames
from kimi_proxy.services.events import iso_time
from kimi_proxy.services.journal import DELETED, Journal
from kimi_proxy.services.store.protocols import Cursor, SessionRecord, SessionStore

Forget = Callable[[Caller, str | None], None]  # one session, or all of a person's

PAGE = 500  # requests read at once
SHOWN_SESSIONS, SHOWN_METRICS = 50, 100  # to a viewer that has just connected
ALERTED_SESSIONS = 10  # of these, the last used

_HINTS = {
    "ok": "there is room",
    "caution": "the window fills up",
    "warning": "little room is left: begin a new session soon, or use a model with a larger window",
    "critical": "hardly any room is left: begin a new session, or use a model with a larger window",
    "unknown": "name the model in [models] with its max_context_size, and its share of the window is known",
}


class Sessions:
    def __init__(
        self,
        session_store: SessionStore,
        names: SessionNames,
        journal: Journal,
        forgetters: Sequence[Forget] = (),  # of what else is remembered about sessions
        now: Callable[[], float] = time.time,
        newer_count: NewerCount = no_newer_count,
        display: DisplaySettings | None = None,
    ) -> None:
        self._session_store = session_store
        self._names = names
        self._journal = journal
        self._forgetters = forgetters
        self._now = now
        self._newer_count = newer_count
        self._display = display or DisplaySettings()

    async def caught_up(self) -> None:
        """Wait for what has happened to be noted and written, for a while."""
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

    async def delete(self, who: Caller, ids: Sequence[str]) -> int:
        """Return how many of these there were."""
        await self._journal.caught_up()
        deleted = await self._session_store.delete(who, [await self._names.id_of(who, each) for each in ids])
        for id in deleted:
            self._forget(who, id)
        return len(deleted)

    async def delete_all(self, who: Caller) -> int:
        await self._journal.caught_up()
        deleted = await self._session_store.delete_all(who)
        self._forget(who, None)
        return len(deleted)

    def follow(self, who: Caller, event: str, fields: Mapping[str, JsonValue]) -> None:
        """Do what another server has done to its sessions."""
        self._journal.follow(who, event, fields)
        deleted = fields.get("session_id", "")
        if event == DELETED and (deleted is None or isinstance(deleted, str)):
            self._forget_more(who, deleted)

    def _forget(self, who: Caller, session: str | None) -> None:
        self._journal.forget(who, session)
        self._forget_more(who, session)

    def _forget_more(self, who: Caller, session: str | None) -> None:
        for forget in self._forgetters:
            forget(who, session)

    async def health(self, who: Caller, id_or_name: str) -> JsonObject:
        """Return how full the context window is by the newest request, what fills it, and what is buried in it."""
        session = await self.session(who, id_or_name)
        newest = await self._session_store.newest_metric(who, session.id)
        _, layout = await self._session_store.newest_context(who, session.id)
        noted = layout if isinstance(layout, Mapping) else {}
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
            "hint": _HINTS[level],
            "composition": newest.context.to_json() if newest and newest.context else None,
            # As it was noted with the newest request; None if it was not looked at.
            **{name: noted.get(name) for name in ("distribution", "attention_sink")},
        }

    async def memory(self, who: Caller, id_or_name: str, limit: int) -> JsonObject:
        """Return how much of a session's newest requests was memory, the newest last."""
        session = await self.session(who, id_or_name)
        history: list[JsonValue] = [
            {"at": iso_time(one.at), "tokens": one.tokens_estimated, **serialize.memory(one, one.context)}
            for one in await self._session_store.newest_metrics(who, limit, session.id)
            if one.context is not None
        ]
        memory, _ = await self._session_store.newest_context(who, session.id)
        return {"session_id": session.id, "memory_context": memory, "history": history}

    async def savings(self, who: Caller, zone: tzinfo | None, since: date | None, until: date | None) -> JsonObject:
        """Return what was saved today, this week and this month, and from `since` to `until`, both of them included.

        Days begin and end in `zone`, or in this machine's own; a range without a beginning is this month.
        """
        await self._journal.caught_up()
        today = datetime.fromtimestamp(self._now(), zone).date()
        begins = {"today": today, "week": today - timedelta(today.weekday()), "month": today.replace(day=1)}
        lines = {name: await self._session_store.accounts(who, _midnight(day, zone)) for name, day in begins.items()}
        first, last = since or begins["month"], until or today
        end = _midnight(last + timedelta(1), zone)
        chosen = await self._session_store.accounts(who, _midnight(first, zone), until=end)
        return {
            "currency": self._display.model_dump(),
            "periods": {name: accounting.period_to_json(found) for name, found in lines.items()},
            "range": {
                "since": first.isoformat(),
                "until": last.isoformat(),
                "totals": accounting.period_to_json(chosen),
                **accounting.tables_to_json(chosen),
            },
        }

    async def losses(self, who: Caller, sessions: Sequence[SessionRecord]) -> Mapping[str, JsonObject]:
        """Return what was spent in those of `sessions` that cost more than they saved, by their ids."""
        losing = [each.id for each in sessions if each.net_saved_tokens < 0 or (each.net_saved_usd or 0.0) < 0]
        return {
            id: accounting.losses(accounting.sum_lines(await self._session_store.accounts(who, 0.0, id)))
            for id in losing
        }

    async def memory_stats(self, who: Caller) -> JsonObject:
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

    async def _sink_alert(self, who: Caller, session: str) -> JsonObject | None:
        """Return the alert of a session whose instructions are buried, as it was published once."""
        _, layout = await self._session_store.newest_context(who, session)
        sink = layout.get("attention_sink") if isinstance(layout, Mapping) else None
        if not isinstance(sink, Mapping) or not sink.get("is_sunk"):
            return None
        return {"type": "attention_sink_alert", "session_id": session, **sink}

    async def snapshot(self, who: Caller) -> JsonObject:
        """Return what a viewer needs before it can make sense of events."""
        await self._journal.caught_up()
        sessions = await self._session_store.newest(who, SHOWN_SESSIONS)
        metrics = await self._session_store.newest_metrics(who, SHOWN_METRICS)
        alerts = [alert for each in sessions[:ALERTED_SESSIONS] if (alert := await self._sink_alert(who, each.id))]
        return {
            "alerts": alerts,
            "sessions": [serialize.session(each) for each in sessions],
            "metrics": [serialize.metric(each) for each in metrics],
            "totals": serialize.sums(await self._session_store.totals(who)),
            "currency": self._display.model_dump(),
        }


def _midnight(day: date, zone: tzinfo | None) -> float:
    """Return when a day begins, in seconds of wall time."""
    return datetime.combine(day, clock_time.min, zone).timestamp()

"""Sessions in a database: what their requests counted, held in memory, saved and cost."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import astuple, fields, replace

from kimi_proxy.core import json
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.accounting import Account, SavingsLine
from kimi_proxy.features.chat.context import Context
from kimi_proxy.features.chat.prompt_cache import ExplainedMiss
from kimi_proxy.features.metering import Metric, QuotaWindow, without_absurd_resets
from kimi_proxy.services.store.protocols import (
    Cursor,
    MemoryKind,
    MemoryTotals,
    NewestRequest,
    SessionRecord,
    SessionTotals,
)
from kimi_proxy.services.store.sql import (
    D,
    Row,
    SqlStatement,
    SqlTables,
    audit_block,
    marks,
    name_of,
    one_of,
    sums,
)

# ruff: noqa: S608 - every name that is put into a statement is in this file or is a field of a record

KEEP_S = 180 * 86_400.0
DELETE_AT_ONCE = 500  # so that no transaction is long
OF_SESSIONS = ("metrics", "compression_log", "memory_segments")  # tables that have a session_id

_ACCOUNT = tuple(field.name for field in fields(Account))
_MISS = ("cache_miss", "cache_missed_tokens", "cache_missed_usd", "cache_miss_detail")  # the fields of ExplainedMiss
_OWNER = ("scope", "person", "team")
_SESSION = ", ".join(
    name_of("sessions.person") if field.name == "person_name" else field.name for field in fields(SessionRecord)
)
# Of a request, in the order of the fields of Metric and Account.
_METRIC = f"""id, session_id, at, provider, model, api, tokens_estimated, tokens_saved, reasons, max_context, status,
  outcome, finish, input_tokens, cached_tokens, output_tokens, cost_usd, first_token_ms, duration_ms, system_tokens,
  memory_tokens, tools_tokens, chat_tokens, {", ".join(_ACCOUNT + _MISS)}, cache_life_s, observed_tokens, observed_usd,
  quota, {", ".join(_OWNER)}"""

# A request that was refused has left nothing to pay for, unless a summary was made for it.
_SENT = "(metrics.status = 200 OR metrics.net_saved_tokens IS NOT NULL)"


class SqlSessions(SqlTables[D]):
    """The part of SessionStore that is the same in every database."""

    async def own_ids(self, who: Caller, ids: Collection[str]) -> frozenset[str]:
        rows = await self.database.rows(
            f"SELECT id FROM sessions WHERE scope = ? AND id IN ({marks(len(ids))})", (who.scope, *ids)
        )
        return frozenset(str(id) for (id,) in rows)

    async def get(self, who: Caller, id: str) -> SessionRecord | None:
        theirs, own = session_filter(who.counts)
        found = await self._sessions(who, f"{theirs} AND id = ?", (*own, id))
        return found[0] if found else None

    async def newest(self, who: Caller, limit: int, after: Cursor | None = None) -> Sequence[SessionRecord]:
        theirs, own = session_filter(who.counts)
        if after is None:
            return await self._sessions(who, f"{theirs} ORDER BY last_used DESC, id DESC LIMIT ?", (*own, limit))
        where = f"{theirs} AND (last_used, id) < (?, ?) ORDER BY last_used DESC, id DESC LIMIT ?"
        return await self._sessions(who, where, (*own, *after, limit))

    async def newest_ids(self, limit: int) -> Sequence[tuple[str, str]]:
        statement = "SELECT scope, id FROM sessions ORDER BY last_used DESC, id DESC LIMIT ?"
        return [(str(scope), str(id)) for scope, id in await self.database.rows(statement, (limit,))]

    async def ids_of_person(self, person: str) -> Sequence[tuple[str, str]]:
        statement = "SELECT scope, id FROM sessions WHERE person = ? ORDER BY last_used, id"
        return [(str(scope), str(id)) for scope, id in await self.database.rows(statement, (person,))]

    async def count(self, who: Caller) -> int:
        theirs, own = session_filter(who.counts)
        ((sessions,),) = await self.database.rows(f"SELECT count(*) FROM sessions WHERE {theirs}", own)
        return int(str(sessions))

    async def totals(self, who: Caller) -> SessionTotals:
        theirs, own = session_filter(who.counts)
        counts = sums("requests", "input_tokens", "cached_tokens", "output_tokens", "tokens_saved")
        (row,) = await self.database.rows(
            f"""SELECT count(*), {counts}, sum(cost_usd), sum(cost_before_usd), {sums("net_saved_tokens")},
                 sum(net_saved_usd) FROM sessions WHERE {theirs}""",
            own,
        )
        return SessionTotals(*row)  # type: ignore[arg-type]

    async def memory_totals(self, who: Caller) -> MemoryTotals:
        theirs, own = session_filter(who.counts)
        (row,) = await self.database.rows(
            f"""SELECT count(*), count(nullif(memory_tokens, 0)),
                 count(DISTINCT CASE WHEN memory_tokens > 0 THEN session_id END),
                 {sums("system_tokens", "memory_tokens", "tools_tokens", "chat_tokens")}
               FROM metrics WHERE memory_tokens IS NOT NULL AND {theirs}""",
            own,
        )
        kinds = await self.database.rows(
            f"""SELECT kind, count(*), {sums("segments", "tokens")} FROM memory_segments
               WHERE seq IN (SELECT max(seq) FROM memory_segments GROUP BY session_id, kind)
                 AND session_id IN (SELECT id FROM sessions WHERE {theirs})
               GROUP BY kind ORDER BY sum(tokens) DESC, kind""",
            own,
        )
        totals = MemoryTotals(*row)  # type: ignore[arg-type]
        return replace(totals, kinds=tuple(MemoryKind(*kind) for kind in kinds))  # type: ignore[arg-type]

    async def newest_context(self, who: Caller, session: str) -> tuple[JsonValue, JsonValue]:
        theirs, own = session_filter(who.scopes)
        rows = await self.database.rows(
            f"SELECT memory_context, layout FROM sessions WHERE {theirs} AND id = ?", (*own, session)
        )
        memory, layout = rows[0] if rows else (None, None)
        return _value(memory), _value(layout)

    async def rename(self, who: Caller, id: str, title: str) -> bool:
        theirs, own = session_filter(who.scopes)
        statement = f"UPDATE sessions SET title = ? WHERE {theirs} AND id = ? RETURNING 1"
        return bool(await self.database.change(statement, (title, *own, id)))

    async def newest_metric(self, who: Caller, session: str) -> Metric | None:
        theirs, own = session_filter(who.counts, session)
        found = await self._metrics(f"{theirs} ORDER BY seq DESC LIMIT 1", own)
        return found[0][1] if found else None

    async def newest_request(self, who: Caller, session: str) -> NewestRequest | None:
        ((used, at, observed_tokens, life_s),) = await self.database.rows(
            """SELECT used.last_used, newest.at, newest.observed_tokens, newest.cache_life_s
               FROM (SELECT 1 AS one) AS one
               LEFT JOIN (SELECT last_used FROM sessions WHERE scope = ? AND id = ?) AS used ON one.one = 1
               LEFT JOIN (SELECT at, observed_tokens, cache_life_s FROM metrics WHERE scope = ? AND session_id = ?
                 ORDER BY seq DESC LIMIT 1) AS newest ON one.one = 1""",
            (who.scope, session) * 2,
        )
        times = [float(str(each)) for each in (used, at) if each is not None]
        if not times:
            return None
        return NewestRequest(
            at=max(times),
            noted_at=None if at is None else float(str(at)),
            was_observed=observed_tokens is not None,
            cache_life_s=None if life_s is None else float(str(life_s)),
        )

    async def newest_metrics(self, who: Caller, limit: int, session: str | None = None) -> Sequence[Metric]:
        theirs, own = session_filter(who.counts, session)
        found = await self._metrics(f"{theirs} ORDER BY seq DESC LIMIT ?", (*own, limit))
        return [metric for _, metric in reversed(found)]

    async def metrics(self, who: Caller, session: str | None, after: int, limit: int) -> Sequence[tuple[int, Metric]]:
        theirs, own = session_filter(who.counts, session)
        with audit_block(self.database.note, who, "export", session or "all") if not after else nullcontext():
            return await self._metrics(f"{theirs} AND seq > ? ORDER BY seq LIMIT ?", (*own, after, limit))

    async def accounts(
        self, who: Caller, since: float, session: str | None = None, until: float = math.inf
    ) -> Sequence[SavingsLine]:
        """The session that was used last comes first; one of another person has no title and no folder."""
        theirs, own = session_filter(who.counts, session, "metrics.")
        readable, readers = session_filter(who.scopes, table="sessions.")
        counted = "coalesce(metrics.input_tokens, tokens_estimated)"
        counts = sums(
            f"coalesce(tokens_before, {counted})",
            f"coalesce(tokens_after, {counted})",
            "metrics.cached_tokens",
            "cache_lost_tokens",
            "recoveries",
            "extra_turns",
            "recovery_tokens",
            "summaries",
            "summary_tokens",
            "metrics.net_saved_tokens",
            "metrics.observed_tokens",
        )
        money = ", ".join(f"sum({name})" for name in ("cache_lost_usd", "overhead_usd", "cache_missed_usd"))
        rows = await self.database.rows(
            f"""SELECT session_id, coalesce(max(coalesce(nullif(sessions.title, ''), sessions.name)), ''),
                 coalesce(max(sessions.directory), ''), metrics.model, count(*), {counts},
                 sum(coalesce(metrics.cost_before_usd, metrics.cost_usd)), sum(metrics.cost_usd),
                 sum(metrics.net_saved_usd), {money}, sum(metrics.observed_usd)
               FROM metrics LEFT JOIN sessions
                 ON sessions.id = metrics.session_id AND sessions.scope = metrics.scope AND {readable}
               WHERE at >= ? AND at < ? AND {theirs} AND {_SENT}
               GROUP BY session_id, metrics.model ORDER BY max(at) DESC, session_id, metrics.model""",
            (*readers, since, until, *own),
        )
        why = await self._reasons(who, since, until, session)
        return [SavingsLine(why.get((row[0], row[3]), {}), *row) for row in rows]  # type: ignore[arg-type]

    async def _reasons(self, who: Caller, since: float, until: float, session: str | None) -> dict[Row, Counter[str]]:
        """Return how many requests of a session and model gave each reason."""
        theirs, own = session_filter(who.counts, session)
        rows = await self.database.rows(
            f"""SELECT session_id, model, reasons, count(*) FROM metrics
               WHERE at >= ? AND at < ? AND {theirs} AND {_SENT} AND reasons <> ''
               GROUP BY session_id, model, reasons""",
            (since, until, *own),
        )
        counted: dict[Row, Counter[str]] = {}
        for id, model, reasons, requests in rows:
            for reason in str(reasons).split():
                counted.setdefault((id, model), Counter())[reason] += int(str(requests))
        return counted

    async def _sessions(self, who: Caller, which: str, values: Row) -> list[SessionRecord]:
        rows = await self.database.rows(f"SELECT {_SESSION} FROM sessions WHERE {which}", values)
        return [_readable(SessionRecord(*row), who) for row in rows]  # type: ignore[arg-type]

    async def _metrics(self, which: str, values: Row) -> list[tuple[int, Metric]]:
        rows = await self.database.rows(f"SELECT seq, {_METRIC} FROM metrics WHERE {which}", values)
        return [(int(str(seq)), _metric(row)) for seq, *row in rows]


def _readable(session: SessionRecord, who: Caller) -> SessionRecord:
    """Return a session without what its person wrote, unless `who` may read that."""
    return session if session.scope in who.scopes else replace(session, name="", title="", directory="")


def session_filter(
    scopes: Sequence[str] | None, session: str | None = None, table: str = ""
) -> tuple[str, tuple[str, ...]]:
    """Return the condition that rows are those of these scopes and this session, and its values."""
    theirs = one_of(f"{table}scope", scopes)
    if session is None:
        return theirs, (*(scopes or ()),)
    return f"{theirs} AND session_id = ?", (*(scopes or ()), session)


ADD_KEY = "INSERT INTO secret (name, value) VALUES ('sessions', ?) ON CONFLICT DO NOTHING"
READ_KEY = "SELECT value FROM secret WHERE name = 'sessions'"
KEY_BYTES = 32


def containing(words: str) -> str:
    """Return the pattern of LIKE for a text that holds `words`."""
    return "%" + "".join(f"\\{each}" if each in "%_\\" else each for each in words) + "%"


def open_session(session: SessionRecord) -> SqlStatement:
    """Return the statement that stores a session. An existing one keeps its values and gets missing ones."""
    names = ("id", "created", "last_used", "scope", "person", "team")
    kept = ("name", "title", "provider", "model", "parent", "directory")
    lacking = ", ".join(
        f"{name} = CASE sessions.{name} WHEN '' THEN excluded.{name} ELSE sessions.{name} END" for name in kept
    )
    return SqlStatement(
        f"""INSERT INTO sessions ({", ".join(names + kept)}) VALUES ({marks(len(names + kept))})
           ON CONFLICT (id) DO UPDATE SET {lacking}, {_LAST_USED},
             created = CASE WHEN sessions.created < excluded.created THEN sessions.created ELSE excluded.created END
           WHERE sessions.scope = excluded.scope""",
        tuple(getattr(session, name) for name in names + kept),
    )


def add_metric(metric: Metric, table: str = "metrics") -> SqlStatement:
    """Return the statement that records a request; it changes no row if the table has the request already."""
    values = tuple(value for field in fields(metric) for value in _metric_values(metric, field.name))
    return SqlStatement(
        f"INSERT INTO {table} ({_METRIC}) VALUES ({marks(len(values))}) ON CONFLICT (id) DO NOTHING", values
    )


def _metric_values(metric: Metric, field: str) -> Row:
    """Return the values of the columns for one field."""
    context = metric.context
    account = metric.account
    miss = metric.miss
    match field:
        case "reasons":
            return (" ".join(metric.reasons),)
        case "context":
            return (context.system, context.memory, context.tools, context.chat) if context else (None,) * 4
        case "account":
            return astuple(account) if account else (None,) * len(_ACCOUNT)
        case "miss":
            return astuple(miss) if miss else (None,) * len(_MISS)
        case "quota":
            return (_quota_text(metric),)
    return (getattr(metric, field),)


def after_metric(metric: Metric, segments: str = "memory_segments") -> Iterator[SqlStatement]:
    """Yield what adds a new request to the sums of its session, and writes down what is in its context window."""
    yield _add_to_session(metric)
    context = metric.context
    if context is None or context.layout is None:
        return
    memory = json.encode(context.memory_to_json()).decode()
    layout = json.encode(context.layout.to_json()).decode()
    yield SqlStatement(
        "UPDATE sessions SET memory_context = ?, layout = ? WHERE id = ? AND scope = ?",
        (memory, layout, metric.session, metric.scope),
    )
    for found in context.layout.found:
        place = (metric.session, found.kind)
        same = (found.count, found.tokens, found.preview)
        yield SqlStatement(
            f"""INSERT INTO {segments} (session_id, kind, segments, tokens, preview, request_id, at)
               SELECT ?, ?, ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM sessions WHERE id = ? AND scope = ?)
                 AND NOT EXISTS (
                   SELECT 1 FROM memory_segments WHERE segments = ? AND tokens = ? AND preview = ? AND seq =
                     (SELECT max(seq) FROM memory_segments WHERE session_id = ? AND kind = ?))""",
            (*place, *same, metric.id, metric.at, metric.session, metric.scope, *same, *place),
        )


_LAST_USED = """last_used = CASE WHEN sessions.last_used > excluded.last_used THEN sessions.last_used
  ELSE excluded.last_used END"""


def _add_to_session(metric: Metric) -> SqlStatement:
    """Return the statement that adds a request to its session's totals, which restart if it was deleted."""
    account = metric.account
    saved = (account.cost_before_usd, account.net_saved_tokens, account.net_saved_usd) if account else None
    before_usd, net_tokens, net_usd = saved or (metric.cost_usd, 0, None)
    counts = ("requests", "input_tokens", "cached_tokens", "output_tokens", "tokens_saved", "net_saved_tokens")
    money = ("cost_usd", "cost_before_usd", "net_saved_usd")
    added = [f"{name} = sessions.{name} + excluded.{name}" for name in counts]
    added += [
        f"{name} = coalesce(sessions.{name} + excluded.{name}, sessions.{name}, excluded.{name})" for name in money
    ]
    return SqlStatement(
        f"""INSERT INTO sessions (id, name, title, provider, model, created, last_used, {", ".join(counts + money)},
             scope, person, team) VALUES (?, '', '', {marks(4 + len(counts + money) + 3)})
           ON CONFLICT (id) DO UPDATE SET provider = excluded.provider, model = excluded.model, {_LAST_USED},
             {", ".join(added)} WHERE sessions.scope = excluded.scope""",
        (
            metric.session,
            metric.provider,
            metric.model,
            metric.at,
            metric.at,
            1,
            metric.input_tokens or 0,
            metric.cached_tokens or 0,
            metric.output_tokens or 0,
            metric.tokens_saved,
            net_tokens,
            metric.cost_usd,
            before_usd,
            net_usd,
            metric.scope,
            metric.person,
            metric.team,
        ),
    )


def _metric(row: list[object]) -> Metric:
    """Return the request of a row; the columns are in the order of the fields."""
    owner = row[-len(_OWNER) :]
    row = row[: -len(_OWNER)]
    *row, life_s, observed_tokens, observed_usd, quota = row
    missed = row[-len(_MISS) :]
    row = row[: -len(_MISS)]
    miss = None if missed[0] is None else ExplainedMiss(*missed)  # type: ignore[arg-type]
    *counted, system, memory, tools, chat = row[: -len(_ACCOUNT)]
    reasons = tuple(str(counted[8]).split())
    context = None if memory is None else Context(system, memory, tools, chat)  # type: ignore[arg-type]
    columns = row[-len(_ACCOUNT) :]
    account = None if columns[0] is None else Account(*columns)  # type: ignore[arg-type]
    quota_windows = _quota_in(quota, float(str(counted[2])))
    more = (context, account, miss, life_s, observed_tokens, observed_usd, quota_windows)
    return Metric(*counted[:8], reasons, *counted[9:], *more, *owner)  # type: ignore[arg-type, call-arg]


def _quota_text(metric: Metric) -> str | None:
    return json.encode([astuple(each) for each in metric.quota]).decode() if metric.quota else None


def _quota_in(text: object, at: float) -> tuple[QuotaWindow, ...]:
    """Return the windows of a plan in a column; none if another program wrote something else there."""
    rows = json.as_type(_value(text), list[tuple[str, float, float | None]]) or ()
    return without_absurd_resets((QuotaWindow(*row) for row in rows), at)


def _value(text: object) -> JsonValue:
    try:
        return json.decode(text.encode()) if isinstance(text, str) else None
    except ParseError:  # another program wrote it
        return None

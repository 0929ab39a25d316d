"""Sessions in PostgreSQL: what their requests counted, held in memory, saved and cost, on whichever server."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, fields, replace

from kimi_proxy.core import json
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.accounting import Account, SavingsLine
from kimi_proxy.features.context import Context
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store.clock import Moment
from kimi_proxy.services.store.postgres.database import Connection, PostgresDatabase
from kimi_proxy.services.store.postgres.team import add_usage
from kimi_proxy.services.store.protocols import (
    Cursor,
    MemoryKind,
    MemoryTotals,
    Scopes,
    SessionRecord,
    SessionTotals,
)
from kimi_proxy.services.store.team import usage_of

KEEP_S = 180 * 86_400.0
DELETE_AT_ONCE = 500  # so that no transaction is long

_ACCOUNT = tuple(field.name for field in fields(Account))
_SESSION = tuple(field.name for field in fields(SessionRecord))
_OWNER = ("scope", "person", "team")
# Of a request, in the order of the fields of Metric and Account.
_METRIC = (
    *("id", "session_id", "at", "provider", "model", "api", "tokens_estimated", "tokens_saved", "reasons"),
    *("max_context", "status", "outcome", "finish", "input_tokens", "cached_tokens", "output_tokens", "cost_usd"),
    *("first_token_ms", "duration_ms", "system_tokens", "memory_tokens", "tools_tokens", "chat_tokens"),
    *_ACCOUNT,
    *_OWNER,
)
_OF_SESSIONS = ("metrics", "compression_log", "memory_segments")

Row = tuple[object, ...]


class PostgresSessions:
    """Requests stay for half a year; a session stays with its requests."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def write(self, sessions: Sequence[SessionRecord], metrics: Sequence[Metric]) -> None:
        async def work(connection: Connection, moment: Moment) -> None:
            await _delete_old(connection, moment.earliest)
            # Locked in one order on every server, so that no two of them wait for each other.
            ids = {*(_text(session.id) for session in sessions), *(_text(metric.session) for metric in metrics)}
            await connection.execute("SELECT 1 FROM sessions WHERE id = ANY(%s) ORDER BY id FOR UPDATE", (list(ids),))
            for session in sorted(sessions, key=lambda session: session.id):
                await _open_session(connection, session)
            new = [metric for metric in metrics if await _add_metric(connection, metric)]
            await add_usage(connection, usage_of(new))

        await self._database.run(work)

    async def get(self, id: str) -> SessionRecord | None:
        found = await self._sessions("WHERE id = %s", (_text(id),))
        return found[0] if found else None

    async def newest(self, limit: int, after: Cursor | None = None, scopes: Scopes = None) -> Sequence[SessionRecord]:
        theirs, own = _of(scopes)
        if after is None:
            return await self._sessions(f"WHERE {theirs} ORDER BY last_used DESC, id DESC LIMIT %s", (*own, limit))
        where = f"WHERE {theirs} AND (last_used, id) < (%s, %s) ORDER BY last_used DESC, id DESC LIMIT %s"
        return await self._sessions(where, (*own, *after, limit))

    async def newest_ids(self, limit: int) -> Sequence[str]:
        rows = await self._rows("SELECT id FROM sessions ORDER BY last_used DESC, id DESC LIMIT %s", (limit,))
        return [str(id) for (id,) in rows]

    async def search(self, words: str, limit: int, scopes: Scopes = None) -> Sequence[SessionRecord]:
        theirs, own = _of(scopes)
        pattern = "%" + "".join(f"\\{each}" if each in "%_\\" else each for each in _text(words)) + "%"
        where = f"""WHERE {theirs} AND concat_ws(E'\\x01', title, name, id, model, provider) ILIKE %s
          ORDER BY last_used DESC, id DESC LIMIT %s"""
        return await self._sessions(where, (*own, pattern, limit))

    async def count(self, scopes: Scopes = None) -> int:
        theirs, own = _of(scopes)
        return int(str((await self._rows(f"SELECT count(*) FROM sessions WHERE {theirs}", own))[0][0]))  # noqa: S608

    async def totals(self, scopes: Scopes = None) -> SessionTotals:
        theirs, own = _of(scopes)
        rows = await self._rows(
            f"""SELECT count(*), coalesce(sum(requests), 0)::bigint, coalesce(sum(input_tokens), 0)::bigint,
                 coalesce(sum(cached_tokens), 0)::bigint, coalesce(sum(output_tokens), 0)::bigint,
                 coalesce(sum(tokens_saved), 0)::bigint, sum(cost_usd), sum(cost_before_usd),
                 coalesce(sum(net_saved_tokens), 0)::bigint, sum(net_saved_usd) FROM sessions
               WHERE {theirs}""",  # noqa: S608 - a fixed text
            own,
        )
        return SessionTotals(*rows[0])  # type: ignore[arg-type]

    async def memory_totals(self, scopes: Scopes = None) -> MemoryTotals:
        theirs, own = _of(scopes)
        rows = await self._rows(
            f"""SELECT count(*), count(nullif(memory_tokens, 0)),
                 count(DISTINCT CASE WHEN memory_tokens > 0 THEN session_id END),
                 coalesce(sum(system_tokens), 0)::bigint, coalesce(sum(memory_tokens), 0)::bigint,
                 coalesce(sum(tools_tokens), 0)::bigint, coalesce(sum(chat_tokens), 0)::bigint
               FROM metrics WHERE memory_tokens IS NOT NULL AND {theirs}""",  # noqa: S608 - a fixed text
            own,
        )
        kinds = await self._rows(
            f"""SELECT kind, count(*), sum(segments)::bigint, sum(tokens)::bigint FROM memory_segments
               WHERE seq IN (SELECT max(seq) FROM memory_segments GROUP BY session_id, kind)
                 AND session_id IN (SELECT id FROM sessions WHERE {theirs})
               GROUP BY kind ORDER BY sum(tokens) DESC, kind""",  # noqa: S608 - a fixed text
            own,
        )
        totals = MemoryTotals(*rows[0])  # type: ignore[arg-type]
        return replace(totals, kinds=tuple(MemoryKind(*kind) for kind in kinds))  # type: ignore[arg-type]

    async def newest_context(self, session: str) -> tuple[JsonValue, JsonValue]:
        rows = await self._rows("SELECT memory_context, layout FROM sessions WHERE id = %s", (_text(session),))
        memory, layout = rows[0] if rows else (None, None)
        return _value(memory), _value(layout)

    async def rename(self, id: str, title: str) -> bool:
        return bool(await self._rows("UPDATE sessions SET title = %s WHERE id = %s RETURNING 1", (_text(title), id)))

    async def delete(self, ids: Sequence[str]) -> int:
        return await self._delete("= ANY(%s)", (list(ids),))

    async def delete_all(self, scopes: Scopes = None) -> int:
        theirs, own = _of(scopes)
        return await self._delete(f"IN (SELECT id FROM sessions WHERE {theirs})", own)  # noqa: S608 - a fixed text

    async def newest_metric(self, session: str) -> Metric | None:
        found = await self._metrics("WHERE session_id = %s ORDER BY seq DESC LIMIT 1", (session,))
        return found[0][1] if found else None

    async def newest_metrics(self, limit: int, session: str | None = None, scopes: Scopes = None) -> Sequence[Metric]:
        theirs, own = _of(scopes, session)
        found = await self._metrics(f"WHERE {theirs} ORDER BY seq DESC LIMIT %s", (*own, limit))
        return [metric for _, metric in reversed(found)]

    async def metrics(
        self, session: str | None, after: int, limit: int, scopes: Scopes = None
    ) -> Sequence[tuple[int, Metric]]:
        theirs, own = _of(scopes, session)
        return await self._metrics(f"WHERE {theirs} AND seq > %s ORDER BY seq LIMIT %s", (*own, after, limit))

    async def accounts(self, since: float, session: str | None = None, scopes: Scopes = None) -> Sequence[SavingsLine]:
        """The session that was used last comes first."""
        theirs, own = _of(scopes, session, "metrics.")
        counted = "coalesce(metrics.input_tokens, tokens_estimated)"
        sums = ", ".join(
            f"coalesce(sum({column}), 0)::bigint"
            for column in (
                *(f"coalesce(tokens_before, {counted})", f"coalesce(tokens_after, {counted})"),
                *("metrics.cached_tokens", "cache_lost_tokens", "recoveries", "extra_turns", "recovery_tokens"),
                *("summaries", "summary_tokens", "metrics.net_saved_tokens"),
            )
        )
        rows = await self._rows(
            f"""SELECT session_id, max(coalesce(nullif(sessions.title, ''), sessions.name)), metrics.model, count(*),
                 {sums}, sum(coalesce(metrics.cost_before_usd, metrics.cost_usd)), sum(metrics.cost_usd),
                 sum(metrics.net_saved_usd)
               FROM metrics JOIN sessions ON sessions.id = metrics.session_id
               WHERE at >= %s AND {theirs}
               GROUP BY session_id, metrics.model ORDER BY max(at) DESC, session_id, metrics.model""",  # noqa: S608
            (since, *own),
        )
        why = await self._reasons(since, session)
        return [SavingsLine(why.get((row[0], row[2]), {}), *row) for row in rows]  # type: ignore[arg-type]

    async def _reasons(self, since: float, session: str | None) -> dict[Row, Counter[str]]:
        """Return how many requests of a session and model gave each reason."""
        rows = await self._rows(
            """SELECT session_id, model, reasons, count(*) FROM metrics
               WHERE at >= %s AND (%s::text IS NULL OR session_id = %s) AND reasons <> ''
               GROUP BY session_id, model, reasons""",
            (since, session, session),
        )
        counted: dict[Row, Counter[str]] = {}
        for id, model, reasons, requests in rows:
            for reason in str(reasons).split():
                counted.setdefault((id, model), Counter())[reason] += int(str(requests))
        return counted

    async def _delete(self, which: str, values: Row) -> int:
        async def work(connection: Connection, moment: Moment) -> int:
            for table in _OF_SESSIONS:
                await connection.execute(f"DELETE FROM {table} WHERE session_id {which}".encode(), values)  # noqa: S608
            return (await connection.execute(f"DELETE FROM sessions WHERE id {which}".encode(), values)).rowcount  # noqa: S608

        return await self._database.run(work)

    async def _sessions(self, which: str, values: Row) -> list[SessionRecord]:
        rows = await self._rows(f"SELECT {', '.join(_SESSION)} FROM sessions {which}", values)  # noqa: S608
        return [SessionRecord(*row) for row in rows]  # type: ignore[arg-type]

    async def _metrics(self, which: str, values: Row) -> list[tuple[int, Metric]]:
        rows = await self._rows(f"SELECT seq, {', '.join(_METRIC)} FROM metrics {which}", values)  # noqa: S608
        return [(int(str(seq)), _metric(row)) for seq, *row in rows]

    async def _rows(self, statement: str, values: Row = ()) -> list[Row]:
        async def work(connection: Connection, moment: Moment) -> list[Row]:
            return await (await connection.execute(statement.encode(), values or None)).fetchall()

        return await self._database.read(work)


def _of(scopes: Scopes, session: str | None = None, table: str = "") -> tuple[str, Row]:
    """Return the condition that rows are those of these scopes and this session, and its values."""
    theirs, own = ("TRUE", ()) if scopes is None else (f"{table}scope = ANY(%s)", (list(scopes),))
    return (theirs, own) if session is None else (f"{theirs} AND session_id = %s", (*own, _text(session)))


async def _open_session(connection: Connection, session: SessionRecord) -> None:
    """Write a session down. One that is known keeps what it has, and gets what it lacks."""
    kept = ("directory", "parent", "name", "title", "provider", "model")
    lacking = ", ".join(
        f"{name} = CASE sessions.{name} WHEN '' THEN excluded.{name} ELSE sessions.{name} END" for name in kept
    )
    await connection.execute(
        f"""INSERT INTO sessions (id, name, title, provider, model, created, last_used, parent, directory, scope,
             person, team) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
           ON CONFLICT (id) DO UPDATE SET {lacking}, created = least(sessions.created, excluded.created),
             last_used = greatest(sessions.last_used, excluded.last_used)""".encode(),  # noqa: S608 - fixed names
        (
            *map(_text, (session.id, session.name, session.title, session.provider, session.model)),
            *(session.created, session.last_used),
            *map(_text, (session.parent, session.directory, session.scope, session.person, session.team)),
        ),
    )


async def _add_metric(connection: Connection, metric: Metric) -> bool:
    """Write a request down and add it to its session; return False if that was done before."""
    context, account = metric.context, metric.account
    row = (
        *(metric.id, metric.session, metric.at, metric.provider, metric.model, metric.api),
        *(metric.tokens_estimated, metric.tokens_saved, " ".join(metric.reasons), metric.max_context),
        *(metric.status, metric.outcome, metric.finish),
        *(metric.input_tokens, metric.cached_tokens, metric.output_tokens, metric.cost_usd),
        *(metric.first_token_ms, metric.duration_ms),
        *((context.system, context.memory, context.tools, context.chat) if context else (None,) * 4),
        *(astuple(account) if account else (None,) * len(_ACCOUNT)),
        *(metric.scope, metric.person, metric.team),
    )
    values = ", ".join(["%s"] * len(_METRIC))
    written = await connection.execute(
        f"INSERT INTO metrics ({', '.join(_METRIC)}) VALUES ({values}) ON CONFLICT (id) DO NOTHING".encode(),  # noqa: S608
        [_text(value) if isinstance(value, str) else value for value in row],
    )
    if written.rowcount:
        await _add_to_session(connection, metric)
        await _add_memory(connection, metric)
    return bool(written.rowcount)


async def _add_to_session(connection: Connection, metric: Metric) -> None:
    """Add a request to the sums of its session, which begins again if it was deleted meanwhile."""
    account = metric.account
    saved = (account.cost_before_usd, account.net_saved_tokens, account.net_saved_usd) if account else None
    sums = ("requests", "input_tokens", "cached_tokens", "output_tokens", "tokens_saved", "net_saved_tokens")
    money = ("cost_usd", "cost_before_usd", "net_saved_usd")
    added = [f"{name} = sessions.{name} + excluded.{name}" for name in sums]
    added += [
        f"{name} = coalesce(sessions.{name} + excluded.{name}, sessions.{name}, excluded.{name})" for name in money
    ]
    before_usd, net_tokens, net_usd = saved or (metric.cost_usd, 0, None)
    await connection.execute(
        f"""INSERT INTO sessions (id, name, title, provider, model, created, last_used, {", ".join((*sums, *money))},
             scope, person, team)
           VALUES (%s, '', '', %s, %s, %s, %s, 1, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
           ON CONFLICT (id) DO UPDATE SET provider = excluded.provider, model = excluded.model,
             last_used = greatest(sessions.last_used, excluded.last_used), {", ".join(added)}""".encode(),  # noqa: S608
        (
            *map(_text, (metric.session, metric.provider, metric.model)),
            *(metric.at, metric.at, metric.input_tokens or 0, metric.cached_tokens or 0, metric.output_tokens or 0),
            *(metric.tokens_saved, net_tokens, metric.cost_usd, before_usd, net_usd),
            *map(_text, (metric.scope, metric.person, metric.team)),
        ),
    )


async def _add_memory(connection: Connection, metric: Metric) -> None:
    """Write down the layout of a session's newest request, and the memory in it where that has changed."""
    context = metric.context
    if context is None or context.layout is None:
        return
    memory, layout = json.encode(context.memory_to_json()).decode(), json.encode(context.layout.to_json()).decode()
    await connection.execute(
        "UPDATE sessions SET memory_context = %s, layout = %s WHERE id = %s", (memory, layout, _text(metric.session))
    )
    for found in context.layout.found:
        same = (found.count, found.tokens, _text(found.preview))
        place = (_text(metric.session), found.kind)
        await connection.execute(
            """INSERT INTO memory_segments (session_id, kind, segments, tokens, preview, request_id, at)
               SELECT %s, %s, %s, %s, %s, %s, %s WHERE NOT EXISTS (
                 SELECT 1 FROM memory_segments WHERE segments = %s AND tokens = %s AND preview = %s AND seq =
                   (SELECT max(seq) FROM memory_segments WHERE session_id = %s AND kind = %s))""",
            (*place, *same, metric.id, metric.at, *same, *place),
        )


async def _delete_old(connection: Connection, now: float) -> None:
    """Delete some of what is too old."""
    for table in ("metrics", "memory_segments"):
        await connection.execute(
            f"""DELETE FROM {table} WHERE seq IN (SELECT seq FROM {table} WHERE at < %s ORDER BY at LIMIT %s
                  FOR UPDATE SKIP LOCKED)""".encode(),  # noqa: S608 - two fixed names
            (now - KEEP_S, DELETE_AT_ONCE),
        )
    await connection.execute(
        """DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE last_used < %s ORDER BY last_used LIMIT %s
             FOR UPDATE SKIP LOCKED)
           AND NOT EXISTS (SELECT 1 FROM metrics WHERE session_id = sessions.id)""",
        (now - KEEP_S, DELETE_AT_ONCE),
    )


def _metric(row: list[object]) -> Metric:
    """Return the request of a row; the columns are in the order of the fields."""
    row, owner = row[: -len(_OWNER)], row[-len(_OWNER) :]
    *counted, system, memory, tools, chat = row[: -len(_ACCOUNT)]
    reasons = tuple(str(counted[8]).split())
    context = None if memory is None else Context(system, memory, tools, chat)  # type: ignore[arg-type]
    columns = row[-len(_ACCOUNT) :]
    account = None if columns[0] is None else Account(*columns)  # type: ignore[arg-type]
    return Metric(*counted[:8], reasons, *counted[9:], context, account, *owner)  # type: ignore[arg-type, call-arg]


def _text(words: str) -> str:
    """Return what a TEXT column takes: no NUL, no half of a surrogate pair."""
    return words.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _value(text: object) -> JsonValue:
    try:
        return json.decode(text.encode()) if isinstance(text, str) else None
    except ParseError:  # another program wrote it
        return None

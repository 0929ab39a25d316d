"""Sessions in SQLite: what their requests counted, held in memory, saved and cost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, fields, replace
from sqlite3 import Connection

from kimi_proxy.core import json
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.accounting import Account, SavingsLine
from kimi_proxy.features.context import Context
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store.clock import Moment
from kimi_proxy.services.store.protocols import (
    Cursor,
    MemoryKind,
    MemoryTotals,
    Scopes,
    SessionRecord,
    SessionTotals,
)
from kimi_proxy.services.store.sqlite.database import Tables, reads, writes
from kimi_proxy.services.store.sqlite.team import add_usage
from kimi_proxy.services.store.team import usage_of

KEEP_S = 180 * 86_400.0
KEEP_METRICS = 200_000  # about 60 MB
DELETE_AT_ONCE = 500  # so that no transaction is long

# Of a request, in the order of the fields of Metric and Account.
_ACCOUNT = tuple(field.name for field in fields(Account))
_OWNER = ("scope", "person", "team")
_METRIC = (
    *("id", "session_id", "at", "provider", "model", "api", "tokens_estimated", "tokens_saved", "reasons"),
    *("max_context", "status", "outcome", "finish", "input_tokens", "cached_tokens", "output_tokens", "cost_usd"),
    *("first_token_ms", "duration_ms", "system_tokens", "memory_tokens", "tools_tokens", "chat_tokens"),
    *_ACCOUNT,
    *_OWNER,
)


class SqliteSessions(Tables):
    """Requests stay for half a year, and not more than KEEP_METRICS of them; a session stays with its requests."""

    async def write(self, sessions: Sequence[SessionRecord], metrics: Sequence[Metric]) -> None:
        def work(connection: Connection, moment: Moment) -> None:
            _delete_old(connection, moment.earliest)
            for session in sessions:
                _open_session(connection, session)
            add_usage(connection, usage_of([metric for metric in metrics if _add_metric(connection, metric)]))

        await self.database.write(work)

    @reads
    def get(self, connection: Connection, id: str) -> SessionRecord | None:
        found = _sessions(connection, "WHERE id = ?", (id,))
        return found[0] if found else None

    @reads
    def newest(
        self, connection: Connection, limit: int, after: Cursor | None = None, scopes: Scopes = None
    ) -> Sequence[SessionRecord]:
        theirs, own = _of(scopes)
        if after is None:
            return _sessions(connection, f"WHERE {theirs} ORDER BY last_used DESC, id DESC LIMIT ?", (*own, limit))
        where = f"WHERE {theirs} AND (last_used, id) < (?, ?) ORDER BY last_used DESC, id DESC LIMIT ?"
        return _sessions(connection, where, (*own, *after, limit))

    @reads
    def newest_ids(self, connection: Connection, limit: int) -> Sequence[str]:
        rows = connection.execute("SELECT id FROM sessions ORDER BY last_used DESC, id DESC LIMIT ?", (limit,))
        return [id for (id,) in rows.fetchall()]

    @reads
    def search(self, connection: Connection, words: str, limit: int, scopes: Scopes = None) -> Sequence[SessionRecord]:
        theirs, own = _of(scopes)
        pattern = "%" + "".join(f"\\{each}" if each in "%_\\" else each for each in words) + "%"
        columns = " OR ".join(f"{name} LIKE ? ESCAPE '\\'" for name in ("title", "name", "id", "model", "provider"))
        where = f"WHERE {theirs} AND ({columns}) ORDER BY last_used DESC, id DESC LIMIT ?"
        return _sessions(connection, where, (*own, *[pattern] * 5, limit))

    @reads
    def count(self, connection: Connection, scopes: Scopes = None) -> int:
        theirs, own = _of(scopes)
        (sessions,) = connection.execute(f"SELECT count(*) FROM sessions WHERE {theirs}", own).fetchone()  # noqa: S608
        return int(sessions)

    @reads
    def totals(self, connection: Connection, scopes: Scopes = None) -> SessionTotals:
        theirs, own = _of(scopes)
        row = connection.execute(
            f"""SELECT count(*), ifnull(sum(requests), 0), ifnull(sum(input_tokens), 0), ifnull(sum(cached_tokens), 0),
                 ifnull(sum(output_tokens), 0), ifnull(sum(tokens_saved), 0), sum(cost_usd),
                 sum(cost_before_usd), ifnull(sum(net_saved_tokens), 0), sum(net_saved_usd) FROM sessions
               WHERE {theirs}""",  # noqa: S608 - a fixed text
            own,
        ).fetchone()
        return SessionTotals(*row)

    @reads
    def memory_totals(self, connection: Connection, scopes: Scopes = None) -> MemoryTotals:
        theirs, own = _of(scopes)
        row = connection.execute(
            f"""SELECT count(*), count(nullif(memory_tokens, 0)),
                 count(DISTINCT CASE WHEN memory_tokens > 0 THEN session_id END), ifnull(sum(system_tokens), 0),
                 ifnull(sum(memory_tokens), 0), ifnull(sum(tools_tokens), 0), ifnull(sum(chat_tokens), 0)
               FROM metrics WHERE memory_tokens IS NOT NULL AND {theirs}""",  # noqa: S608 - a fixed text
            own,
        ).fetchone()
        kinds = connection.execute(
            f"""SELECT kind, count(*), sum(segments), sum(tokens) FROM memory_segments
               WHERE seq IN (SELECT max(seq) FROM memory_segments GROUP BY session_id, kind)
                 AND session_id IN (SELECT id FROM sessions WHERE {theirs})
               GROUP BY kind ORDER BY sum(tokens) DESC, kind""",  # noqa: S608 - a fixed text
            own,
        ).fetchall()
        return replace(MemoryTotals(*row), kinds=tuple(MemoryKind(*kind) for kind in kinds))

    @reads
    def newest_context(self, connection: Connection, session: str) -> tuple[JsonValue, JsonValue]:
        row = connection.execute("SELECT memory_context, layout FROM sessions WHERE id = ?", (session,)).fetchone()
        memory, layout = row or (None, None)
        return _value(memory), _value(layout)

    @writes
    def rename(self, connection: Connection, id: str, title: str) -> bool:
        return connection.execute("UPDATE sessions SET title = ? WHERE id = ?", (title, id)).rowcount > 0

    @writes
    def delete(self, connection: Connection, ids: Sequence[str]) -> int:
        for table in ("metrics", "compression_log", "memory_segments"):
            statement = f"DELETE FROM {table} WHERE session_id = ?"  # noqa: S608 - three fixed names
            connection.executemany(statement, [(id,) for id in ids])
        return connection.executemany("DELETE FROM sessions WHERE id = ?", [(id,) for id in ids]).rowcount

    @writes
    def delete_all(self, connection: Connection, scopes: Scopes = None) -> int:
        theirs, own = _of(scopes)
        which = "" if scopes is None else f" WHERE session_id IN (SELECT id FROM sessions WHERE {theirs})"  # noqa: S608
        for table in ("metrics", "compression_log", "memory_segments"):
            connection.execute(f"DELETE FROM {table}{which}", own)  # noqa: S608 - three fixed names
        return connection.execute(f"DELETE FROM sessions WHERE {theirs}", own).rowcount  # noqa: S608

    @reads
    def newest_metric(self, connection: Connection, session: str) -> Metric | None:
        found = _metrics(connection, "WHERE session_id = ? ORDER BY seq DESC LIMIT 1", (session,))
        return found[0][1] if found else None

    @reads
    def newest_metrics(
        self, connection: Connection, limit: int, session: str | None = None, scopes: Scopes = None
    ) -> Sequence[Metric]:
        theirs, own = _of(scopes, session)
        found = _metrics(connection, f"WHERE {theirs} ORDER BY seq DESC LIMIT ?", (*own, limit))
        return [metric for _, metric in reversed(found)]

    @reads
    def metrics(
        self, connection: Connection, session: str | None, after: int, limit: int, scopes: Scopes = None
    ) -> Sequence[tuple[int, Metric]]:
        theirs, own = _of(scopes, session)
        return _metrics(connection, f"WHERE {theirs} AND seq > ? ORDER BY seq LIMIT ?", (*own, after, limit))

    @reads
    def accounts(
        self, connection: Connection, since: float, session: str | None = None, scopes: Scopes = None
    ) -> Sequence[SavingsLine]:
        """The session that was used last comes first."""
        theirs, own = _of(scopes, session, "metrics.")
        rows = connection.execute(
            f"""SELECT session_id, max(ifnull(nullif(sessions.title, ''), sessions.name)), metrics.model, count(*),
                 sum(ifnull(tokens_before, ifnull(metrics.input_tokens, tokens_estimated))),
                 sum(ifnull(tokens_after, ifnull(metrics.input_tokens, tokens_estimated))),
                 sum(ifnull(metrics.cached_tokens, 0)), sum(ifnull(cache_lost_tokens, 0)), sum(ifnull(recoveries, 0)),
                 sum(ifnull(extra_turns, 0)), sum(ifnull(recovery_tokens, 0)), sum(ifnull(summaries, 0)),
                 sum(ifnull(summary_tokens, 0)), sum(ifnull(metrics.net_saved_tokens, 0)),
                 sum(ifnull(metrics.cost_before_usd, metrics.cost_usd)), sum(metrics.cost_usd),
                 sum(metrics.net_saved_usd)
               FROM metrics JOIN sessions ON sessions.id = metrics.session_id
               WHERE at >= ? AND {theirs}
               GROUP BY session_id, metrics.model ORDER BY max(at) DESC, session_id, metrics.model""",  # noqa: S608
            (since, *own),
        ).fetchall()
        why = _reasons(connection, since, session)
        return [SavingsLine(why.get((row[0], row[2]), {}), *row) for row in rows]


def _of(scopes: Scopes, session: str | None = None, table: str = "") -> tuple[str, tuple[str, ...]]:
    """Return the condition that rows are those of these scopes and this session, and its values."""
    theirs = "1" if scopes is None else f"{table}scope IN ({', '.join('?' * len(scopes))})"
    return (
        theirs if session is None else f"{theirs} AND session_id = ?",
        (*(scopes or ()), *(() if session is None else (session,))),
    )


def _open_session(connection: Connection, session: SessionRecord) -> None:
    """Write a session down. One that is known keeps what it has, and gets what it lacks."""
    connection.execute(
        """INSERT INTO sessions (id, name, title, provider, model, created, last_used, parent, directory, scope,
             person, team) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (id) DO UPDATE SET
             directory = CASE directory WHEN '' THEN excluded.directory ELSE directory END,
             parent = CASE parent WHEN '' THEN excluded.parent ELSE parent END,
             name = CASE name WHEN '' THEN excluded.name ELSE name END,
             title = CASE title WHEN '' THEN excluded.title ELSE title END,
             provider = CASE provider WHEN '' THEN excluded.provider ELSE provider END,
             model = CASE model WHEN '' THEN excluded.model ELSE model END,
             created = min(created, excluded.created), last_used = max(last_used, excluded.last_used)""",
        (
            *(session.id, session.name, session.title, session.provider, session.model),
            *(session.created, session.last_used, session.parent, session.directory),
            *(session.scope, session.person, session.team),
        ),
    )


def _add_metric(connection: Connection, metric: Metric) -> bool:
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
    written = connection.execute(
        # The names of the columns are in this file and in Account.
        f"INSERT INTO metrics ({', '.join(_METRIC)}) VALUES ({', '.join('?' * len(_METRIC))}) "  # noqa: S608
        "ON CONFLICT (id) DO NOTHING",
        row,
    )
    if written.rowcount:
        _add_to_session(connection, metric)
        _add_memory(connection, metric)
    return bool(written.rowcount)


def _add_to_session(connection: Connection, metric: Metric) -> None:
    """Add a request to the sums of its session, which begins again if it was deleted meanwhile."""
    account = metric.account
    saved = (account.cost_before_usd, account.net_saved_tokens, account.net_saved_usd) if account else None
    connection.execute(
        """INSERT INTO sessions (id, name, title, provider, model, created, last_used, requests, input_tokens,
             cached_tokens, output_tokens, tokens_saved, cost_usd, cost_before_usd, net_saved_tokens, net_saved_usd,
             scope, person, team)
           VALUES (?1, '', '', ?2, ?3, ?4, ?4, 1, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
           ON CONFLICT (id) DO UPDATE SET provider = ?2, model = ?3, last_used = max(last_used, ?4),
             requests = requests + 1, input_tokens = input_tokens + ?5, cached_tokens = cached_tokens + ?6,
             output_tokens = output_tokens + ?7, tokens_saved = tokens_saved + ?8,
             cost_usd = CASE WHEN ?9 IS NULL THEN cost_usd ELSE ifnull(cost_usd, 0) + ?9 END,
             cost_before_usd = CASE WHEN ?10 IS NULL THEN cost_before_usd ELSE ifnull(cost_before_usd, 0) + ?10 END,
             net_saved_tokens = net_saved_tokens + ?11,
             net_saved_usd = CASE WHEN ?12 IS NULL THEN net_saved_usd ELSE ifnull(net_saved_usd, 0) + ?12 END""",
        (
            *(metric.session, metric.provider, metric.model, metric.at),
            *(metric.input_tokens or 0, metric.cached_tokens or 0, metric.output_tokens or 0),
            *(metric.tokens_saved, metric.cost_usd),
            *(saved or (metric.cost_usd, 0, None)),
            *(metric.scope, metric.person, metric.team),
        ),
    )


def _add_memory(connection: Connection, metric: Metric) -> None:
    """Write down the layout of a session's newest request, and the memory in it where that has changed."""
    context = metric.context
    if context is None or context.layout is None:
        return
    connection.execute(
        "UPDATE sessions SET memory_context = ?, layout = ? WHERE id = ?",
        (
            *(json.encode(context.memory_to_json()).decode(), json.encode(context.layout.to_json()).decode()),
            metric.session,
        ),
    )
    for found in context.layout.found:
        connection.execute(
            """INSERT INTO memory_segments (session_id, kind, segments, tokens, preview, request_id, at)
               SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE NOT EXISTS (
                 SELECT 1 FROM memory_segments WHERE segments = ?3 AND tokens = ?4 AND preview = ?5 AND seq =
                   (SELECT max(seq) FROM memory_segments WHERE session_id = ?1 AND kind = ?2))""",
            (metric.session, found.kind, found.count, found.tokens, found.preview, metric.id, metric.at),
        )


def _delete_old(connection: Connection, now: float) -> None:
    """Delete some of what is too old or too much; the oldest have the lowest numbers."""
    before = now - KEEP_S
    connection.execute(
        """DELETE FROM metrics WHERE seq IN (SELECT seq FROM metrics ORDER BY seq LIMIT ?)
           AND (at < ? OR seq <= (SELECT max(seq) FROM metrics) - ?)""",
        (DELETE_AT_ONCE, before, KEEP_METRICS),
    )
    connection.execute(
        """DELETE FROM memory_segments WHERE seq IN (SELECT seq FROM memory_segments ORDER BY seq LIMIT ?)
           AND at < ?""",
        (DELETE_AT_ONCE, before),
    )
    connection.execute(
        """DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE last_used < ? ORDER BY last_used LIMIT ?)
           AND NOT EXISTS (SELECT 1 FROM metrics WHERE session_id = sessions.id)""",
        (before, DELETE_AT_ONCE),
    )


def _sessions(connection: Connection, which: str, values: Sequence[object]) -> list[SessionRecord]:
    rows = connection.execute(
        # `which` is one of the texts above.
        """SELECT id, name, title, provider, model, created, last_used, requests, input_tokens, cached_tokens,
             output_tokens, tokens_saved, cost_usd, cost_before_usd, net_saved_tokens, net_saved_usd, parent, directory,
             scope, person, team
           FROM sessions """  # noqa: S608
        + which,
        values,
    )
    return [SessionRecord(*row) for row in rows.fetchall()]


def _metrics(connection: Connection, which: str, values: Sequence[object]) -> list[tuple[int, Metric]]:
    # `which` is one of the texts above.
    rows = connection.execute(f"SELECT seq, {', '.join(_METRIC)} FROM metrics {which}", values)  # noqa: S608
    return [(seq, _metric(row)) for seq, *row in rows.fetchall()]


def _metric(row: list[object]) -> Metric:
    """Return the request of a row; the columns are in the order of the fields."""
    row, owner = row[: -len(_OWNER)], row[-len(_OWNER) :]
    *counted, system, memory, tools, chat = row[: -len(_ACCOUNT)]
    reasons = tuple(str(counted[8]).split())
    context = None if memory is None else Context(system, memory, tools, chat)  # type: ignore[arg-type]
    columns = row[-len(_ACCOUNT) :]
    account = None if columns[0] is None else Account(*columns)  # type: ignore[arg-type]
    return Metric(*counted[:8], reasons, *counted[9:], context, account, *owner)  # type: ignore[arg-type, call-arg]


def _reasons(connection: Connection, since: float, session: str | None) -> dict[tuple[str, str], Counter[str]]:
    """Return how many requests of a session and model gave each reason."""
    rows = connection.execute(
        """SELECT session_id, model, reasons, count(*) FROM metrics
           WHERE at >= ?1 AND (?2 IS NULL OR session_id = ?2) AND reasons <> '' GROUP BY session_id, model, reasons""",
        (since, session),
    )
    counted: dict[tuple[str, str], Counter[str]] = {}
    for id, model, reasons, requests in rows.fetchall():
        for reason in str(reasons).split():
            counted.setdefault((id, model), Counter())[reason] += requests
    return counted


def _value(text: str | None) -> JsonValue:
    try:
        return None if text is None else json.decode(text.encode())
    except ParseError:  # another program wrote it
        return None

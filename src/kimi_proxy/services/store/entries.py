"""Every statement about sessions and what their requests came to. Callers hold the transaction."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kimi_proxy.features.context import Context
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store import accounts, memories

# Of the sessions that a page starts after, the last one's last use and id.
Cursor = tuple[float, str]

KEEP_S = 180 * 86_400.0
KEEP_METRICS = 200_000  # about 60 MB
FORGET_AT_ONCE = 500  # so that no transaction is long

# Of a request, in the order of the fields.
_COLUMNS = (
    *("id", "session_id", "at", "provider", "model", "api", "tokens_estimated", "tokens_saved", "reasons"),
    *("max_context", "status", "outcome", "finish", "input_tokens", "cached_tokens", "output_tokens", "cost_usd"),
    *("first_token_ms", "duration_ms", "system_tokens", "memory_tokens", "tools_tokens", "chat_tokens"),
    *accounts.COLUMNS,
)


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session, and the sum of its requests; counts are the providers', savings are estimated."""

    id: str
    name: str
    title: str
    provider: str
    model: str
    created: float
    last_used: float
    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    tokens_saved: int = 0
    cost_usd: float | None = None  # as far as prices are known
    cost_before_usd: float | None = None
    net_saved_tokens: int = 0
    net_saved_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Sums:
    """What all sessions come to."""

    sessions: int
    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    tokens_saved: int
    cost_usd: float | None  # as far as prices are known
    cost_before_usd: float | None
    net_saved_tokens: int
    net_saved_usd: float | None


def open_session(connection: sqlite3.Connection, session: SessionRecord) -> None:
    """Write a session down. One that is known keeps what it has, and gets what it lacks."""
    connection.execute(
        """INSERT INTO sessions (id, name, title, provider, model, created, last_used) VALUES (?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (id) DO UPDATE SET
             name = CASE name WHEN '' THEN excluded.name ELSE name END,
             title = CASE title WHEN '' THEN excluded.title ELSE title END,
             provider = CASE provider WHEN '' THEN excluded.provider ELSE provider END,
             model = CASE model WHEN '' THEN excluded.model ELSE model END,
             created = min(created, excluded.created), last_used = max(last_used, excluded.last_used)""",
        (session.id, session.name, session.title, session.provider, session.model, session.created, session.last_used),
    )


def add(connection: sqlite3.Connection, metric: Metric) -> None:
    """Write a request down, once, and add it to its session."""
    row = (
        *(metric.id, metric.session, metric.at, metric.provider, metric.model, metric.api),
        *(metric.tokens_estimated, metric.tokens_saved, " ".join(metric.reasons), metric.max_context),
        *(metric.status, metric.outcome, metric.finish),
        *(metric.input_tokens, metric.cached_tokens, metric.output_tokens, metric.cost_usd),
        *(metric.first_token_ms, metric.duration_ms),
        *((made.system, made.memory, made.tools, made.chat) if (made := metric.context) else (None,) * 4),
        *accounts.values(metric.account),
    )
    written = connection.execute(
        # The names of columns are in this file and the next.
        f"INSERT INTO metrics ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "  # noqa: S608
        "ON CONFLICT (id) DO NOTHING",
        row,
    )
    if written.rowcount:
        _add_to_session(connection, metric)
        memories.add(connection, metric)


def _add_to_session(connection: sqlite3.Connection, metric: Metric) -> None:
    """Somebody may have deleted it meanwhile: then it begins again."""
    told = metric.account
    connection.execute(
        """INSERT INTO sessions (id, name, title, provider, model, created, last_used, requests, input_tokens,
             cached_tokens, output_tokens, tokens_saved, cost_usd, cost_before_usd, net_saved_tokens, net_saved_usd)
           VALUES (?1, '', '', ?2, ?3, ?4, ?4, 1, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
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
            *(
                (told.cost_before_usd, told.net_saved_tokens, told.net_saved_usd)
                if told
                else (metric.cost_usd, 0, None)
            ),
        ),
    )


def session(connection: sqlite3.Connection, id: str) -> SessionRecord | None:
    found = _sessions(connection, "WHERE id = ?", (id,))
    return found[0] if found else None


def newest_sessions(connection: sqlite3.Connection, limit: int, after: Cursor | None = None) -> list[SessionRecord]:
    """Those that were used last, first."""
    if after is None:
        return _sessions(connection, "ORDER BY last_used DESC, id DESC LIMIT ?", (limit,))
    where = "WHERE (last_used, id) < (?, ?) ORDER BY last_used DESC, id DESC LIMIT ?"
    return _sessions(connection, where, (*after, limit))


def matching_sessions(connection: sqlite3.Connection, words: str, limit: int) -> list[SessionRecord]:
    """Those whose title, name, id, model or provider holds `words`; the last used first."""
    pattern = "%" + "".join(f"\\{each}" if each in "%_\\" else each for each in words) + "%"
    where = """WHERE title LIKE ?1 ESCAPE '\\' OR name LIKE ?1 ESCAPE '\\' OR id LIKE ?1 ESCAPE '\\'
      OR model LIKE ?1 ESCAPE '\\' OR provider LIKE ?1 ESCAPE '\\' ORDER BY last_used DESC, id DESC LIMIT ?2"""
    return _sessions(connection, where, (pattern, limit))


def newest_ids(connection: sqlite3.Connection, limit: int) -> list[str]:
    rows = connection.execute("SELECT id FROM sessions ORDER BY last_used DESC, id DESC LIMIT ?", (limit,))
    return [id for (id,) in rows.fetchall()]


def count_sessions(connection: sqlite3.Connection) -> int:
    (sessions,) = connection.execute("SELECT count(*) FROM sessions").fetchone()
    return int(sessions)


def sums(connection: sqlite3.Connection) -> Sums:
    row = connection.execute(
        """SELECT count(*), ifnull(sum(requests), 0), ifnull(sum(input_tokens), 0), ifnull(sum(cached_tokens), 0),
             ifnull(sum(output_tokens), 0), ifnull(sum(tokens_saved), 0), sum(cost_usd),
             sum(cost_before_usd), ifnull(sum(net_saved_tokens), 0), sum(net_saved_usd) FROM sessions"""
    ).fetchone()
    return Sums(*row)


def rename(connection: sqlite3.Connection, id: str, title: str) -> bool:
    """False if there is no such session."""
    return connection.execute("UPDATE sessions SET title = ? WHERE id = ?", (title, id)).rowcount > 0


def delete(connection: sqlite3.Connection, ids: Iterable[str]) -> int:
    """How many of these sessions there were; their requests go with them."""
    gone = 0
    for id in ids:
        connection.execute("DELETE FROM metrics WHERE session_id = ?", (id,))
        connection.execute("DELETE FROM compression_log WHERE session_id = ?", (id,))
        memories.delete(connection, id)
        gone += connection.execute("DELETE FROM sessions WHERE id = ?", (id,)).rowcount
    return gone


def delete_all(connection: sqlite3.Connection) -> int:
    connection.execute("DELETE FROM metrics")
    connection.execute("DELETE FROM compression_log")
    memories.delete(connection)
    return connection.execute("DELETE FROM sessions").rowcount


def metrics(connection: sqlite3.Connection, session: str | None, after: int, limit: int) -> list[tuple[int, Metric]]:
    """Requests in the order in which they were written down, each with its place."""
    if session is None:
        return _metrics(connection, "WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit))
    return _metrics(connection, "WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?", (session, after, limit))


def newest_metric(connection: sqlite3.Connection, session: str) -> Metric | None:
    found = _metrics(connection, "WHERE session_id = ? ORDER BY seq DESC LIMIT 1", (session,))
    return found[0][1] if found else None


def newest_metrics(connection: sqlite3.Connection, limit: int, session: str | None = None) -> list[Metric]:
    """The newest last."""
    if session is None:
        found = _metrics(connection, "ORDER BY seq DESC LIMIT ?", (limit,))
    else:
        found = _metrics(connection, "WHERE session_id = ? ORDER BY seq DESC LIMIT ?", (session, limit))
    return [metric for _, metric in reversed(found)]


def forget_old(connection: sqlite3.Connection, now: float) -> None:
    """Let some of what is too old or too much go; the oldest have the lowest numbers."""
    connection.execute(
        """DELETE FROM metrics WHERE seq IN (SELECT seq FROM metrics ORDER BY seq LIMIT ?)
           AND (at < ? OR seq <= (SELECT max(seq) FROM metrics) - ?)""",
        (FORGET_AT_ONCE, now - KEEP_S, KEEP_METRICS),
    )
    memories.forget_old(connection, now - KEEP_S)
    connection.execute(
        """DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE last_used < ? ORDER BY last_used LIMIT ?)
           AND NOT EXISTS (SELECT 1 FROM metrics WHERE session_id = sessions.id)""",
        (now - KEEP_S, FORGET_AT_ONCE),
    )


def _sessions(connection: sqlite3.Connection, which: str, values: Sequence[object]) -> list[SessionRecord]:
    rows = connection.execute(
        # `which` is one of the texts above.
        """SELECT id, name, title, provider, model, created, last_used, requests, input_tokens, cached_tokens,
             output_tokens, tokens_saved, cost_usd, cost_before_usd, net_saved_tokens, net_saved_usd FROM sessions """  # noqa: S608
        + which,
        values,
    )
    return [SessionRecord(*row) for row in rows.fetchall()]


def _metrics(connection: sqlite3.Connection, which: str, values: Sequence[object]) -> list[tuple[int, Metric]]:
    # `which` is one of the texts above.
    rows = connection.execute(f"SELECT seq, {', '.join(_COLUMNS)} FROM metrics {which}", values)  # noqa: S608
    return [(seq, _metric(row)) for seq, *row in rows.fetchall()]


def _metric(row: list[object]) -> Metric:
    """The columns are in the order of the fields."""
    told, account = row[: -len(accounts.COLUMNS)], row[-len(accounts.COLUMNS) :]
    *told, system, memory, tools, chat = told
    reasons = tuple(str(told[8]).split())
    context = None if memory is None else Context(system, memory, tools, chat)  # type: ignore[arg-type]
    return Metric(*told[:8], reasons, *told[9:], context, accounts.read(account))  # type: ignore[arg-type, call-arg]

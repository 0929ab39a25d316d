"""Every statement about sessions and what their requests came to. Callers hold the transaction."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Protocol, TypeVar

from kimi_proxy.core import json
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.accounting import Account, SavingsLine
from kimi_proxy.features.context import Context, layout_told, memory_told
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store.sqlite.database import Moment

FORGET_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class MemoryKind:
    """The memory of one kind, by the newest request of each session that had some."""

    kind: str
    sessions: int
    segments: int
    tokens: int


@dataclass(frozen=True, slots=True)
class MemorySums:
    """What all requests that were weighed come to."""

    requests: int
    with_memory: int
    sessions: int  # that had memory
    system_tokens: int
    memory_tokens: int
    tools_tokens: int
    chat_tokens: int
    kinds: tuple[MemoryKind, ...] = ()


def add_memories(connection: sqlite3.Connection, metric: Metric) -> None:
    """Note how the newest request of a session lies, and the memory in it where that has changed."""
    context = metric.context
    if context is None or context.layout is None:
        return
    connection.execute(
        "UPDATE sessions SET memory_context = ?, layout = ? WHERE id = ?",
        (_json(memory_told(context)), _json(layout_told(context.layout)), metric.session),
    )
    for found in context.layout.found:
        values = (metric.session, found.kind, found.count, found.tokens, found.preview)
        connection.execute(
            """INSERT INTO memory_segments (session_id, kind, segments, tokens, preview, request_id, at)
               SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE NOT EXISTS (
                 SELECT 1 FROM memory_segments WHERE segments = ?3 AND tokens = ?4 AND preview = ?5 AND seq =
                   (SELECT max(seq) FROM memory_segments WHERE session_id = ?1 AND kind = ?2))""",
            (*values, metric.id, metric.at),
        )


def newest(connection: sqlite3.Connection, session: str) -> tuple[JsonValue, JsonValue]:
    """The memory of a session's newest request, and how that request lies in its window."""
    row = connection.execute("SELECT memory_context, layout FROM sessions WHERE id = ?", (session,)).fetchone()
    memory, layout = row or (None, None)
    return _value(memory), _value(layout)


def memory_sums(connection: sqlite3.Connection) -> MemorySums:
    row = connection.execute(
        """SELECT count(*), count(nullif(memory_tokens, 0)),
             count(DISTINCT CASE WHEN memory_tokens > 0 THEN session_id END), ifnull(sum(system_tokens), 0),
             ifnull(sum(memory_tokens), 0), ifnull(sum(tools_tokens), 0), ifnull(sum(chat_tokens), 0)
           FROM memory_metrics"""
    ).fetchone()
    kinds = connection.execute(
        """SELECT kind, count(*), sum(segments), sum(tokens) FROM memory_segments
           WHERE seq IN (SELECT max(seq) FROM memory_segments GROUP BY session_id, kind)
           GROUP BY kind ORDER BY sum(tokens) DESC, kind"""
    ).fetchall()
    return replace(MemorySums(*row), kinds=tuple(MemoryKind(*kind) for kind in kinds))


def delete_memories(connection: sqlite3.Connection, session: str | None = None) -> None:
    """Of a session, or all."""
    if session is None:
        connection.execute("DELETE FROM memory_segments")
    else:
        connection.execute("DELETE FROM memory_segments WHERE session_id = ?", (session,))


def forget_old_memories(connection: sqlite3.Connection, before: float) -> None:
    connection.execute(
        """DELETE FROM memory_segments WHERE seq IN (SELECT seq FROM memory_segments ORDER BY seq LIMIT ?)
           AND at < ?""",
        (FORGET_AT_ONCE, before),
    )


def _json(value: JsonValue) -> str:
    return json.encode(value).decode()


def _value(text: str | None) -> JsonValue:
    try:
        return None if text is None else json.decode(text.encode())
    except ParseError:  # somebody else wrote it
        return None


# Of a request, in the order of the fields.
COLUMNS = tuple(field.name for field in fields(Account))


def values(account: Account | None) -> tuple[object, ...]:
    return (None,) * len(COLUMNS) if account is None else astuple(account)


def read(row: Sequence[object]) -> Account | None:
    return None if row[0] is None else Account(*row)  # type: ignore[arg-type]


def rows(connection: sqlite3.Connection, since: float, session: str | None) -> list[SavingsLine]:
    """Those of requests after `since`, of one session or of all; the session that was used last first."""
    found = connection.execute(
        """SELECT session_id, max(ifnull(nullif(sessions.title, ''), sessions.name)), metrics.model, count(*),
             sum(ifnull(tokens_before, ifnull(metrics.input_tokens, tokens_estimated))),
             sum(ifnull(tokens_after, ifnull(metrics.input_tokens, tokens_estimated))),
             sum(ifnull(metrics.cached_tokens, 0)), sum(ifnull(cache_lost_tokens, 0)), sum(ifnull(recoveries, 0)),
             sum(ifnull(extra_turns, 0)), sum(ifnull(recovery_tokens, 0)), sum(ifnull(summaries, 0)),
             sum(ifnull(summary_tokens, 0)), sum(ifnull(metrics.net_saved_tokens, 0)),
             sum(ifnull(metrics.cost_before_usd, metrics.cost_usd)), sum(metrics.cost_usd),
             sum(metrics.net_saved_usd)
           FROM metrics JOIN sessions ON sessions.id = metrics.session_id
           WHERE at >= ?1 AND (?2 IS NULL OR session_id = ?2)
           GROUP BY session_id, metrics.model ORDER BY max(at) DESC, session_id, metrics.model""",
        (since, session),
    ).fetchall()
    why = _reasons(connection, since, session)
    return [SavingsLine(why.get((row[0], row[2]), {}), *row) for row in found]


def _reasons(connection: sqlite3.Connection, since: float, session: str | None) -> dict[tuple[str, str], Counter[str]]:
    found = connection.execute(
        """SELECT session_id, model, reasons, count(*) FROM metrics
           WHERE at >= ?1 AND (?2 IS NULL OR session_id = ?2) AND reasons <> '' GROUP BY session_id, model, reasons""",
        (since, session),
    )
    counted: dict[tuple[str, str], Counter[str]] = {}
    for id, model, reasons, requests in found.fetchall():
        for reason in str(reasons).split():
            counted.setdefault((id, model), Counter())[reason] += requests
    return counted


# Of the sessions that a page starts after, the last one's last use and id.
Cursor = tuple[float, str]

KEEP_S = 180 * 86_400.0
KEEP_METRICS = 200_000  # about 60 MB

# Of a request, in the order of the fields.
_COLUMNS = (
    *("id", "session_id", "at", "provider", "model", "api", "tokens_estimated", "tokens_saved", "reasons"),
    *("max_context", "status", "outcome", "finish", "input_tokens", "cached_tokens", "output_tokens", "cost_usd"),
    *("first_token_ms", "duration_ms", "system_tokens", "memory_tokens", "tools_tokens", "chat_tokens"),
    *COLUMNS,
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
        *values(metric.account),
    )
    written = connection.execute(
        # The names of columns are in this file and the next.
        f"INSERT INTO metrics ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "  # noqa: S608
        "ON CONFLICT (id) DO NOTHING",
        row,
    )
    if written.rowcount:
        _add_to_session(connection, metric)
        add_memories(connection, metric)


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
        delete_memories(connection, id)
        gone += connection.execute("DELETE FROM sessions WHERE id = ?", (id,)).rowcount
    return gone


def delete_all(connection: sqlite3.Connection) -> int:
    connection.execute("DELETE FROM metrics")
    connection.execute("DELETE FROM compression_log")
    delete_memories(connection)
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
    forget_old_memories(connection, now - KEEP_S)
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
    told, account = row[: -len(COLUMNS)], row[-len(COLUMNS) :]
    *told, system, memory, tools, chat = told
    reasons = tuple(str(told[8]).split())
    context = None if memory is None else Context(system, memory, tools, chat)  # type: ignore[arg-type]
    return Metric(*told[:8], reasons, *told[9:], context, read(account))  # type: ignore[arg-type, call-arg]


T = TypeVar("T")


class File(Protocol):
    """Where statements are run; StoreUnavailable if they can't be now."""

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T: ...
    async def write(self, work: Callable[[sqlite3.Connection, Moment], T]) -> T: ...


class Ledger:
    def __init__(self, file: File) -> None:
        self._file = file

    async def write(self, sessions: Sequence[SessionRecord], metrics: Sequence[Metric]) -> None:
        """All of it, or StoreUnavailable; what is written twice is there once."""

        def work(connection: sqlite3.Connection, moment: Moment) -> None:
            forget_old(connection, moment.earliest)
            for session in sessions:
                open_session(connection, session)
            for metric in metrics:
                add(connection, metric)

        await self._file.write(work)

    async def session(self, id: str) -> SessionRecord | None:
        return await self._file.read(lambda connection: session(connection, id))

    async def sessions(self, limit: int, after: Cursor | None = None) -> list[SessionRecord]:
        """Those that were used last, first."""
        return await self._file.read(lambda connection: newest_sessions(connection, limit, after))

    async def matching(self, words: str, limit: int) -> list[SessionRecord]:
        """Those in which `words` stand, the last used first."""
        return await self._file.read(lambda connection: matching_sessions(connection, words, limit))

    async def session_ids(self, limit: int) -> list[str]:
        """Those that were used last, first."""
        return await self._file.read(lambda connection: newest_ids(connection, limit))

    async def count(self) -> int:
        return await self._file.read(count_sessions)

    async def sums(self) -> Sums:
        return await self._file.read(sums)

    async def memory_sums(self) -> MemorySums:
        return await self._file.read(memory_sums)

    async def newest_context(self, session: str) -> tuple[JsonValue, JsonValue]:
        """The memory of a session's newest request, and how that request lies in its window; None if nobody looked."""
        return await self._file.read(lambda connection: newest(connection, session))

    async def rename(self, id: str, title: str) -> bool:
        """False if there is no such session."""
        return await self._file.write(lambda connection, moment: rename(connection, id, title))

    async def delete(self, ids: Sequence[str]) -> int:
        """How many of these sessions there were."""
        return await self._file.write(lambda connection, moment: delete(connection, ids))

    async def delete_all(self) -> int:
        return await self._file.write(lambda connection, moment: delete_all(connection))

    async def newest_metric(self, session: str) -> Metric | None:
        return await self._file.read(lambda connection: newest_metric(connection, session))

    async def newest_metrics(self, limit: int, session: str | None = None) -> list[Metric]:
        """Of one session or of all, the newest last."""
        return await self._file.read(lambda connection: newest_metrics(connection, limit, session))

    async def metrics(self, session: str | None, after: int, limit: int) -> list[tuple[int, Metric]]:
        """Requests in the order in which they were written, each with its place."""
        return await self._file.read(lambda connection: metrics(connection, session, after, limit))

    async def accounts(self, since: float, session: str | None = None) -> list[SavingsLine]:
        """What requests after `since` saved and cost, by session and model."""
        return await self._file.read(lambda connection: rows(connection, since, session))

"""Every statement about the memory in requests. Callers hold the transaction."""

import sqlite3
from dataclasses import dataclass, replace

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.types import JsonValue
from kimi_proxy.features.context import layout_told, memory_told
from kimi_proxy.features.metering import Metric

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


def add(connection: sqlite3.Connection, metric: Metric) -> None:
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


def sums(connection: sqlite3.Connection) -> MemorySums:
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


def delete(connection: sqlite3.Connection, session: str | None = None) -> None:
    """Of a session, or all."""
    if session is None:
        connection.execute("DELETE FROM memory_segments")
    else:
        connection.execute("DELETE FROM memory_segments WHERE session_id = ?", (session,))


def forget_old(connection: sqlite3.Connection, before: float) -> None:
    connection.execute(
        """DELETE FROM memory_segments WHERE seq IN (SELECT seq FROM memory_segments ORDER BY seq LIMIT ?)
           AND at < ?""",
        (FORGET_AT_ONCE, before),
    )


def _json(value: JsonValue) -> str:
    return jsontext.encode(value).decode()


def _value(text: str | None) -> JsonValue:
    try:
        return None if text is None else jsontext.decode(text.encode())
    except ParseError:  # somebody else wrote it
        return None

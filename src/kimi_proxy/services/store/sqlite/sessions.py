"""Sessions in SQLite: how they are written, searched and deleted."""

from collections.abc import Sequence
from sqlite3 import Connection

from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store.clock import Moment
from kimi_proxy.services.store.protocols import Scopes, SessionRecord
from kimi_proxy.services.store.sql.sessions import (
    DELETE_AT_ONCE,
    KEEP_S,
    OF_SESSIONS,
    SqlSessions,
    add_metric,
    after_metric,
    chosen,
    containing,
    open_session,
)
from kimi_proxy.services.store.sqlite.database import Database, writes
from kimi_proxy.services.store.sqlite.team import add_usage
from kimi_proxy.services.store.team import usage_of

KEEP_METRICS = 200_000  # about 60 MB


class SqliteSessions(SqlSessions[Database]):
    """Requests stay for half a year, and not more than KEEP_METRICS of them; a session stays with its requests."""

    async def write(self, sessions: Sequence[SessionRecord], metrics: Sequence[Metric]) -> None:
        def work(connection: Connection, moment: Moment) -> None:
            _delete_old(connection, moment.earliest)
            for session in sessions:
                connection.execute(*open_session(session))
            add_usage(connection, usage_of([metric for metric in metrics if _add(connection, metric)]))

        await self.database.write(work)

    async def search(self, words: str, limit: int, scopes: Scopes = None) -> Sequence[SessionRecord]:
        theirs, own = chosen(scopes)
        columns = " OR ".join(f"{name} LIKE ? ESCAPE '\\'" for name in ("title", "name", "id", "model", "provider"))
        where = f"{theirs} AND ({columns}) ORDER BY last_used DESC, id DESC LIMIT ?"
        return await self._sessions(where, (*own, *[containing(words)] * 5, limit))

    @writes
    def delete(self, connection: Connection, ids: Sequence[str]) -> int:
        for table in OF_SESSIONS:
            statement = f"DELETE FROM {table} WHERE session_id = ?"  # noqa: S608 - three fixed names
            connection.executemany(statement, [(id,) for id in ids])
        return connection.executemany("DELETE FROM sessions WHERE id = ?", [(id,) for id in ids]).rowcount

    @writes
    def delete_all(self, connection: Connection, scopes: Scopes = None) -> int:
        theirs, own = chosen(scopes)
        which = "" if scopes is None else f" WHERE session_id IN (SELECT id FROM sessions WHERE {theirs})"  # noqa: S608
        for table in OF_SESSIONS:
            connection.execute(f"DELETE FROM {table}{which}", own)  # noqa: S608 - three fixed names
        return connection.execute(f"DELETE FROM sessions WHERE {theirs}", own).rowcount  # noqa: S608


def _add(connection: Connection, metric: Metric) -> bool:
    """Write a request down and add it to its session; return False if that was done before."""
    if not connection.execute(*add_metric(metric)).rowcount:
        return False
    for statement in after_metric(metric):
        connection.execute(*statement)
    return True


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

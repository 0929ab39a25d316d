"""Sessions in PostgreSQL: how they are written, searched and deleted, on whichever server."""

from collections.abc import Sequence

from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store.clock import Moment
from kimi_proxy.services.store.postgres.database import Connection, PostgresDatabase, execute, storable
from kimi_proxy.services.store.postgres.team import add_usage
from kimi_proxy.services.store.protocols import Scopes, SessionRecord
from kimi_proxy.services.store.sql import Row
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
from kimi_proxy.services.store.team import usage_of


class PostgresSessions(SqlSessions[PostgresDatabase]):
    """Requests stay for half a year; a session stays with its requests."""

    async def write(self, sessions: Sequence[SessionRecord], metrics: Sequence[Metric]) -> None:
        async def work(connection: Connection, moment: Moment) -> None:
            await _delete_old(connection, moment.earliest)
            # Locked in one order on every server, so that no two of them wait for each other.
            ids = {storable(id) for id in (*(one.id for one in sessions), *(metric.session for metric in metrics))}
            await connection.execute("SELECT 1 FROM sessions WHERE id = ANY(%s) ORDER BY id FOR UPDATE", (list(ids),))
            for session in sorted(sessions, key=lambda session: session.id):
                await execute(connection, *open_session(session))
            await add_usage(connection, usage_of([metric for metric in metrics if await _add(connection, metric)]))

        await self.database.run(work)

    async def search(self, words: str, limit: int, scopes: Scopes = None) -> Sequence[SessionRecord]:
        theirs, own = chosen(scopes)
        where = f"""{theirs} AND concat_ws(E'\\x01', title, name, id, model, provider) ILIKE ?
          ORDER BY last_used DESC, id DESC LIMIT ?"""
        return await self._sessions(where, (*own, containing(words), limit))

    async def delete(self, ids: Sequence[str]) -> int:
        return await self._delete("= ANY(?)", (list(ids),))

    async def delete_all(self, scopes: Scopes = None) -> int:
        theirs, own = chosen(scopes)
        return await self._delete(f"IN (SELECT id FROM sessions WHERE {theirs})", own)  # noqa: S608 - a fixed text

    async def _delete(self, which: str, values: Row) -> int:
        async def work(connection: Connection, moment: Moment) -> int:
            for table in OF_SESSIONS:
                await execute(connection, f"DELETE FROM {table} WHERE session_id {which}", values)  # noqa: S608
            return (await execute(connection, f"DELETE FROM sessions WHERE id {which}", values)).rowcount  # noqa: S608

        return await self.database.run(work)


async def _add(connection: Connection, metric: Metric) -> bool:
    """Write a request down and add it to its session; return False if that was done before."""
    if not (await execute(connection, *add_metric(metric))).rowcount:
        return False
    for statement in after_metric(metric):
        await execute(connection, *statement)
    return True


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

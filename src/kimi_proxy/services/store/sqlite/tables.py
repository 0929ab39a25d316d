"""What only SQLite is asked: how sessions, decisions and the team are written, searched and expired."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple
from sqlite3 import Connection
from types import MappingProxyType

from kimi_proxy.core.lines import encoded
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store.protocols import CompressionRecord, DecisionRecord, Scopes, SessionRecord
from kimi_proxy.services.store.sql import Moment
from kimi_proxy.services.store.sql.decisions import (
    DAY_S,
    DECISION,
    DECISIONS_AT_ONCE,
    SqlDecisions,
    active_compression,
    add_decision,
    decision,
    new_compression,
)
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
from kimi_proxy.services.store.sql.team import (
    ADD_AUDIT,
    ADD_LOGIN,
    ADD_USAGE,
    ADMIT,
    EXPIRE_AT_ONCE,
    SqlTeam,
    spent,
    usage_rows,
)
from kimi_proxy.services.store.sqlite.database import Database, reads, writes
from kimi_proxy.services.store.team import AuditEntry, LoginRecord, Spent, UsageKey, UsageRange, UsageSum, usage_of


class SqliteDecisions(SqlDecisions[Database]):
    def __init__(self, database: Database, ttl_s: float) -> None:
        super().__init__(database, ttl_s)
        self._used: dict[tuple[str, bytes], DecisionRecord] = {}  # read since the last commit

    async def get(self, scope: str, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        found = await self.database.read(lambda connection: _fetch(connection, scope, keys))
        self._used |= {(scope, key): record for key, record in found.items()}
        return found

    @reads
    def times(self, connection: Connection, scope: str, keys: Sequence[bytes]) -> Mapping[bytes, float]:
        found = (
            (key, connection.execute("SELECT created FROM pin WHERE scope = ? AND place = ?", (encoded(scope), key)))
            for key in keys
        )
        return {key: float(row[0]) for key, rows in found if (row := rows.fetchone()) is not None}

    async def add(
        self,
        scope: str,
        new: Sequence[DecisionRecord],
        forget: Sequence[bytes] = (),
        replaces: Mapping[bytes, float] = MappingProxyType({}),
    ) -> Mapping[bytes, DecisionRecord]:
        used, self._used = self._used, {}

        def work(connection: Connection, moment: Moment) -> Mapping[bytes, DecisionRecord]:
            connection.executemany(
                "DELETE FROM pin WHERE scope = ? AND place = ?", [(encoded(scope), key) for key in forget]
            )
            connection.executemany(
                "DELETE FROM pin WHERE scope = ? AND place = ? AND created = ?",
                [(encoded(scope), key, made) for key, made in replaces.items()],
            )
            # A use is written once a day, or twice within a short ttl: not with every request.
            stale = moment.earliest - min(DAY_S, self._ttl_s / 2)
            connection.executemany(
                "UPDATE pin SET last_used = ? WHERE scope = ? AND place = ?",
                [(moment.latest, encoded(at), key) for (at, key), record in used.items() if record.last_used < stale],
            )
            for record in new:
                connection.execute(*add_decision(scope, record, moment.latest))
            connection.execute(
                "DELETE FROM pin WHERE seq IN (SELECT seq FROM pin WHERE last_used < ? ORDER BY last_used LIMIT ?)",
                (moment.earliest - self._ttl_s, DECISIONS_AT_ONCE),
            )
            return _fetch(connection, scope, (record.key for record in new))

        return await self.database.write(work)

    @writes
    def add_compression(self, connection: Connection, made: CompressionRecord, after: str | None = None) -> bool:
        active = (connection.execute(*active_compression(made.session)).fetchone() or (None,))[0]
        if active == after:
            connection.execute(*new_compression(made))
        return active in (after, made.id)


def _fetch(connection: Connection, scope: str, keys: Iterable[bytes]) -> dict[bytes, DecisionRecord]:
    statement = f"SELECT {DECISION} FROM pin WHERE scope = ? AND place = ?"  # noqa: S608 - one fixed text
    rows = (connection.execute(statement, (encoded(scope), key)).fetchone() for key in keys)
    return {record.key: record for row in rows if row for record in (decision(row),)}


class SqliteTeam(SqlTeam[Database]):
    @writes
    def keep_login(self, connection: Connection, login: LoginRecord) -> None:
        connection.execute(
            "DELETE FROM login WHERE id_hash IN (SELECT id_hash FROM login WHERE expires <= ? LIMIT ?)",
            (login.began, EXPIRE_AT_ONCE),
        )
        connection.execute(ADD_LOGIN, astuple(login))

    @writes
    def admit(
        self,
        connection: Connection,
        use: UsageKey,
        ranges: Sequence[UsageRange],
        decide: Callable[[Sequence[Spent]], bool],
    ) -> Sequence[Spent]:
        used = [Spent(*connection.execute(*spent(each)).fetchone()) for each in ranges]
        if decide(used):
            connection.execute(ADMIT, astuple(use))
        return used

    @writes
    def add_audit(self, connection: Connection, entries: Sequence[AuditEntry]) -> None:
        connection.executemany(ADD_AUDIT, map(astuple, entries))

    @writes
    def expire_audit(self, connection: Connection, before: float) -> int:
        return connection.execute(
            """DELETE FROM audit_log WHERE seq IN (SELECT seq FROM audit_log ORDER BY seq LIMIT ?) AND at < ?""",
            (EXPIRE_AT_ONCE, before),
        ).rowcount


def add_usage(connection: Connection, added: Sequence[tuple[UsageKey, UsageSum]]) -> None:
    """Add what requests came to, to the counts of their days."""
    connection.executemany(ADD_USAGE, usage_rows(added))


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

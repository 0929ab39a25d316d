"""SQLite's own statements: write, search and expire sessions, decisions and team data."""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from sqlite3 import Connection
from types import MappingProxyType

from kimi_proxy.core.cache import in_batches
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.lines import encode_text
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store.protocols import CompressionRecord, DecisionRecord, SessionRecord
from kimi_proxy.services.store.sql import Moment, audit_block, erased_among, marks, note_deleted, usage
from kimi_proxy.services.store.sql.decisions import (
    ADD_DECISION,
    DAY_S,
    DECISION,
    DECISIONS_AT_ONCE,
    SqlDecisions,
    active_compression,
    check_added,
    decision,
    decision_row,
    new_compression,
)
from kimi_proxy.services.store.sql.sessions import (
    ADD_KEY,
    DELETE_AT_ONCE,
    KEEP_S,
    KEY_BYTES,
    OF_SESSIONS,
    READ_KEY,
    SqlSessions,
    add_metric,
    after_metric,
    containing,
    open_session,
    session_filter,
)
from kimi_proxy.services.store.sqlite.database import Database, reads, writes
from kimi_proxy.services.store.usage import OpenRequest, UsageKey, UsageSum, usage_of


class SqliteDecisions(SqlDecisions[Database]):
    def __init__(self, database: Database, ttl_s: float) -> None:
        super().__init__(database, ttl_s)
        self._used: dict[tuple[str, bytes], DecisionRecord] = {}  # read since the last commit

    async def get(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        scope = who.scope
        found = await self.database.read(lambda connection: _fetch(connection, scope, keys))
        self._used |= {(scope, key): record for key, record in found.items()}
        return found

    @reads
    def times(self, connection: Connection, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, float]:
        statement = "SELECT created FROM decision WHERE scope = ? AND place = ?"
        scope = encode_text(who.scope)
        found = ((key, connection.execute(statement, (scope, key))) for key in keys)
        return {key: float(row[0]) for key, rows in found if (row := rows.fetchone()) is not None}

    async def add(
        self,
        who: Caller,
        new: Sequence[DecisionRecord],
        forget: Sequence[bytes] = (),
        replaces: Mapping[bytes, float] = MappingProxyType({}),
    ) -> Mapping[bytes, DecisionRecord]:
        scope, used, self._used = who.scope, self._used, {}

        def work(connection: Connection, moment: Moment) -> Mapping[bytes, DecisionRecord]:
            connection.executemany(
                "DELETE FROM decision WHERE scope = ? AND place = ?", [(encode_text(scope), key) for key in forget]
            )
            connection.executemany(
                "DELETE FROM decision WHERE scope = ? AND place = ? AND created = ?",
                [(encode_text(scope), key, made) for key, made in replaces.items()],
            )
            # A use is written once a day, or twice within a short ttl: not with every request.
            stale = moment.earliest - min(DAY_S, self._ttl_s / 2)
            connection.executemany(
                "UPDATE decision SET last_used = ? WHERE scope = ? AND place = ?",
                [
                    (moment.latest, encode_text(at), key)
                    for (at, key), record in used.items()
                    if record.last_used < stale
                ],
            )
            connection.executemany(ADD_DECISION, [decision_row(who, record, moment.latest) for record in new])
            connection.execute(
                """DELETE FROM decision WHERE seq IN
                     (SELECT seq FROM decision WHERE last_used < ? ORDER BY last_used LIMIT ?)""",
                (moment.earliest - self._ttl_s, DECISIONS_AT_ONCE),
            )
            return _fetch(connection, scope, (record.key for record in new))

        return check_added(await self.database.write(work), new)

    async def add_compression(self, who: Caller, made: CompressionRecord, after: str | None = None) -> bool:
        def work(connection: Connection, moment: Moment) -> bool:
            active = (connection.execute(*active_compression(who, made.session)).fetchone() or (None,))[0]
            if active == after:
                return bool(connection.execute(*new_compression(who, made)).rowcount)
            return active == made.id

        with audit_block(self.database.note, who, "compress", made.session):
            return await self.database.write(work)


def _fetch(connection: Connection, scope: str, keys: Iterable[bytes]) -> dict[bytes, DecisionRecord]:
    statement = f"SELECT {DECISION} FROM decision WHERE scope = ? AND place = ?"  # noqa: S608 - one fixed text
    rows = (connection.execute(statement, (encode_text(scope), key)).fetchone() for key in keys)
    return {record.key: record for row in rows if row for record in (decision(row),)}


class SqliteUsage(usage.SqlUsage[Database]):
    @writes
    def hold_open(
        self, connection: Connection, new: Sequence[OpenRequest], held: Collection[str], expires: float
    ) -> None:
        connection.executemany(usage.OPEN_REQUEST, map(usage.open_row, new))
        connection.execute(*usage.hold(tuple(held), expires))

    @writes
    def close_requests(self, connection: Connection, done: Sequence[tuple[str, UsageKey, UsageSum]]) -> None:
        add_usage(connection, [(key, one) for _, key, one in done])
        _close_requests(connection, [id for id, _, _ in done])

    @writes
    def close_expired(self, connection: Connection, now: float) -> int:
        rows = connection.execute(usage.SETTLE_EXPIRED, (now, now)).fetchall()
        add_usage(connection, usage.usage_of_closed(rows))
        connection.execute(usage.FORGET_SETTLED, (now - usage.SETTLED_S,))
        return len(rows)


def add_usage(connection: Connection, added: Sequence[tuple[UsageKey, UsageSum]]) -> None:
    """Add the usage of requests to the counts of their days."""
    connection.executemany(usage.ADD_USAGE, usage.usage_rows(added))


def _close_requests(connection: Connection, ids: Sequence[str]) -> None:
    closed = [row for id in ids for row in connection.execute(usage.CLOSE_REQUEST, (id,))]
    add_usage(connection, usage.usage_to_take_back(closed))


KEEP_METRICS = 200_000  # about 60 MB


class SqliteSessions(SqlSessions[Database]):
    """Requests stay for half a year, and not more than KEEP_METRICS of them; a session stays with its requests."""

    async def write(self, sessions: Sequence[SessionRecord], metrics: Sequence[Metric]) -> None:
        def work(connection: Connection, moment: Moment) -> None:
            _delete_old(connection, moment.earliest)
            erased = _find_erased(connection, [*(one.person for one in sessions), *(one.person for one in metrics)])
            for session in sessions:
                if session.person not in erased:
                    connection.execute(*open_session(session))
            # What an erased person has used is still counted, under no name.
            counted = [metric for metric in metrics if metric.person in erased or _add(connection, metric)]
            add_usage(connection, usage_of(counted))
            _close_requests(connection, [metric.id for metric in metrics])

        await self.database.write(work)

    @writes
    def secret(self, connection: Connection) -> bytes:
        connection.execute(ADD_KEY, (secrets.token_bytes(KEY_BYTES),))
        return bytes(connection.execute(READ_KEY).fetchone()[0])

    async def search(self, who: Caller, words: str, limit: int) -> Sequence[SessionRecord]:
        theirs, own = session_filter(who.scopes)
        columns = " OR ".join(f"{name} LIKE ? ESCAPE '\\'" for name in ("title", "name", "id", "model", "provider"))
        where = f"{theirs} AND ({columns}) ORDER BY last_used DESC, id DESC LIMIT ?"
        return await self._sessions(who, where, (*own, *[containing(words)] * 5, limit))

    async def delete(self, who: Caller, ids: Sequence[str]) -> Sequence[str]:
        deleted: list[str] = []
        for some in in_batches(ids, DELETE_AT_ONCE):
            deleted += await self._delete(who, f" AND id IN ({marks(len(some))})", some)
        note_deleted(self.database.note, who, "delete_session", ids, deleted)
        return deleted

    async def delete_all(self, who: Caller) -> Sequence[str]:
        with audit_block(self.database.note, who, "delete_session", "all"):
            return await self._delete(who)

    @writes
    def _delete(self, connection: Connection, who: Caller, which: str = "", ids: Sequence[str] = ()) -> Sequence[str]:
        theirs, own = session_filter(who.scopes)
        where = f"{theirs}{which}"
        given = (*own, *ids)
        for table in OF_SESSIONS:
            statement = f"DELETE FROM {table} WHERE session_id IN (SELECT id FROM sessions WHERE {where})"  # noqa: S608
            connection.execute(statement, given)
        rows = connection.execute(f"DELETE FROM sessions WHERE {where} RETURNING id", given)  # noqa: S608
        return [str(id) for (id,) in rows.fetchall()]


def _find_erased(connection: Connection, people: Sequence[str]) -> frozenset[str]:
    """Return those of `people`, by id, whose data was erased."""
    return frozenset(str(id) for (id,) in connection.execute(*erased_among(people)).fetchall())


def _add(connection: Connection, metric: Metric) -> bool:
    """Record a request and add it to its session; return False if it was recorded before."""
    if not connection.execute(*add_metric(metric)).rowcount:
        return False
    for statement in after_metric(metric):
        connection.execute(*statement)
    return True


def _delete_old(connection: Connection, now: float) -> None:
    """Delete some of the oldest rows, which have the lowest numbers, if they are too old or too many."""
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

"""Decisions in SQLite: how they are read by their keys, and added."""

from collections.abc import Iterable, Mapping, Sequence
from sqlite3 import Connection
from types import MappingProxyType

from kimi_proxy.core.lines import encoded
from kimi_proxy.services.store.clock import Moment
from kimi_proxy.services.store.protocols import CompressionRecord, DecisionRecord
from kimi_proxy.services.store.sql.decisions import (
    DAY_S,
    DECISION,
    EXPIRE_AT_ONCE,
    SqlDecisions,
    active_compression,
    add_decision,
    decision,
    new_compression,
)
from kimi_proxy.services.store.sqlite.database import Database, reads, writes


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
                (moment.earliest - self._ttl_s, EXPIRE_AT_ONCE),
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

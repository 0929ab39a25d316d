"""Decisions in PostgreSQL: the first server to commit one decides for all of them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from psycopg import errors

from kimi_proxy.core.lines import encoded
from kimi_proxy.services.store.clock import Moment
from kimi_proxy.services.store.postgres.database import Connection, PostgresDatabase, execute, read_bytes, read_float
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

COMPRESSING = 1802071403  # an advisory lock, with the session as its second number


class PostgresDecisions(SqlDecisions[PostgresDatabase]):
    async def get(self, scope: str, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        async def work(connection: Connection, moment: Moment) -> Mapping[bytes, DecisionRecord]:
            found = await _fetch(connection, scope, keys)
            # A use is written once a day, or twice within a short ttl: not with every request.
            stale = moment.earliest - min(DAY_S, self._ttl_s / 2)
            used = [key for key, record in found.items() if record.last_used < stale]
            if used:
                with suppress(errors.ReadOnlySqlTransaction, errors.DiskFull):
                    await connection.execute(
                        "UPDATE pin SET last_used = %s WHERE scope = %s AND place = ANY(%s)",
                        (moment.latest, encoded(scope), used),
                    )
            return found

        return await self.database.read(work)

    async def times(self, scope: str, keys: Sequence[bytes]) -> Mapping[bytes, float]:
        async def work(connection: Connection, moment: Moment) -> Mapping[bytes, float]:
            rows = await connection.execute(
                "SELECT place, created FROM pin WHERE scope = %s AND place = ANY(%s)", (encoded(scope), list(keys))
            )
            return {read_bytes(key): read_float(created) for key, created in await rows.fetchall()}

        return await self.database.read(work)

    async def add(
        self,
        scope: str,
        new: Sequence[DecisionRecord],
        forget: Sequence[bytes] = (),
        replaces: Mapping[bytes, float] = MappingProxyType({}),
    ) -> Mapping[bytes, DecisionRecord]:
        async def work(connection: Connection, moment: Moment) -> Mapping[bytes, DecisionRecord]:
            if forget:
                await connection.execute(
                    "DELETE FROM pin WHERE scope = %s AND place = ANY(%s)", (encoded(scope), list(forget))
                )
            if replaces:
                # A row that another server is replacing is waited for, and is then no longer the one that was read.
                await connection.execute(
                    """DELETE FROM pin USING unnest(%s::bytea[], %s::float8[]) AS old (place, created)
                       WHERE pin.scope = %s AND pin.place = old.place AND pin.created = old.created""",
                    (list(replaces), list(replaces.values()), encoded(scope)),
                )
            # In one order on every server, so that no two of them wait for each other.
            for record in sorted(new, key=lambda record: record.key):
                await execute(connection, *add_decision(scope, record, moment.latest))
            await connection.execute(
                """DELETE FROM pin WHERE seq IN (SELECT seq FROM pin WHERE last_used < %s ORDER BY last_used LIMIT %s
                     FOR UPDATE SKIP LOCKED)""",
                (moment.earliest - self._ttl_s, EXPIRE_AT_ONCE),
            )
            return await _fetch(connection, scope, [record.key for record in new])

        return await self.database.run(work)

    async def add_compression(self, made: CompressionRecord, after: str | None = None) -> bool:
        async def work(connection: Connection, moment: Moment) -> bool:
            # Held until the commit: of two servers, the second one sees what the first one added.
            await connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (COMPRESSING, made.session))
            active = (await (await execute(connection, *active_compression(made.session))).fetchone() or (None,))[0]
            if active == after:
                await execute(connection, *new_compression(made))
            return active in (after, made.id)

        return await self.database.run(work)


async def _fetch(connection: Connection, scope: str, keys: Sequence[bytes]) -> dict[bytes, DecisionRecord]:
    rows = await connection.execute(
        f"SELECT {DECISION} FROM pin WHERE scope = %s AND place = ANY(%s)".encode(),  # noqa: S608 - one fixed text
        (encoded(scope), list(keys)),
    )
    found = {record.key: record for record in map(decision, await rows.fetchall())}
    return {key: found[key] for key in keys if key in found}

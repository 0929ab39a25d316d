"""The team in PostgreSQL, for every server."""

from collections.abc import Callable, Sequence
from dataclasses import astuple

from kimi_proxy.services.store.clock import Moment
from kimi_proxy.services.store.postgres.database import Connection, PostgresDatabase, execute, formatted
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
from kimi_proxy.services.store.team import AuditEntry, LoginRecord, Spent, UsageKey, UsageRange, UsageSum

BUDGETS = 1802071403  # an advisory lock: requests with a budget are counted one after the other


class PostgresTeam(SqlTeam[PostgresDatabase]):
    async def keep_login(self, login: LoginRecord) -> None:
        await self.database.change(
            f"""WITH expired AS (
                 DELETE FROM login WHERE id_hash IN
                   (SELECT id_hash FROM login WHERE expires <= ? LIMIT ? FOR UPDATE SKIP LOCKED))
               {ADD_LOGIN} RETURNING 1""",  # noqa: S608 - a fixed text
            (login.began, EXPIRE_AT_ONCE, *astuple(login)),
        )

    async def admit(
        self, use: UsageKey, ranges: Sequence[UsageRange], decide: Callable[[Sequence[Spent]], bool]
    ) -> Sequence[Spent]:
        async def work(connection: Connection, moment: Moment) -> Sequence[Spent]:
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (BUDGETS,))
            rows = [await (await execute(connection, *spent(each))).fetchone() for each in ranges]
            used = [Spent(*row) for row in rows if row]  # type: ignore[arg-type]
            if decide(used):
                await execute(connection, ADMIT, astuple(use))
            return used

        return await self.database.run(work)

    async def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        async def work(connection: Connection, moment: Moment) -> None:
            await connection.cursor().executemany(formatted(ADD_AUDIT), [astuple(one) for one in entries])

        await self.database.run(work)

    async def expire_audit(self, before: float) -> int:
        gone = await self.database.change(
            """DELETE FROM audit_log WHERE seq IN (SELECT seq FROM audit_log WHERE at < ? ORDER BY seq LIMIT ?
                 FOR UPDATE SKIP LOCKED) RETURNING 1""",
            (before, EXPIRE_AT_ONCE),
        )
        return len(gone)


async def add_usage(connection: Connection, added: Sequence[tuple[UsageKey, UsageSum]]) -> None:
    """Add what requests came to, to the counts of their days; `added` is in the same order on every server."""
    for values in usage_rows(added):
        await execute(connection, ADD_USAGE, values)

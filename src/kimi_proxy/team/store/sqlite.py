"""The team's tables in SQLite."""

from collections.abc import Callable, Sequence
from dataclasses import astuple
from sqlite3 import Connection

from kimi_proxy.services.store.sql.usage import OPEN_REQUEST, open_row, use_row
from kimi_proxy.services.store.sqlite.database import Database, writes
from kimi_proxy.services.store.sqlite.tables import SqliteUsage
from kimi_proxy.services.store.usage import OpenRequest, UsageKey
from kimi_proxy.team.records import AuditEntry, LoginRecord, Spent, UsageRange
from kimi_proxy.team.store.sql import ADD_AUDIT, ADD_LOGIN, ADMIT, EXPIRE_AT_ONCE, SqlTeam, login_row, select_spent


class SqliteTeam(SqlTeam[Database], SqliteUsage):
    @writes
    def keep_login(self, connection: Connection, login: LoginRecord) -> None:
        connection.execute(
            "DELETE FROM login WHERE id_hash IN (SELECT id_hash FROM login WHERE expires <= ? LIMIT ?)",
            (login.began, EXPIRE_AT_ONCE),
        )
        connection.execute(ADD_LOGIN, login_row(login))

    @writes
    def admit(
        self,
        connection: Connection,
        use: UsageKey,
        ranges: Sequence[UsageRange],
        decide: Callable[[Sequence[Spent]], bool],
        reserve: OpenRequest | None = None,
    ) -> Sequence[Spent]:
        used = [Spent(*connection.execute(*select_spent(each)).fetchone()) for each in ranges]
        if decide(used):
            connection.execute(ADMIT, use_row(use))
            if reserve is not None:
                connection.execute(OPEN_REQUEST, open_row(reserve))
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

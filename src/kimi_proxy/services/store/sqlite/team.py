"""The team in SQLite."""

from collections.abc import Callable, Sequence
from dataclasses import astuple
from sqlite3 import Connection

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
from kimi_proxy.services.store.sqlite.database import Database, writes
from kimi_proxy.services.store.team import AuditEntry, LoginRecord, Spent, UsageKey, UsageRange, UsageSum


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

"""The team in SQLite: people, their logins, counts by day, and the audit log."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import astuple
from sqlite3 import Connection

from kimi_proxy.services.store.sqlite.database import Tables, reads, writes
from kimi_proxy.services.store.team import (
    SUMS,
    AuditEntry,
    LoginRecord,
    PersonRecord,
    Spent,
    UsageKey,
    UsageRange,
    UsageSum,
)

_PERSON = "name, role, team, created, rotated, revoked, subject"
_LOGIN = "id_hash, began, expires, person, detail"
EXPIRE_AT_ONCE = 5000


class SqliteTeam(Tables):
    @reads
    def people(self, connection: Connection) -> Sequence[PersonRecord]:
        rows = connection.execute(f"SELECT {_PERSON} FROM person ORDER BY name")  # noqa: S608 - fixed names
        return [PersonRecord(*row) for row in rows.fetchall()]

    @reads
    def person_with(self, connection: Connection, token_hash: bytes) -> PersonRecord | None:
        row = connection.execute(
            f"SELECT {_PERSON} FROM person WHERE token_hash = ? AND revoked IS NULL",  # noqa: S608 - fixed names
            (token_hash,),
        ).fetchone()
        return None if row is None else PersonRecord(*row)

    @writes
    def add_person(self, connection: Connection, person: PersonRecord, token_hash: bytes) -> bool:
        row = (*astuple(person), token_hash)
        statement = f"INSERT INTO person ({_PERSON}, token_hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"  # noqa: S608
        return connection.execute(statement, row).rowcount > 0

    @writes
    def change_person(self, connection: Connection, person: PersonRecord, token_hash: bytes | None = None) -> bool:
        changed = connection.execute(
            """UPDATE person SET role = ?, team = ?, rotated = ?, revoked = ?, token_hash = ifnull(?, token_hash)
               WHERE name = ?""",
            (person.role, person.team, person.rotated, person.revoked, token_hash, person.name),
        )
        return changed.rowcount > 0

    @writes
    def change_by_login(self, connection: Connection, person: PersonRecord) -> bool:
        changed = connection.execute(
            """UPDATE person SET role = ?, team = ?, subject = ?
               WHERE name = ? AND revoked IS NULL AND subject IN ('', ?)""",
            (person.role, person.team, person.subject, person.name, person.subject),
        )
        return changed.rowcount > 0

    @writes
    def keep_login(self, connection: Connection, login: LoginRecord) -> None:
        connection.execute(
            "DELETE FROM login WHERE id_hash IN (SELECT id_hash FROM login WHERE expires <= ? LIMIT ?)",
            (login.began, EXPIRE_AT_ONCE),
        )
        connection.execute(f"INSERT INTO login ({_LOGIN}) VALUES (?, ?, ?, ?, ?)", astuple(login))  # noqa: S608

    @writes
    def take_login(self, connection: Connection, id_hash: bytes) -> LoginRecord | None:
        statement = f"DELETE FROM login WHERE id_hash = ? RETURNING {_LOGIN}"  # noqa: S608 - fixed names
        row = connection.execute(statement, (id_hash,)).fetchone()
        return None if row is None else LoginRecord(*row)

    @reads
    def person_logged_in(self, connection: Connection, id_hash: bytes, now: float) -> PersonRecord | None:
        row = connection.execute(
            f"""SELECT {_PERSON} FROM login JOIN person ON person.name = login.person
               WHERE id_hash = ? AND expires > ? AND began >= rotated AND revoked IS NULL""",  # noqa: S608 - fixed names
            (id_hash, now),
        ).fetchone()
        return None if row is None else PersonRecord(*row)

    @writes
    def admit(
        self,
        connection: Connection,
        use: UsageKey,
        ranges: Sequence[UsageRange],
        decide: Callable[[Sequence[Spent]], bool],
    ) -> Sequence[Spent]:
        spent = [_spent(connection, each) for each in ranges]
        if decide(spent):
            connection.execute(
                """INSERT INTO usage_day (day, person, team, model, admitted) VALUES (?, ?, ?, ?, 1)
                   ON CONFLICT DO UPDATE SET admitted = admitted + 1""",
                (use.day, use.person, use.team, use.model),
            )
        return spent

    @reads
    def usage(
        self, connection: Connection, since: str, people: Collection[str] | None = None
    ) -> Sequence[tuple[UsageKey, UsageSum]]:
        names = None if people is None else list(people)
        chosen = "" if names is None else f" AND person IN ({', '.join('?' * len(names))})"
        rows = connection.execute(
            f"""SELECT day, person, team, model, {", ".join(SUMS)} FROM usage_day
               WHERE day >= ? AND requests > 0{chosen} ORDER BY day, person, team, model""",  # noqa: S608 - fixed names
            (since, *(names or ())),
        )
        return [(UsageKey(*row[:4]), UsageSum(*row[4:])) for row in rows.fetchall()]

    @writes
    def add_audit(self, connection: Connection, entries: Sequence[AuditEntry]) -> None:
        connection.executemany(
            "INSERT INTO audit_log (at, person, action, subject, detail) VALUES (?, ?, ?, ?, ?)",
            [(one.at, one.person, one.action, one.subject, one.detail) for one in entries],
        )

    @reads
    def audit(
        self, connection: Connection, before: int, limit: int, since: float = 0.0
    ) -> Sequence[tuple[int, AuditEntry]]:
        rows = connection.execute(
            """SELECT seq, at, person, action, subject, detail FROM audit_log
               WHERE seq < ? AND at >= ? ORDER BY seq DESC LIMIT ?""",
            (before, since, limit),
        )
        return [(seq, AuditEntry(*row)) for seq, *row in rows.fetchall()]

    @writes
    def expire_audit(self, connection: Connection, before: float) -> int:
        return connection.execute(
            """DELETE FROM audit_log WHERE seq IN (SELECT seq FROM audit_log ORDER BY seq LIMIT ?) AND at < ?""",
            (EXPIRE_AT_ONCE, before),
        ).rowcount


def add_usage(connection: Connection, added: Sequence[tuple[UsageKey, UsageSum]]) -> None:
    """Add what requests came to, to the counts of their days."""
    sums = ", ".join(f"{name} = {name} + excluded.{name}" for name in SUMS)
    connection.executemany(
        f"""INSERT INTO usage_day (day, person, team, model, {", ".join(SUMS)})
           VALUES (?, ?, ?, ?, {", ".join("?" * len(SUMS))}) ON CONFLICT DO UPDATE SET {sums}""",  # noqa: S608
        [(key.day, key.person, key.team, key.model, *(getattr(one, name) for name in SUMS)) for key, one in added],
    )


def _spent(connection: Connection, wanted: UsageRange) -> Spent:
    chosen = [(name, getattr(wanted, name)) for name in ("person", "team", "model")]
    where = "".join(f" AND {name} = ?" for name, value in chosen if value is not None)
    row = connection.execute(
        f"SELECT ifnull(sum(admitted), 0), ifnull(sum(cost_usd), 0.0) FROM usage_day WHERE day >= ?{where}",  # noqa: S608
        (wanted.since, *(value for _, value in chosen if value is not None)),
    ).fetchone()
    return Spent(int(row[0]), float(row[1]))

"""The team in PostgreSQL: people, their logins, counts by day, and the audit log, for every server."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import astuple

from kimi_proxy.services.store.clock import Moment
from kimi_proxy.services.store.postgres.database import Connection, PostgresDatabase, read_float, read_int
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
BUDGETS = 1802071403  # an advisory lock: requests with a budget are counted one after the other
EXPIRE_AT_ONCE = 5000

Row = tuple[object, ...]


class PostgresTeam:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def people(self) -> Sequence[PersonRecord]:
        rows = await self._rows(f"SELECT {_PERSON} FROM person ORDER BY name")  # noqa: S608 - fixed names
        return [PersonRecord(*row) for row in rows]  # type: ignore[arg-type]

    async def person_with(self, token_hash: bytes) -> PersonRecord | None:
        statement = f"SELECT {_PERSON} FROM person WHERE token_hash = %s AND revoked IS NULL"  # noqa: S608
        rows = await self._rows(statement, (token_hash,))
        return PersonRecord(*rows[0]) if rows else None  # type: ignore[arg-type]

    async def add_person(self, person: PersonRecord, token_hash: bytes) -> bool:
        statement = f"""INSERT INTO person ({_PERSON}, token_hash) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
          ON CONFLICT DO NOTHING RETURNING 1"""  # noqa: S608 - fixed names
        return bool(await self._rows(statement, (*astuple(person), token_hash)))

    async def change_person(self, person: PersonRecord, token_hash: bytes | None = None) -> bool:
        changed = await self._rows(
            """UPDATE person SET role = %s, team = %s, rotated = %s, revoked = %s,
                 token_hash = coalesce(%s, token_hash) WHERE name = %s RETURNING 1""",
            (person.role, person.team, person.rotated, person.revoked, token_hash, person.name),
        )
        return bool(changed)

    async def change_by_login(self, person: PersonRecord) -> bool:
        changed = await self._rows(
            """UPDATE person SET role = %s, team = %s, subject = %s
               WHERE name = %s AND revoked IS NULL AND subject IN ('', %s) RETURNING 1""",
            (person.role, person.team, person.subject, person.name, person.subject),
        )
        return bool(changed)

    async def keep_login(self, login: LoginRecord) -> None:
        await self._rows(
            f"""WITH expired AS (
                 DELETE FROM login WHERE id_hash IN
                   (SELECT id_hash FROM login WHERE expires <= %s LIMIT %s FOR UPDATE SKIP LOCKED))
               INSERT INTO login ({_LOGIN}) VALUES (%s, %s, %s, %s, %s) RETURNING 1""",  # noqa: S608 - fixed names
            (login.began, EXPIRE_AT_ONCE, *astuple(login)),
        )

    async def take_login(self, id_hash: bytes) -> LoginRecord | None:
        rows = await self._rows(f"DELETE FROM login WHERE id_hash = %s RETURNING {_LOGIN}", (id_hash,))  # noqa: S608
        return LoginRecord(*rows[0]) if rows else None  # type: ignore[arg-type]

    async def person_logged_in(self, id_hash: bytes, now: float) -> PersonRecord | None:
        rows = await self._rows(
            f"""SELECT {_PERSON} FROM login JOIN person ON person.name = login.person
               WHERE id_hash = %s AND expires > %s AND began >= rotated AND revoked IS NULL""",  # noqa: S608 - fixed names
            (id_hash, now),
        )
        return PersonRecord(*rows[0]) if rows else None  # type: ignore[arg-type]

    async def admit(
        self, use: UsageKey, ranges: Sequence[UsageRange], decide: Callable[[Sequence[Spent]], bool]
    ) -> Sequence[Spent]:
        async def work(connection: Connection, moment: Moment) -> Sequence[Spent]:
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (BUDGETS,))
            spent = [await _spent(connection, each) for each in ranges]
            if decide(spent):
                await connection.execute(
                    """INSERT INTO usage_day (day, person, team, model, admitted) VALUES (%s, %s, %s, %s, 1)
                       ON CONFLICT (day, person, team, model) DO UPDATE SET admitted = usage_day.admitted + 1""",
                    (use.day, use.person, use.team, use.model),
                )
            return spent

        return await self._database.run(work)

    async def usage(self, since: str, people: Collection[str] | None = None) -> Sequence[tuple[UsageKey, UsageSum]]:
        rows = await self._rows(
            f"""SELECT day, person, team, model, {", ".join(SUMS)} FROM usage_day
               WHERE day >= %s AND requests > 0 AND (%s::text[] IS NULL OR person = ANY(%s))
               ORDER BY day, person, team, model""",  # noqa: S608 - fixed names
            (since, names := None if people is None else list(people), names),
        )
        return [(UsageKey(*row[:4]), UsageSum(*row[4:])) for row in rows]  # type: ignore[arg-type]

    async def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        async def work(connection: Connection, moment: Moment) -> None:
            await connection.cursor().executemany(
                "INSERT INTO audit_log (at, person, action, subject, detail) VALUES (%s, %s, %s, %s, %s)",
                [(one.at, one.person, one.action, one.subject, one.detail) for one in entries],
            )

        await self._database.run(work)

    async def audit(self, before: int, limit: int, since: float = 0.0) -> Sequence[tuple[int, AuditEntry]]:
        rows = await self._rows(
            """SELECT seq, at, person, action, subject, detail FROM audit_log
               WHERE seq < %s AND at >= %s ORDER BY seq DESC LIMIT %s""",
            (before, since, limit),
        )
        return [(read_int(seq), AuditEntry(*row)) for seq, *row in rows]  # type: ignore[arg-type]

    async def expire_audit(self, before: float) -> int:
        gone = await self._rows(
            """DELETE FROM audit_log WHERE seq IN (SELECT seq FROM audit_log WHERE at < %s ORDER BY seq LIMIT %s
                 FOR UPDATE SKIP LOCKED) RETURNING 1""",
            (before, EXPIRE_AT_ONCE),
        )
        return len(gone)

    async def _rows(self, statement: str, values: Row = ()) -> list[Row]:
        async def work(connection: Connection, moment: Moment) -> list[Row]:
            return await (await connection.execute(statement.encode(), values or None)).fetchall()

        return await self._database.run(work)


async def add_usage(connection: Connection, added: Sequence[tuple[UsageKey, UsageSum]]) -> None:
    """Add what requests came to, to the counts of their days; `added` is in the same order on every server."""
    sums = ", ".join(f"{name} = usage_day.{name} + excluded.{name}" for name in SUMS)
    for key, one in added:
        await connection.execute(
            f"""INSERT INTO usage_day (day, person, team, model, {", ".join(SUMS)})
               VALUES (%s, %s, %s, %s, {", ".join(["%s"] * len(SUMS))})
               ON CONFLICT (day, person, team, model) DO UPDATE SET {sums}""".encode(),  # noqa: S608 - fixed names
            (key.day, key.person, key.team, key.model, *(getattr(one, name) for name in SUMS)),
        )


async def _spent(connection: Connection, wanted: UsageRange) -> Spent:
    chosen = [(name, getattr(wanted, name)) for name in ("person", "team", "model")]
    where = "".join(f" AND {name} = %s" for name, value in chosen if value is not None)
    cursor = await connection.execute(
        f"""SELECT coalesce(sum(admitted), 0)::bigint, coalesce(sum(cost_usd), 0)::double precision
           FROM usage_day WHERE day >= %s{where}""".encode(),  # noqa: S608 - fixed names
        (wanted.since, *(value for _, value in chosen if value is not None)),
    )
    row = await cursor.fetchone()
    return Spent(read_int(row[0]), read_float(row[1])) if row else Spent(0, 0.0)

"""The team in a database: people, their logins, and the audit log."""

from collections.abc import Sequence
from dataclasses import astuple

from kimi_proxy.core.lines import encode_text
from kimi_proxy.services.store.sql import D, Row, SqlStatement, marks, one_of
from kimi_proxy.services.store.sql.usage import USE, USED, SqlUsage
from kimi_proxy.services.store.usage import SUMS
from kimi_proxy.team.records import AuditEntry, ErasedPerson, LoginRecord, PersonRecord, TokenRecord, UsageRange

EXPIRE_AT_ONCE = 5000


_PERSON = "name, role, team, created, rotated, revoked, subject, id"


_TOKEN = "id, person, label, created, expires"  # noqa: S105 - columns


_LOGIN = "id_hash, began, expires, person, detail"


# A person, by the token that they got from an admin or by a login; a token that they made themselves is none of both.
_CALLS = """revoked IS NULL AND (token_hash = ? OR EXISTS (SELECT 1 FROM login
  WHERE login.id_hash = ? AND login.person = person.id AND login.expires > ? AND login.began >= person.rotated))"""


_AUDIT = "at, person, action, subject, detail, outcome, person_id"


ADD_AUDIT = f"INSERT INTO audit_log ({_AUDIT}) VALUES ({marks(7)})"  # noqa: S608


ADD_LOGIN = f"""INSERT INTO login ({_LOGIN}) SELECT {marks(5)}
  WHERE ? = '' OR EXISTS (SELECT 1 FROM person WHERE person.id = ?)"""  # noqa: S608


ADMIT = f"""INSERT INTO usage_day ({USE}, admitted) VALUES ({USED}, 1)
  ON CONFLICT ({USE}) DO UPDATE SET admitted = usage_day.admitted + 1"""  # noqa: S608


class SqlTeam(SqlUsage[D]):
    """The part of TeamTables that is the same in every database."""

    async def people(self) -> Sequence[PersonRecord]:
        return [_person(row) for row in await self.database.rows(f"SELECT {_PERSON} FROM person ORDER BY name")]  # noqa: S608

    async def person_with(self, token_hash: bytes, now: float) -> PersonRecord | None:
        # A person's own tokens depend on the one from the admin: revoking or rotating that one ends them all. Servers
        # of the version before rotate without deleting them.
        rows = await self.database.rows(
            f"""SELECT {_PERSON} FROM person WHERE revoked IS NULL AND (token_hash = ? OR id =
                 (SELECT token.person FROM token WHERE token.token_hash = ? AND token.expires > ?
                    AND token.created >= person.rotated))""",  # noqa: S608
            (token_hash, token_hash, now),
        )
        return _person(rows[0]) if rows else None

    async def remove_person(self, person: str) -> bool:
        for table in ("token", "login"):
            await self.database.change(f"DELETE FROM {table} WHERE person = ? RETURNING 1", (person,))  # noqa: S608
        await self.database.change("UPDATE open_request SET person = '' WHERE person = ? RETURNING 1", (person,))
        sums = ", ".join(f"{one} = usage_day.{one} + excluded.{one}" for one in ("admitted", *SUMS))
        await self.database.change(
            f"""INSERT INTO usage_day (day, person, team, model, admitted, {", ".join(SUMS)})
               SELECT day, '', team, model, admitted, {", ".join(SUMS)} FROM usage_day WHERE person = ?
               ON CONFLICT ({USE}) DO UPDATE SET {sums} RETURNING 1""",  # noqa: S608
            (person,),
        )
        await self.database.change("DELETE FROM usage_day WHERE person = ? RETURNING 1", (person,))
        return bool(await self.database.change("DELETE FROM person WHERE id = ? RETURNING 1", (person,)))

    async def add_token(self, token: TokenRecord, token_hash: bytes, by: bytes, most: int) -> bool:
        delete_expired = SqlStatement(
            """DELETE FROM token WHERE token_hash IN (SELECT token_hash FROM token WHERE expires <= ? LIMIT ?)
               RETURNING 1""",
            (token.created, EXPIRE_AT_ONCE),
        )
        # Changing nothing locks the person in PostgreSQL: tokens are counted one after the other, and a rotation at
        # this moment comes before the token, which is then refused, or after it, and then deletes it.
        lock = SqlStatement("UPDATE person SET rotated = rotated WHERE id = ? RETURNING 1", (token.person,))
        insert = SqlStatement(
            f"""INSERT INTO token ({_TOKEN}, token_hash) SELECT {marks(6)} FROM person WHERE person.id = ? AND {_CALLS}
                AND (SELECT count(*) FROM token WHERE token.person = ? AND token.expires > ?) < ? RETURNING 1""",  # noqa: S608
            (
                *(*astuple(token), token_hash),
                *(token.person, by, by, token.created),
                *(token.person, token.created, most),
            ),
        )
        _, _, added = await self.database.change_all([delete_expired, lock, insert])
        return bool(added)

    async def tokens(self, person: str) -> Sequence[TokenRecord]:
        statement = f"SELECT {_TOKEN} FROM token WHERE person = ? ORDER BY created DESC, id"  # noqa: S608
        return [TokenRecord(*row) for row in await self.database.rows(statement, (person,))]  # type: ignore[arg-type]

    async def end_token(self, person: str, id: str) -> bool:
        return bool(
            await self.database.change("DELETE FROM token WHERE person = ? AND id = ? RETURNING 1", (person, id))
        )

    async def erase_person(self, person: str, scopes: Sequence[str], at: float) -> None:
        await self.database.change(*erase(person, scopes, at))

    async def erased_since(self, seq: int) -> Sequence[ErasedPerson]:
        rows = await self.database.rows("SELECT seq, person, scopes FROM erased WHERE seq > ? ORDER BY seq", (seq,))
        return [ErasedPerson(int(str(seq)), str(id), tuple(str(scopes).split())) for seq, id, scopes in rows]

    async def erase_scope(self, scope: str) -> None:
        await self.database.change("DELETE FROM provider_object WHERE scope = ? RETURNING 1", (scope,))
        for table in ("tombstone", "fact"):
            await self.database.change(f"DELETE FROM {table} WHERE scope = ? RETURNING 1", (encode_text(scope),))  # noqa: S608

    async def add_person(self, person: PersonRecord, token_hash: bytes, by: bytes | None) -> bool:
        condition, values = _by_admin(by, person.created)
        added = await self.database.change(
            f"""INSERT INTO person ({_PERSON}, token_hash) SELECT {marks(9)} WHERE {condition}
                ON CONFLICT DO NOTHING RETURNING 1""",
            (*astuple(person), token_hash, *values),
        )
        return bool(added)

    async def rotate_person(self, name: str, at: float, token_hash: bytes, by: bytes | None) -> PersonRecord | None:
        condition, values = _by_admin(by, at)
        rotate = SqlStatement(
            f"""UPDATE person SET token_hash = ?, rotated = ?, revoked = NULL WHERE name = ? AND {condition}
                AND NOT EXISTS (SELECT 1 FROM erased WHERE erased.person = person.id) RETURNING {_PERSON}""",  # noqa: S608
            (token_hash, at, name, *values),
        )
        # Not by their times alone: a server whose clock is ahead may have made them, or both may be of one millisecond.
        rotated_id = "(SELECT id FROM person WHERE name = ? AND token_hash = ?)"
        delete = [
            SqlStatement(f"DELETE FROM {table} WHERE person = {rotated_id} RETURNING 1", (name, token_hash))  # noqa: S608
            for table in ("token", "login")
        ]
        rotated, *_ = await self.database.change_all([rotate, *delete])
        return _person(rotated[0]) if rotated else None

    async def revoke_person(self, name: str, at: float) -> PersonRecord | None:
        statement = f"UPDATE person SET revoked = ? WHERE name = ? RETURNING {_PERSON}"  # noqa: S608
        revoked = await self.database.change(statement, (at, name))
        return _person(revoked[0]) if revoked else None

    async def change_by_login(self, person: PersonRecord) -> bool:
        changed = await self.database.change(
            """UPDATE person SET role = ?, team = ?, subject = ?
               WHERE id = ? AND revoked IS NULL AND subject IN ('', ?) RETURNING 1""",
            (person.role, person.team, person.subject, person.id, person.subject),
        )
        return bool(changed)

    async def take_login(self, id_hash: bytes) -> LoginRecord | None:
        rows = await self.database.change(f"DELETE FROM login WHERE id_hash = ? RETURNING {_LOGIN}", (id_hash,))  # noqa: S608
        return LoginRecord(*rows[0]) if rows else None  # type: ignore[arg-type]

    async def person_logged_in(self, id_hash: bytes, now: float) -> PersonRecord | None:
        rows = await self.database.rows(
            f"""SELECT {_PERSON} FROM login JOIN person ON person.id = login.person
               WHERE id_hash = ? AND expires > ? AND began >= rotated AND revoked IS NULL""",  # noqa: S608
            (id_hash, now),
        )
        return _person(rows[0]) if rows else None

    async def audit(self, before: int, limit: int, since: float = 0.0) -> Sequence[tuple[int, AuditEntry]]:
        rows = await self.database.rows(
            f"SELECT seq, {_AUDIT} FROM audit_log WHERE seq < ? AND at >= ? ORDER BY seq DESC LIMIT ?",  # noqa: S608
            (before, since, limit),
        )
        return [(seq, AuditEntry(*row)) for seq, *row in rows]  # type: ignore[arg-type, misc]


def _by_admin(by: bytes | None, now: float) -> SqlStatement:
    """Return the condition that `by` is an admin's credential; the server itself has none."""
    if by is None:
        return SqlStatement("TRUE", ())
    return SqlStatement(f"EXISTS (SELECT 1 FROM person WHERE role = 'admin' AND {_CALLS})", (by, by, now))  # noqa: S608


def login_row(login: LoginRecord) -> Row:
    """Return the values of ADD_LOGIN."""
    return *astuple(login), login.person, login.person


def erase(person: str, scopes: Sequence[str], at: float) -> SqlStatement:
    """Return what notes that a person's data is erased; doing it again adds the scopes that were found since."""
    return SqlStatement(
        """INSERT INTO erased (person, scopes, at) VALUES (?, ?, ?)
           ON CONFLICT (person) DO UPDATE SET scopes = excluded.scopes RETURNING 1""",
        (person, " ".join(scopes), at),
    )


def select_spent(wanted: UsageRange) -> SqlStatement:
    """Return what asks for the requests and the money of a range, that of open requests with it."""
    chosen = [(name, value) for name in ("person", "team") if (value := getattr(wanted, name)) is not None]
    where = "".join(f" AND {name} = ?" for name, _ in chosen) + f" AND {one_of('model', wanted.models)}"
    values = wanted.since, *(value for _, value in chosen), *(wanted.models or ())
    return SqlStatement(
        f"""SELECT CAST(coalesce(sum(admitted), 0) AS bigint), CAST(coalesce(sum(usd), 0) AS double precision) FROM (
             SELECT admitted, cost_usd AS usd FROM usage_day WHERE day >= ?{where}
             UNION ALL SELECT 0, usd FROM open_request WHERE settled IS NULL AND day >= ?{where}) AS used""",  # noqa: S608
        (*values, *values),
    )


def _person(row: Row) -> PersonRecord:
    return PersonRecord(*row)  # type: ignore[arg-type]

"""Usage by day and open requests in a database."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple

from kimi_proxy.services.store.sql import PERSON_OR_NO_ONE, D, Row, SqlStatement, SqlTables, marks, name_of, one_of
from kimi_proxy.services.store.usage import SUMS, OpenRequest, UsageKey, UsageSum

USE = "day, person, team, model"


_ESTIMATE = f"{USE}, usd, input_tokens"


SETTLE_EXPIRED = f"""UPDATE open_request SET settled = ? WHERE settled IS NULL AND expires < ?
  RETURNING {_ESTIMATE}"""  # noqa: S608


FORGET_SETTLED = "DELETE FROM open_request WHERE settled < ?"


SETTLED_S = 86_400.0  # for so long a server that was taken for dead can still say what its request cost


USED = f"?, {PERSON_OR_NO_ONE}, ?, ?"


ADD_USAGE = f"""INSERT INTO usage_day ({USE}, {", ".join(SUMS)}) VALUES ({USED}, {marks(len(SUMS))})
  ON CONFLICT ({USE}) DO UPDATE SET {", ".join(f"{name} = usage_day.{name} + excluded.{name}" for name in SUMS)}"""  # noqa: S608


_OPEN = f"id, {USE}, usd, input_tokens, expires"


OPEN_REQUEST = f"INSERT INTO open_request ({_OPEN}) VALUES (?, {USED}, {marks(3)}) ON CONFLICT (id) DO NOTHING"  # noqa: S608


CLOSE_REQUEST = f"DELETE FROM open_request WHERE id = ? RETURNING {_ESTIMATE}, settled"  # noqa: S608


class SqlUsage(SqlTables[D]):
    """The part of UsageTables that is the same in every database."""

    async def usage(self, since: str, people: Collection[str] | None = None) -> Sequence[tuple[UsageKey, UsageSum]]:
        ids = None if people is None else list(people)
        rows = await self.database.rows(
            f"""SELECT day, {name_of("usage_day.person")} AS name, team, model, {", ".join(SUMS)} FROM usage_day
               WHERE day >= ? AND requests > 0 AND {one_of("person", ids)} ORDER BY day, name, team, model""",  # noqa: S608
            (since, *(ids or ())),
        )
        return [(UsageKey(*row[:4]), UsageSum(*row[4:])) for row in rows]  # type: ignore[arg-type]

    async def settle(self, id: str, usd: float) -> None:
        await self.database.change(
            "UPDATE open_request SET usd = ? WHERE id = ? AND settled IS NULL RETURNING 1", (usd, id)
        )


def use_row(use: UsageKey) -> Row:
    """Return the values of ADMIT, with which those of other requests that count usage begin."""
    return use.day, use.person, use.person, use.team, use.model


def open_row(one: OpenRequest) -> Row:
    """Return the values of OPEN_REQUEST."""
    return one.id, *use_row(one.use), one.usd, one.input_tokens, one.expires


def hold(ids: Sequence[str], expires: float) -> SqlStatement:
    return SqlStatement(f"UPDATE open_request SET expires = ? WHERE {one_of('id', ids)}", (expires, *ids))  # noqa: S608


def usage_of_closed(rows: Iterable[Row]) -> list[tuple[UsageKey, UsageSum]]:
    """Return what rows of open requests add to the counts: they were sent, and how they ended is not known."""
    found: dict[UsageKey, UsageSum] = {}
    for day, person, team, model, usd, tokens in rows:
        key = UsageKey(str(day), str(person), str(team), str(model))
        lost = UsageSum(requests=1, input_tokens=tokens, cost_usd=usd)  # type: ignore[arg-type]
        found[key] = found.get(key, UsageSum()) + lost
    return sorted(found.items(), key=lambda pair: pair[0])


def usage_to_take_back(closed: Iterable[Row]) -> list[tuple[UsageKey, UsageSum]]:
    """Return the estimates, as negative usage, of rows that another server had settled before their own did."""
    settled = usage_of_closed(row[:-1] for row in closed if row[-1] is not None)
    return [
        (key, UsageSum(requests=-one.requests, input_tokens=-one.input_tokens, cost_usd=-one.cost_usd))
        for key, one in settled
    ]


def usage_rows(added: Sequence[tuple[UsageKey, UsageSum]]) -> list[Row]:
    """Return the values of ADD_USAGE for the usage of requests."""
    return [(*use_row(key), *astuple(one)) for key, one in added]

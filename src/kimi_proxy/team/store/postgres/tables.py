"""PostgreSQL's own statements: write, search and expire sessions, decisions and team data on every server."""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from types import MappingProxyType

from psycopg import errors

from kimi_proxy.core.cache import in_batches
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.lines import encode_text
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store.protocols import CompressionRecord, DecisionRecord, SessionRecord
from kimi_proxy.services.store.sql import Moment, Row, audit_block, erased_among, note_deleted
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
from kimi_proxy.services.store.sql.usage import (
    ADD_USAGE,
    CLOSE_REQUEST,
    FORGET_SETTLED,
    OPEN_REQUEST,
    SETTLE_EXPIRED,
    SETTLED_S,
    hold,
    open_row,
    usage_of_closed,
    usage_rows,
    usage_to_take_back,
    use_row,
)
from kimi_proxy.services.store.usage import OpenRequest, UsageKey, UsageSum, usage_of
from kimi_proxy.team.records import AuditEntry, LoginRecord, Spent, UsageRange
from kimi_proxy.team.store.postgres.database import (
    Connection,
    PostgresDatabase,
    execute,
    read_bytes,
    read_float,
    storable,
    to_psycopg,
)
from kimi_proxy.team.store.postgres.partitions import Partitions
from kimi_proxy.team.store.postgres.replicas import without_events_of
from kimi_proxy.team.store.sql import (
    ADD_AUDIT,
    ADD_LOGIN,
    ADMIT,
    EXPIRE_AT_ONCE,
    SqlTeam,
    erase,
    login_row,
    select_spent,
)

COMPRESSING = 1802071404  # an advisory lock, with the session as its second number


class PostgresDecisions(SqlDecisions[PostgresDatabase]):
    async def get(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        scope = who.scope

        async def work(connection: Connection, moment: Moment) -> Mapping[bytes, DecisionRecord]:
            found = await _fetch(connection, scope, keys)
            # A use is written once a day, or twice within a short ttl: not with every request.
            stale = moment.earliest - min(DAY_S, self._ttl_s / 2)
            used = [key for key, record in found.items() if record.last_used < stale]
            if used:
                with suppress(errors.ReadOnlySqlTransaction, errors.DiskFull):
                    await connection.execute(
                        "UPDATE decision SET last_used = %s WHERE scope = %s AND place = ANY(%s)",
                        (moment.latest, encode_text(scope), used),
                    )
            return found

        return await self.database.read(work)

    async def times(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, float]:
        async def work(connection: Connection, moment: Moment) -> Mapping[bytes, float]:
            rows = await connection.execute(
                "SELECT place, created FROM decision WHERE scope = %s AND place = ANY(%s)",
                (encode_text(who.scope), list(keys)),
            )
            return {read_bytes(key): read_float(created) for key, created in await rows.fetchall()}

        return await self.database.read(work)

    async def add(
        self,
        who: Caller,
        new: Sequence[DecisionRecord],
        forget: Sequence[bytes] = (),
        replaces: Mapping[bytes, float] = MappingProxyType({}),
    ) -> Mapping[bytes, DecisionRecord]:
        scope = who.scope

        async def work(connection: Connection, moment: Moment) -> Mapping[bytes, DecisionRecord]:
            if forget:
                await connection.execute(
                    "DELETE FROM decision WHERE scope = %s AND place = ANY(%s)", (encode_text(scope), list(forget))
                )
            if replaces:
                # A row that another server is replacing is waited for, and is then no longer the one that was read.
                await connection.execute(
                    """DELETE FROM decision USING unnest(%s::bytea[], %s::float8[]) AS old (place, created)
                       WHERE decision.scope = %s AND decision.place = old.place AND decision.created = old.created""",
                    (list(replaces), list(replaces.values()), encode_text(scope)),
                )
            # In one order on every server, so that no two of them wait for each other.
            ordered = sorted(new, key=lambda one: one.key)
            rows = [decision_row(who, record, moment.latest) for record in ordered]
            await connection.cursor().executemany(to_psycopg(ADD_DECISION), rows)
            await connection.execute(
                """DELETE FROM decision WHERE seq IN
                     (SELECT seq FROM decision WHERE last_used < %s ORDER BY last_used LIMIT %s
                      FOR UPDATE SKIP LOCKED)""",
                (moment.earliest - self._ttl_s, DECISIONS_AT_ONCE),
            )
            return await _fetch(connection, scope, [record.key for record in new])

        return check_added(await self.database.run(work), new)

    async def add_compression(self, who: Caller, made: CompressionRecord, after: str | None = None) -> bool:
        async def work(connection: Connection, moment: Moment) -> bool:
            # Held until the commit, so that the second of two servers sees the first one's count.
            await connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (COMPRESSING, made.session))
            found = await execute(connection, *active_compression(who, made.session))
            active = (await found.fetchone() or (None,))[0]
            if active == after:
                return bool((await execute(connection, *new_compression(who, made))).rowcount)
            return active == made.id

        with audit_block(self.database.note, who, "compress", made.session):
            return await self.database.run(work)


async def _fetch(connection: Connection, scope: str, keys: Sequence[bytes]) -> dict[bytes, DecisionRecord]:
    rows = await connection.execute(
        f"SELECT {DECISION} FROM decision WHERE scope = %s AND place = ANY(%s)".encode(),  # noqa: S608 - one fixed text
        (encode_text(scope), list(keys)),
    )
    found = {record.key: record for row in await rows.fetchall() for record in (decision(row),)}
    return {key: found[key] for key in keys if key in found}


BUDGETS = 1802071403  # an advisory lock: requests with a budget are counted one after the other


class PostgresTeam(SqlTeam[PostgresDatabase]):
    async def erase_person(self, person: str, scopes: Sequence[str], at: float) -> None:
        async def work(connection: Connection, moment: Moment) -> None:
            # Wait for transactions that found the person not erased: after this, all that they wrote can be deleted.
            await connection.execute("LOCK TABLE erased IN ACCESS EXCLUSIVE MODE")
            await execute(connection, *erase(person, scopes, at))
            await _erase_events(connection, person)

        await self.database.run(work)

    async def keep_login(self, login: LoginRecord) -> None:
        await self.database.change(
            f"""WITH expired AS (
                 DELETE FROM login WHERE id_hash IN
                   (SELECT id_hash FROM login WHERE expires <= ? LIMIT ? FOR UPDATE SKIP LOCKED))
               {ADD_LOGIN} RETURNING 1""",  # noqa: S608 - a fixed text
            (login.began, EXPIRE_AT_ONCE, *login_row(login)),
        )

    async def admit(
        self,
        use: UsageKey,
        ranges: Sequence[UsageRange],
        decide: Callable[[Sequence[Spent]], bool],
        reserve: OpenRequest | None = None,
    ) -> Sequence[Spent]:
        async def work(connection: Connection, moment: Moment) -> Sequence[Spent]:
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (BUDGETS,))
            rows = [await (await execute(connection, *select_spent(each))).fetchone() for each in ranges]
            used = [Spent(*row) for row in rows if row]  # type: ignore[arg-type]
            if decide(used):
                await execute(connection, ADMIT, use_row(use))
                if reserve is not None:
                    await execute(connection, OPEN_REQUEST, open_row(reserve))
            return used

        return await self.database.run(work)

    async def hold_open(self, new: Sequence[OpenRequest], held: Collection[str], expires: float) -> None:
        async def work(connection: Connection, moment: Moment) -> None:
            for one in new:
                await execute(connection, OPEN_REQUEST, open_row(one))
            await execute(connection, *hold(tuple(sorted(held)), expires))

        await self.database.run(work)

    async def close_requests(self, done: Sequence[tuple[str, UsageKey, UsageSum]]) -> None:
        async def work(connection: Connection, moment: Moment) -> None:
            taken_back = await _close_requests(connection, [id for id, _, _ in done])
            added = [(key, one) for _, key, one in done]
            await add_usage(connection, sorted([*added, *taken_back], key=lambda pair: pair[0]))

        await self.database.run(work)

    async def close_expired(self, now: float) -> int:
        async def work(connection: Connection, moment: Moment) -> int:
            rows = await (await execute(connection, SETTLE_EXPIRED, (now, now))).fetchall()
            await add_usage(connection, usage_of_closed(rows))
            await execute(connection, FORGET_SETTLED, (now - SETTLED_S,))
            return len(rows)

        return await self.database.run(work)

    async def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        async def work(connection: Connection, moment: Moment) -> None:
            await connection.cursor().executemany(to_psycopg(ADD_AUDIT), [astuple(one) for one in entries])

        await self.database.run(work)

    async def expire_audit(self, before: float) -> int:
        gone = await self.database.change(
            """DELETE FROM audit_log WHERE seq IN (SELECT seq FROM audit_log WHERE at < ? ORDER BY seq LIMIT ?
                 FOR UPDATE SKIP LOCKED) RETURNING 1""",
            (before, EXPIRE_AT_ONCE),
        )
        return len(gone)


async def add_usage(connection: Connection, added: Sequence[tuple[UsageKey, UsageSum]]) -> None:
    """Add the usage of requests to the counts of their days; `added` is in the same order on every server."""
    for values in usage_rows(added):
        await execute(connection, ADD_USAGE, values)


async def _close_requests(connection: Connection, ids: Sequence[str]) -> list[tuple[UsageKey, UsageSum]]:
    """Close requests; return the usage to take back, because another server took theirs for dead."""
    closed = [row for id in sorted(ids) for row in await (await execute(connection, CLOSE_REQUEST, (id,))).fetchall()]
    return usage_to_take_back(closed)


class PostgresSessions(SqlSessions[PostgresDatabase]):
    """Requests stay for half a year; a session stays with its requests."""

    def __init__(self, database: PostgresDatabase, partitions: Partitions) -> None:
        super().__init__(database)
        self._partitions = partitions

    async def write(self, sessions: Sequence[SessionRecord], metrics: Sequence[Metric]) -> None:
        async def work(connection: Connection, moment: Moment) -> None:
            await _delete_old(connection, moment.earliest)
            erased = await _find_erased(
                connection, [*(one.person for one in sessions), *(one.person for one in metrics)]
            )
            # Locked in one order on every server, so that no two of them wait for each other.
            ids = {storable(id) for id in (*(one.id for one in sessions), *(metric.session for metric in metrics))}
            await connection.execute("SELECT 1 FROM sessions WHERE id = ANY(%s) ORDER BY id FOR UPDATE", (list(ids),))
            for session in sorted(sessions, key=lambda session: session.id):
                if session.person not in erased:
                    await execute(connection, *open_session(session))
            # What an erased person has used is still counted, under no name.
            of_erased = [metric for metric in metrics if metric.person in erased]
            stored = await self._add(connection, [metric for metric in metrics if metric.person not in erased])
            added = usage_of([*of_erased, *stored])
            taken_back = await _close_requests(connection, [metric.id for metric in metrics])
            await add_usage(connection, sorted([*added, *taken_back], key=lambda pair: pair[0]))

        await self.database.run(work)

    async def _add(self, connection: Connection, metrics: Sequence[Metric]) -> list[Metric]:
        """Record requests and add them to their sessions; return those that were not recorded before."""
        # The unique index of a partition does not see what was written before there was that one.
        ids = [storable(metric.id) for metric in metrics]
        rows = await connection.execute("SELECT id FROM metrics WHERE id = ANY(%s)", (ids,))
        known = {str(id) for (id,) in await rows.fetchall()}
        added = list[Metric]()
        for metric in metrics:
            table, segments = (self._partitions.table_for(name, metric.at) for name in ("metrics", "memory_segments"))
            if storable(metric.id) in known or not (await execute(connection, *add_metric(metric, table))).rowcount:
                continue
            for statement in after_metric(metric, segments):
                await execute(connection, *statement)
            added.append(metric)
        return added

    async def secret(self) -> bytes:
        # Of servers that start at once, one inserts its own, and all read that one.
        if not (found := await self.database.rows(READ_KEY)):
            await self.database.change(f"{ADD_KEY} RETURNING 1", (secrets.token_bytes(KEY_BYTES),))
            found = await self.database.rows(READ_KEY)
        return read_bytes(found[0][0])

    async def search(self, who: Caller, words: str, limit: int) -> Sequence[SessionRecord]:
        theirs, own = session_filter(who.scopes)
        where = f"""{theirs} AND concat_ws(E'\\x01', title, name, id, model, provider) ILIKE ?
          ORDER BY last_used DESC, id DESC LIMIT ?"""
        return await self._sessions(who, where, (*own, containing(words), limit))

    async def delete(self, who: Caller, ids: Sequence[str]) -> Sequence[str]:
        deleted: list[str] = []
        for some in in_batches(ids, DELETE_AT_ONCE):
            deleted += await self._delete(who, " AND id = ANY(?)", (list(some),))
        note_deleted(self.database.note, who, "delete_session", ids, deleted)
        return deleted

    async def delete_all(self, who: Caller) -> Sequence[str]:
        with audit_block(self.database.note, who, "delete_session", "all"):
            return await self._delete(who)

    async def _delete(self, who: Caller, which: str = "", values: Row = ()) -> Sequence[str]:
        theirs, own = session_filter(who.scopes)
        where = f"{theirs}{which}"
        given = (*own, *values)

        async def work(connection: Connection, moment: Moment) -> Sequence[str]:
            for table in OF_SESSIONS:
                statement = f"DELETE FROM {table} WHERE session_id IN (SELECT id FROM sessions WHERE {where})"  # noqa: S608
                await execute(connection, statement, given)
            rows = await execute(connection, f"DELETE FROM sessions WHERE {where} RETURNING id", given)  # noqa: S608
            return [str(id) for (id,) in await rows.fetchall()]

        return await self.database.run(work)


async def _erase_events(connection: Connection, person: str) -> None:
    """Delete the live events of a person that other servers may not have read yet."""
    found = await connection.execute(
        "SELECT seq, events FROM event_batch WHERE position(%s IN events) > 0 FOR UPDATE", (person,)
    )
    for seq, events in await found.fetchall():
        left = without_events_of(person, str(events))
        if left:
            await connection.execute("UPDATE event_batch SET events = %s WHERE seq = %s", (left, seq))
        else:
            await connection.execute("DELETE FROM event_batch WHERE seq = %s", (seq,))


async def _find_erased(connection: Connection, people: Sequence[str]) -> frozenset[str]:
    """Return those of `people`, by id, whose data was erased; no one's is until this transaction ends."""
    rows = await execute(connection, *erased_among(people))
    return frozenset(str(id) for (id,) in await rows.fetchall())


async def _delete_old(connection: Connection, now: float) -> None:
    """Delete some of the expired rows; partitions are dropped."""
    for table in ("metrics", "memory_segments"):
        await connection.execute(
            f"""DELETE FROM ONLY {table} WHERE seq IN (SELECT seq FROM ONLY {table} WHERE at < %s ORDER BY at LIMIT %s
                  FOR UPDATE SKIP LOCKED)""".encode(),  # noqa: S608 - two fixed names
            (now - KEEP_S, DELETE_AT_ONCE),
        )
    await connection.execute(
        """DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE last_used < %s ORDER BY last_used LIMIT %s
             FOR UPDATE SKIP LOCKED)
           AND NOT EXISTS (SELECT 1 FROM metrics WHERE session_id = sessions.id)""",
        (now - KEEP_S, DELETE_AT_ONCE),
    )

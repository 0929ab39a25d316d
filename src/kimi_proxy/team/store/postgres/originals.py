"""Originals in PostgreSQL: committed before anything is cut, found by id or question by every server."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from random import randrange
from typing import Literal

from psycopg import errors

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import PruneIdNotFound, StoreUnavailable
from kimi_proxy.core.lines import decode_text, encode_text
from kimi_proxy.services.store.notes import SESSION_FIELD, of_person, of_sessions
from kimi_proxy.services.store.protocols import NEWEST, ListedOriginal, Original, StoredText
from kimi_proxy.services.store.sql import (
    ERASED,
    LEAP_S,
    CompressedText,
    Moment,
    Row,
    audit_block,
    compress,
    decompress,
    legible,
    note_deleted,
    readable,
)
from kimi_proxy.services.store.sql.decisions import LISTED_DECISION, listed_decision
from kimi_proxy.team.store.postgres.database import (
    Connection,
    Cursor,
    PostgresDatabase,
    Work,
    read_bytes,
    read_float,
    read_int,
)
from kimi_proxy.team.store.postgres.partitions import TOMBSTONE_S, Partitions

GRACE_S = 60.0  # expired originals stay this long, because a server with a slow clock may still use them
DELETE_AT_ONCE = 50  # at most: fewer while a transaction that deletes is long
DELETE_AT_FIRST = 5  # their pages have to be read from the disk
LONG_S = 0.04
SHARDS = 16  # rows of the table of totals, by its migration
PAGE = 1024  # of budget for the rows and indexes of an original


# What reads an original also writes that it was used; where nothing can be written, it is read all the same. That is
# not awaited: a crash loses at most the last half second of last-used times
_QUICKLY = "WITH quick AS (SELECT set_config('synchronous_commit', 'off', true) AS is_set)"
_PAGE = f"""SELECT record.seq, record.id, record.about, record.created, record.last_used, decided.* FROM record
  LEFT JOIN LATERAL (
    SELECT {LISTED_DECISION} FROM decision WHERE decision.scope = record.scope
      AND ids >= record.id AND ids < record.id || '!'::bytea ORDER BY ids LIMIT 1
  ) AS decided ON TRUE
  WHERE record.scope = ANY(%s) AND record.seq < %s ORDER BY record.seq DESC LIMIT %s"""  # noqa: S608 - fixed columns
_GET = f"""{_QUICKLY} UPDATE record SET last_used = greatest(last_used, %s) FROM text, quick
  WHERE quick.is_set = 'off' AND text.seq = record.text AND record.scope = ANY(%s) AND record.id = %s
    AND last_used >= %s
  RETURNING record.scope, record.key, record.about, text.hash, text.frame"""  # noqa: S608 - one fixed text
_PEEK = """SELECT record.scope, record.key, record.about, text.hash, text.frame
  FROM record JOIN text ON text.seq = record.text WHERE record.scope = ANY(%s) AND record.id = %s AND last_used >= %s"""
_LIVE = f"""{_QUICKLY} UPDATE record SET last_used = greatest(last_used, %s) FROM quick
  WHERE quick.is_set = 'off' AND scope = ANY(%s) AND id = ANY(%s) AND last_used >= %s RETURNING id"""  # noqa: S608
_ADD_TEXT = """INSERT INTO text (scope, hash, frame) SELECT %s, %s, %s
    WHERE NOT EXISTS (SELECT 1 FROM erased WHERE erased.person = %s)
  ON CONFLICT (scope, hash) DO UPDATE SET frame = excluded.frame RETURNING seq"""
_PEEK_LIVE = "SELECT id FROM record WHERE scope = ANY(%s) AND id = ANY(%s) AND last_used >= %s"


class PostgresOriginals:
    """They stay until they were idle for `ttl_s`, and leave earlier, the longest idle first, to fit `max_bytes`."""

    def __init__(self, database: PostgresDatabase, partitions: Partitions, ttl_s: float, max_bytes: int) -> None:
        self._database = database
        self._partitions = partitions
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self._at_once = DELETE_AT_FIRST
        self._swept = 0.0  # last use of what this sweep deleted: the index before it is full of deleted entries
        self._bytes = (
            0  # approximate size of the originals: counted by each sweep, plus those added by this server since
        )
        self.commits = 0

    async def keep(self, original: Original) -> None:
        compressed = await asyncio.to_thread(compress, original.text)
        size = len(compressed.frame) + len(original.about) + PAGE
        if size > self._max_bytes // 4:
            raise StoreUnavailable("a text may take at most a quarter of store.max_bytes: raise that setting")
        while self._bytes + size > self._max_bytes and await self.make_room(size):
            pass
        outcome = await self._database.run(
            lambda connection, moment: _insert(connection, moment, original, compressed, size)
        )
        if outcome == "erased":
            raise StoreUnavailable(ERASED)
        if outcome == "taken":
            raise StoreUnavailable(f"{original.id} is already the id of another original")
        self._bytes += size
        self.commits += 1

    async def find(self, who: Caller, key: bytes) -> str | None:
        async def work(connection: Connection, moment: Moment) -> str | None:
            rows = await connection.execute(
                """UPDATE record SET last_used = greatest(last_used, %s) WHERE seq =
                     (SELECT max(seq) FROM record WHERE scope = %s AND key = %s AND last_used >= %s) RETURNING id""",
                (moment.latest, encode_text(who.scope), key, moment.earliest - self._ttl_s),
            )
            row = await rows.fetchone()
            return decode_text(read_bytes(row[0])) if row else None

        return await self._database.read(work)

    async def find_hash(self, who: Caller, digest: bytes) -> str | None:
        async def work(connection: Connection, moment: Moment) -> str | None:
            rows = await connection.execute(
                """UPDATE record SET last_used = greatest(last_used, %s) WHERE seq =
                     (SELECT max(record.seq) FROM record JOIN text ON text.seq = record.text
                      WHERE text.scope = %s AND text.hash = %s AND record.scope = text.scope AND record.last_used >= %s)
                   RETURNING id""",
                (moment.latest, encode_text(who.scope), digest, moment.earliest - self._ttl_s),
            )
            row = await rows.fetchone()
            return decode_text(read_bytes(row[0])) if row else None

        return await self._database.read(work)

    async def get(self, who: Caller, id: str) -> Original:
        async def work(connection: Connection, moment: Moment) -> Row:
            handle = ([*map(encode_text, who.scopes)], encode_text(id))
            values = (moment.latest, *handle, moment.earliest - self._ttl_s)
            row = await (await _execute_or_peek(connection, _GET, values, _PEEK)).fetchone()
            if row is not None:
                return row
            known = await connection.execute(
                """SELECT 1 FROM record WHERE scope = ANY(%s) AND id = %s
                   UNION ALL SELECT 1 FROM tombstone WHERE scope = ANY(%s) AND id = %s AND expired >= %s""",
                (*handle * 2, moment.earliest - TOMBSTONE_S),
            )
            raise PruneIdNotFound(id, "expired" if await known.fetchone() else "unknown")

        with audit_block(self._database.note, who, "recover", id):
            scope, key, about, hashed, frame = map(read_bytes, await self._database.read(work))
            text = decompress(CompressedText(hashed, frame))
            return Original(id, decode_text(scope), key, text, about)

    async def live(self, who: Caller, ids: Collection[str]) -> frozenset[str]:
        async def work(connection: Connection, moment: Moment) -> frozenset[str]:
            scopes = [*map(encode_text, who.scopes)]
            wanted = [*map(encode_text, ids)]
            values = (moment.latest, scopes, wanted, moment.earliest - self._ttl_s)
            rows = await _execute_or_peek(connection, _LIVE, values, _PEEK_LIVE)
            return frozenset(decode_text(read_bytes(id)) for (id,) in await rows.fetchall())

        return await self._database.read(work)

    async def note(self, who: Caller, id: str) -> bytes | None:
        async def work(connection: Connection, moment: Moment) -> Row | None:
            statement = "SELECT about FROM record WHERE scope = ANY(%s) AND id = %s"
            return await (
                await connection.execute(statement, ([*map(encode_text, who.scopes)], encode_text(id)))
            ).fetchone()

        row = await self._database.read(work)
        return read_bytes(row[0]) if row else None

    async def page(self, who: Caller, before: int, limit: int) -> Sequence[ListedOriginal]:
        async def work(connection: Connection, moment: Moment) -> Sequence[ListedOriginal]:
            rows = await connection.execute(_PAGE.encode(), ([*map(encode_text, who.scopes)], before, limit))
            return [_read_listed(row) for row in await rows.fetchall()]

        return await self._database.read(work)

    async def texts(
        self, who: Caller, before: int, limit: int, ids: Collection[str] | None = None
    ) -> Sequence[StoredText]:
        chosen = None if ids is None else [*map(encode_text, ids)]

        async def work(connection: Connection, moment: Moment) -> list[Row]:
            rows = await connection.execute(
                """SELECT record.seq, record.id, record.about, text.hash, text.frame
                   FROM record JOIN text ON text.seq = record.text
                   WHERE record.scope = ANY(%s) AND (%s::bytea[] IS NULL OR record.id = ANY(%s)) AND record.seq < %s
                   ORDER BY record.seq DESC LIMIT %s""",
                ([*map(encode_text, who.scopes)], chosen, chosen, before, limit),
            )
            return await rows.fetchall()

        with audit_block(self._database.note, who, "search") if before == NEWEST else nullcontext():
            rows = await self._database.read(work)
            return [
                StoredText(
                    read_int(seq),
                    legible(read_bytes(id)),
                    read_bytes(about),
                    readable(read_bytes(hashed), read_bytes(frame)),
                )
                for seq, id, about, hashed, frame in rows
            ]

    async def of_sessions(self, who: Caller, sessions: Collection[str] | None) -> frozenset[str]:
        needles = [SESSION_FIELD] if sessions is None else [encode_text(session) for session in sessions]

        async def work(connection: Connection, moment: Moment) -> frozenset[str]:
            rows = await connection.execute(
                """SELECT DISTINCT id, about FROM record JOIN unnest(%s::bytea[]) AS wanted (needle)
                     ON position(needle IN about) > 0 WHERE scope = ANY(%s)""",
                (needles, [*map(encode_text, who.scopes)]),
            )
            return of_sessions(await rows.fetchall(), sessions)

        return await self._database.read(work)

    async def of_person(self, who: Caller, person_id: str) -> Mapping[str, str]:
        async def work(connection: Connection, moment: Moment) -> Mapping[str, str]:
            rows = await connection.execute(
                "SELECT id, about FROM record WHERE scope = ANY(%s) AND position(%s IN about) > 0",
                ([*map(encode_text, who.scopes)], encode_text(person_id)),
            )
            return of_person(await rows.fetchall(), person_id)

        return await self._database.read(work)

    async def delete(self, who: Caller, ids: Collection[str]) -> frozenset[str]:
        wanted = sorted(ids)
        gone = set[str]()
        for start in range(0, len(wanted), DELETE_AT_ONCE):
            some = [encode_text(id) for id in wanted[start : start + DELETE_AT_ONCE]]

            async def work(connection: Connection, moment: Moment, some: list[bytes] = some) -> list[Row]:
                return await self._bury(
                    connection,
                    moment.latest,
                    "SELECT seq FROM record WHERE scope = ANY(%s) AND id = ANY(%s) FOR UPDATE",
                    ([*map(encode_text, who.scopes)], some),
                )

            gone.update(decode_text(read_bytes(id)) for id, *_ in await self._database.run(work))
        note_deleted(self._database.note, who, "delete_original", wanted, gone)
        return frozenset(gone)

    async def newest_use(self) -> float | None:
        async def work(connection: Connection, moment: Moment) -> float | None:
            row = await (await connection.execute("SELECT max(last_used) FROM record")).fetchone()
            return None if row is None or row[0] is None else read_float(row[0])

        return await self._database.read(work)

    async def count(self) -> tuple[int, int, float | None]:
        """Return how many originals there are, the bytes that they take, and when the oldest was kept."""

        async def work(connection: Connection, moment: Moment) -> tuple[int, int, float | None]:
            # Summed up from a few rows: to count millions of originals takes seconds.
            rows = await connection.execute("SELECT sum(originals)::bigint, sum(bytes)::bigint FROM kept")
            count, size = await rows.fetchone() or (0, 0)
            oldest = await (await connection.execute("SELECT created FROM record ORDER BY seq LIMIT 1")).fetchone()
            return read_int(count), read_int(size), read_float(oldest[0]) if oldest else None

        found = await self._database.read(work)
        self._bytes = found[1]
        return found

    async def expire(self) -> int:
        """Delete some expired originals, on one server at a time; return their number."""

        async def work(connection: Connection, moment: Moment) -> int:
            await connection.execute(
                """DELETE FROM ONLY tombstone WHERE (scope, id) IN
                     (SELECT scope, id FROM ONLY tombstone WHERE expired < %s ORDER BY expired LIMIT 1000)""",
                (moment.earliest - TOMBSTONE_S,),
            )
            if moment.is_certain:
                # Later stamps come from a clock that ran ahead; without this they would never expire.
                await connection.execute(
                    "UPDATE record SET last_used = %s WHERE last_used > %s", (moment.latest, moment.latest + LEAP_S)
                )
            before = moment.earliest - self._ttl_s - GRACE_S
            return await self._delete_idle(connection, moment.latest, self._at_once, before)

        return await self._run_timed(work)

    async def make_room(self, needed: int = 0) -> int:
        """Delete some of the longest idle while `needed` more bytes do not fit; return how many originals went."""
        _, used, _ = await self.count()
        if used + needed <= self._max_bytes:
            return 0

        async def work(connection: Connection, moment: Moment) -> int:
            rows = await connection.execute(
                "SELECT size FROM record WHERE last_used >= %s ORDER BY last_used LIMIT %s",
                (self._swept, self._at_once),
            )
            left, go = used + needed, 0
            for (size,) in await rows.fetchall():
                if left <= self._max_bytes:
                    break
                left, go = left - read_int(size), go + 1
            return await self._delete_idle(connection, moment.latest, go, float("inf"))

        gone = await self._run_timed(work)
        await self.count()
        return gone

    async def _run_timed(self, work: Work[int]) -> int:
        """Do `work` alone, and have the next one delete as many as take half of LONG_S, going by this one."""
        began = time.monotonic()
        gone = await self._database.alone(work)
        fit = int(gone * LONG_S / 2 / max(time.monotonic() - began, 0.001))
        self._at_once = min(max(fit, 2), 2 * self._at_once, DELETE_AT_ONCE) if gone else DELETE_AT_FIRST
        return gone

    async def _delete_idle(self, connection: Connection, now: float, limit: int, before: float) -> int:
        """Turn the longest idle into tombstones, drop texts that nothing refers to any more; return how many went."""
        chosen = """SELECT seq FROM record WHERE last_used >= %s AND last_used < %s ORDER BY last_used LIMIT %s
          FOR UPDATE SKIP LOCKED"""
        gone = await self._bury(connection, now, chosen, (self._swept, before, limit))
        self._swept = max((read_float(last_used) for *_, last_used in gone), default=0.0)
        return len(gone)

    async def _bury(self, connection: Connection, now: float, chosen: str, values: Row) -> list[Row]:
        """Turn `chosen` originals into tombstones, and drop texts that nothing refers to.

        Return the id, the text, the size and the last use of each.
        """
        tombstones = self._partitions.table_for("tombstone", now)
        rows = await connection.execute(
            f"""WITH chosen AS ({chosen}), gone AS (
                 DELETE FROM record USING chosen WHERE record.seq = chosen.seq
                 RETURNING record.scope, record.id, record.text, record.size, record.last_used
               ), buried AS (
                 INSERT INTO {tombstones} (scope, id, expired) SELECT scope, id, %s FROM gone ON CONFLICT DO NOTHING
               )
               SELECT id, text, size, last_used FROM gone""".encode(),  # noqa: S608 - fixed texts and a name of ours
            (*values, now),
        )
        gone = await rows.fetchall()
        if gone:
            await _count(connection, -len(gone), -sum(read_int(size) for _, _, size, _ in gone))
        await connection.execute(
            "DELETE FROM text WHERE seq = ANY(%s) AND NOT EXISTS (SELECT 1 FROM record WHERE record.text = text.seq)",
            ([read_int(text) for _, text, *_ in gone],),
        )
        return gone


async def _insert(
    connection: Connection, moment: Moment, original: Original, compressed: CompressedText, size: int
) -> Literal["kept", "taken", "erased"]:
    """Store an original, unless its id is taken or its person's data was erased.

    Storing it twice keeps one, with the newer note.
    """
    scope = encode_text(original.scope)
    id = encode_text(original.id)
    # The same text is stored once. If the disk has damaged it since, this copy repairs it.
    values = (scope, compressed.hash, compressed.frame, original.person)
    added = await (await connection.execute(_ADD_TEXT.encode(), values)).fetchone()
    if added is None:
        return "erased"
    (text,) = added
    rows = await connection.execute(
        """INSERT INTO record (scope, id, key, text, size, about, created, last_used)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
           ON CONFLICT (scope, id) DO UPDATE SET
             last_used = greatest(record.last_used, excluded.last_used), about = excluded.about
             WHERE record.key = excluded.key AND record.text = excluded.text
           RETURNING xmax = 0""",
        (scope, id, original.key, text, size, original.about, moment.latest, moment.latest),
    )
    row = await rows.fetchone()
    if row is not None and row[0]:
        await _count(connection, 1, size)
    return "taken" if row is None else "kept"


async def _execute_or_peek(connection: Connection, statement: str, values: Sequence[object], peek: str) -> Cursor:
    """Execute `statement`; `peek` without its first value if the database can only be read."""
    try:
        return await connection.execute(statement.encode(), values)
    except (errors.ReadOnlySqlTransaction, errors.DiskFull):
        return await connection.execute(peek.encode(), values[1:])


async def _count(connection: Connection, originals: int, size: int) -> None:
    """Add to the totals, in one of several rows: servers that keep originals at once rarely wait for each other."""
    await connection.execute(
        "UPDATE kept SET originals = originals + %s, bytes = bytes + %s WHERE shard = %s",
        (originals, size, randrange(SHARDS)),  # noqa: S311 - no secret
    )


def _read_listed(row: Row) -> ListedOriginal:
    seq, id, about, created, last_used, *decided = row
    return ListedOriginal(
        seq=read_int(seq),
        id=legible(read_bytes(id)),
        about=read_bytes(about),
        created=read_float(created),
        last_used=read_float(last_used),
        decision=listed_decision(tuple(decided)) if decided[0] is not None else None,
    )

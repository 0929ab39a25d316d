"""Decisions in PostgreSQL: the first server to commit one decides for all of them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from psycopg import errors

from kimi_proxy.core import json
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.lines import decoded, encoded
from kimi_proxy.services.store.clock import Moment
from kimi_proxy.services.store.compressed import CompressedText, compress, decompress
from kimi_proxy.services.store.postgres.database import Connection, PostgresDatabase, read_bytes, read_float
from kimi_proxy.services.store.protocols import (
    CompressionRecord,
    CompressionTotals,
    DecisionRecord,
    DecisionTotals,
    Scopes,
)

DAY_S = 86_400.0
EXPIRE_AT_ONCE = 200  # so that no transaction is long
NEWEST_COMPRESSIONS = 20

_PIN = "place, why, hash, shown, ids, preview, session, tokens_before, tokens_after, created, last_used"


class PostgresDecisions:
    """Decisions about parts expire when they have not been used for `ttl_s`; compressions stay with their session."""

    def __init__(self, database: PostgresDatabase, ttl_s: float) -> None:
        self._database = database
        self._ttl_s = ttl_s

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

        return await self._database.read(work)

    async def times(self, scope: str, keys: Sequence[bytes]) -> Mapping[bytes, float]:
        async def work(connection: Connection, moment: Moment) -> Mapping[bytes, float]:
            rows = await connection.execute(
                "SELECT place, created FROM pin WHERE scope = %s AND place = ANY(%s)", (encoded(scope), list(keys))
            )
            return {read_bytes(key): read_float(created) for key, created in await rows.fetchall()}

        return await self._database.read(work)

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
                await _insert(connection, scope, record, moment.latest)
            await connection.execute(
                """DELETE FROM pin WHERE seq IN (SELECT seq FROM pin WHERE last_used < %s ORDER BY last_used LIMIT %s
                     FOR UPDATE SKIP LOCKED)""",
                (moment.earliest - self._ttl_s, EXPIRE_AT_ONCE),
            )
            return await _fetch(connection, scope, [record.key for record in new])

        return await self._database.run(work)

    async def of_original(self, scope: str, id: str) -> DecisionRecord | None:
        return await self._database.read(lambda connection, _: decision_of(connection, scope, id, with_shown=True))

    async def totals(self, scope: str) -> DecisionTotals:
        async def work(connection: Connection, moment: Moment) -> DecisionTotals:
            rows = await connection.execute(
                "SELECT why, count(*) FROM pin WHERE scope = %s AND (ids <> '' OR shown IS NULL) GROUP BY why",
                (encoded(scope),),
            )
            outputs = {str(why): int(str(count)) for why, count in await rows.fetchall()}
            rows = await connection.execute(
                """SELECT coalesce(sum(tokens_before), 0)::bigint, coalesce(sum(tokens_after), 0)::bigint
                   FROM pin WHERE scope = %s AND ids <> ''""",
                (encoded(scope),),
            )
            before, after = await rows.fetchone() or (0, 0)
            return DecisionTotals(outputs, int(str(before)), int(str(after)))

        return await self._database.read(work)

    async def add_compression(self, made: CompressionRecord) -> None:
        compressed = compress(json.encode({"message": made.message, "summary": made.summary}))
        ratio = round(1 - made.compressed_tokens / made.original_tokens, 4) if made.original_tokens else 0.0

        async def work(connection: Connection, moment: Moment) -> None:
            await connection.execute(
                """INSERT INTO compression_log (handle, session_id, timestamp, original_tokens, compressed_tokens, cut,
                     kept, fingerprint, hash, frame, original, summary_by, kind, automatic, undone, compression_ratio)
                   VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING""",
                (
                    *(made.id, made.session, made.at, made.original_tokens, made.compressed_tokens),
                    *(made.cut, " ".join(map(str, made.kept)), made.fingerprint, compressed.hash, compressed.frame),
                    *(made.original, made.summary_by, made.kind, made.is_automatic, made.undone, ratio),
                ),
            )

        await self._database.run(work)

    async def compressions(self, session: str) -> Sequence[CompressionRecord]:
        async def work(connection: Connection, moment: Moment) -> Sequence[CompressionRecord]:
            rows = await connection.execute(
                """SELECT handle, session_id, timestamp, original_tokens, compressed_tokens, cut, kept, fingerprint,
                     hash, frame, original, summary_by, kind, automatic, undone
                   FROM compression_log WHERE session_id = %s ORDER BY id DESC LIMIT %s""",
                (session, NEWEST_COMPRESSIONS),
            )
            return [_compression(row) for row in await rows.fetchall()]

        return await self._database.read(work)

    async def undo_compression(self, id: str, at: float) -> None:
        async def work(connection: Connection, moment: Moment) -> None:
            await connection.execute("UPDATE compression_log SET undone = %s WHERE handle = %s", (at, id))

        await self._database.run(work)

    async def compression_totals(self, session: str | None = None, scopes: Scopes = None) -> CompressionTotals:
        own = None if scopes is None else list(scopes)

        async def work(connection: Connection, moment: Moment) -> CompressionTotals:
            rows = await connection.execute(
                """SELECT count(*), count(undone), coalesce(sum(original_tokens), 0)::bigint,
                     coalesce(sum(compressed_tokens), 0)::bigint
                   FROM compression_log WHERE (%s::text IS NULL OR session_id = %s) AND
                     (%s::text[] IS NULL OR session_id IN (SELECT id FROM sessions WHERE scope = ANY(%s)))""",
                (session, session, own, own),
            )
            return CompressionTotals(*(int(str(number)) for number in await rows.fetchone() or (0, 0, 0, 0)))

        return await self._database.read(work)


async def decision_of(connection: Connection, scope: str, id: str, with_shown: bool) -> DecisionRecord | None:
    """Return the decision for the part kept under `id`; `shown` is left out where decompressing it would be waste."""
    columns = _PIN if with_shown else _PIN.replace("hash, shown", "NULL, NULL")
    rows = await connection.execute(
        # Ids are joined by spaces, and "!" comes next after those.
        f"SELECT {columns} FROM pin WHERE scope = %s AND ids >= %s AND ids < %s ORDER BY ids LIMIT 1".encode(),  # noqa: S608
        (encoded(scope), encoded(id), encoded(id + "!")),
    )
    row = await rows.fetchone()
    return _decision(row) if row else None


async def _insert(connection: Connection, scope: str, record: DecisionRecord, now: float) -> None:
    """Add a decision, unless there is one for its key."""
    shown = None if record.shown is None else compress(record.shown)
    await connection.execute(
        """INSERT INTO pin (scope, place, why, hash, shown, ids, preview, session, tokens_before, tokens_after,
             created, last_used) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING""",
        (
            *(encoded(scope), record.key, record.why, shown and shown.hash, shown and shown.frame),
            *(encoded(" ".join(record.original_ids)), encoded(record.preview), encoded(record.session)),
            *(record.tokens_before, record.tokens_after, now, now),
        ),
    )


async def _fetch(connection: Connection, scope: str, keys: Sequence[bytes]) -> dict[bytes, DecisionRecord]:
    rows = await connection.execute(
        f"SELECT {_PIN} FROM pin WHERE scope = %s AND place = ANY(%s)".encode(),  # noqa: S608 - one fixed text
        (encoded(scope), list(keys)),
    )
    found = {record.key: record for record in map(_decision, await rows.fetchall())}
    return {key: found[key] for key in keys if key in found}


def _decision(row: Sequence[object]) -> DecisionRecord:
    match row:
        case (bytes(key), str(why), hashed, frame, bytes(ids), bytes(preview), bytes(session), *counts):
            is_cut = isinstance(hashed, bytes) and isinstance(frame, bytes)
            shown = decompress(CompressedText(hashed, frame)) if is_cut else None  # type: ignore[arg-type]
            names = tuple(decoded(ids).split())
            return DecisionRecord(key, why, shown, names, decoded(preview), decoded(session), *counts)  # type: ignore[arg-type]
        case _:
            raise StoreUnavailable("a decision in the database is not readable")


def _compression(row: Sequence[object]) -> CompressionRecord:
    *counted, kept, fingerprint, hashed, frame, original, summary_by, kind, is_automatic, undone = row
    match json.decode(decompress(CompressedText(read_bytes(hashed), read_bytes(frame)))):
        case {"message": str(message), "summary": str(summary)}:
            places = tuple(map(int, str(kept).split()))
            return CompressionRecord(
                *(*counted, places, fingerprint, message, summary, original, summary_by, kind, is_automatic, undone)  # type: ignore[arg-type]
            )
        case _:
            raise StoreUnavailable("a compression in the database holds no words")

"""Decisions in SQLite: how parts of conversations and histories of sessions left when they were first sent."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from sqlite3 import Connection, Cursor
from types import MappingProxyType

from kimi_proxy.core import json
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.lines import decoded, encoded
from kimi_proxy.services.store.clock import Moment
from kimi_proxy.services.store.compressed import CompressedText, compress, decompress
from kimi_proxy.services.store.protocols import (
    CompressionRecord,
    CompressionTotals,
    DecisionRecord,
    DecisionTotals,
    Scopes,
)
from kimi_proxy.services.store.sqlite.database import Database, Tables, reads, writes

DAY_S = 86_400.0
EXPIRE_AT_ONCE = 200  # so that no transaction is long
NEWEST_COMPRESSIONS = 20  # of a session: enough to know which one is active and when it was made


class SqliteDecisions(Tables):
    """Decisions about parts expire when they have not been used for `ttl_s`; compressions stay with their session."""

    def __init__(self, database: Database, ttl_s: float) -> None:
        super().__init__(database)
        self._ttl_s = ttl_s
        self._used: dict[tuple[str, bytes], DecisionRecord] = {}  # read since the last commit

    async def get(self, scope: str, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        found = await self.database.read(lambda connection: _fetch(connection, scope, keys))
        self._used |= {(scope, key): record for key, record in found.items()}
        return found

    @reads
    def times(self, connection: Connection, scope: str, keys: Sequence[bytes]) -> Mapping[bytes, float]:
        found = (
            (key, connection.execute("SELECT created FROM pin WHERE scope = ? AND place = ?", (encoded(scope), key)))
            for key in keys
        )
        return {key: float(row[0]) for key, rows in found if (row := rows.fetchone()) is not None}

    async def add(
        self,
        scope: str,
        new: Sequence[DecisionRecord],
        forget: Sequence[bytes] = (),
        replaces: Mapping[bytes, float] = MappingProxyType({}),
    ) -> Mapping[bytes, DecisionRecord]:
        used, self._used = self._used, {}

        def work(connection: Connection, moment: Moment) -> Mapping[bytes, DecisionRecord]:
            connection.executemany(
                "DELETE FROM pin WHERE scope = ? AND place = ?", [(encoded(scope), key) for key in forget]
            )
            connection.executemany(
                "DELETE FROM pin WHERE scope = ? AND place = ? AND created = ?",
                [(encoded(scope), key, made) for key, made in replaces.items()],
            )
            # A use is written once a day, or twice within a short ttl: not with every request.
            stale = moment.earliest - min(DAY_S, self._ttl_s / 2)
            connection.executemany(
                "UPDATE pin SET last_used = ? WHERE scope = ? AND place = ?",
                [(moment.latest, encoded(at), key) for (at, key), record in used.items() if record.last_used < stale],
            )
            for record in new:
                _insert(connection, scope, record, moment.latest)
            connection.execute(
                "DELETE FROM pin WHERE seq IN (SELECT seq FROM pin WHERE last_used < ? ORDER BY last_used LIMIT ?)",
                (moment.earliest - self._ttl_s, EXPIRE_AT_ONCE),
            )
            return _fetch(connection, scope, (record.key for record in new))

        return await self.database.write(work)

    @reads
    def of_original(self, connection: Connection, scope: str, id: str) -> DecisionRecord | None:
        return decision_of(connection, scope, id, with_shown=True)

    @reads
    def totals(self, connection: Connection, scope: str) -> DecisionTotals:
        outputs = connection.execute(
            "SELECT why, count(*) FROM pin WHERE scope = ? AND (ids <> x'' OR shown IS NULL) GROUP BY why",
            (encoded(scope),),
        ).fetchall()
        (before, after) = connection.execute(
            """SELECT coalesce(sum(tokens_before), 0), coalesce(sum(tokens_after), 0)
               FROM pin WHERE scope = ? AND ids <> x''""",
            (encoded(scope),),
        ).fetchone()
        return DecisionTotals(dict(outputs), int(before), int(after))

    @writes
    def add_compression(self, connection: Connection, made: CompressionRecord) -> None:
        compressed = compress(json.encode({"message": made.message, "summary": made.summary}))
        ratio = round(1 - made.compressed_tokens / made.original_tokens, 4) if made.original_tokens else 0.0
        connection.execute(
            """INSERT INTO compression_log (handle, session_id, timestamp, original_tokens, compressed_tokens, cut,
                 kept, fingerprint, hash, frame, original, summary_by, kind, automatic, undone, compression_ratio)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
            (
                *(made.id, made.session, made.at, made.original_tokens, made.compressed_tokens),
                *(made.cut, " ".join(map(str, made.kept)), made.fingerprint, compressed.hash, compressed.frame),
                *(made.original, made.summary_by, made.kind, made.is_automatic, made.undone, ratio),
            ),
        )

    @reads
    def compressions(self, connection: Connection, session: str) -> Sequence[CompressionRecord]:
        rows = connection.execute(
            """SELECT handle, session_id, timestamp, original_tokens, compressed_tokens, cut, kept, fingerprint, hash,
                 frame, original, summary_by, kind, automatic, undone
               FROM compression_log WHERE session_id = ? ORDER BY id DESC LIMIT ?""",
            (session, NEWEST_COMPRESSIONS),
        )
        return list(_compressions(rows))

    @writes
    def undo_compression(self, connection: Connection, id: str, at: float) -> None:
        connection.execute("UPDATE compression_log SET undone = ? WHERE handle = ?", (at, id))

    @reads
    def compression_totals(
        self, connection: Connection, session: str | None = None, scopes: Scopes = None
    ) -> CompressionTotals:
        own = tuple(scopes or ())
        theirs = f"session_id IN (SELECT id FROM sessions WHERE scope IN ({', '.join('?' * len(own))}))"  # noqa: S608
        row = connection.execute(
            f"""SELECT count(*), count(undone), coalesce(sum(original_tokens), 0), coalesce(sum(compressed_tokens), 0)
               FROM compression_log WHERE (? IS NULL OR session_id = ?) AND {"1" if scopes is None else theirs}""",  # noqa: S608
            (session, session, *own),
        ).fetchone()
        return CompressionTotals(*map(int, row))


def decision_of(connection: Connection, scope: str, id: str, with_shown: bool) -> DecisionRecord | None:
    """Return the decision for the part kept under `id`; `shown` is left out where decompressing it would be waste."""
    shown = "hash, shown" if with_shown else "NULL, NULL"
    rows = connection.execute(
        f"""SELECT place, why, {shown}, ids, preview, session, tokens_before, tokens_after, created, last_used
           FROM pin WHERE scope = ? AND ids >= ? AND ids < ? ORDER BY ids LIMIT 1""",  # noqa: S608 - two fixed texts
        (encoded(scope), encoded(id), encoded(id + "!")),  # ids are joined by spaces, and "!" comes next after those
    )
    return next(_decisions(rows), None)


def _insert(connection: Connection, scope: str, record: DecisionRecord, now: float) -> None:
    """Add a decision, unless there is one for its key."""
    shown = None if record.shown is None else compress(record.shown)
    connection.execute(
        """INSERT INTO pin (scope, place, why, hash, shown, ids, preview, session, tokens_before, tokens_after,
             created, last_used) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
        (
            *(encoded(scope), record.key, record.why, shown and shown.hash, shown and shown.frame),
            *(encoded(" ".join(record.original_ids)), encoded(record.preview), encoded(record.session)),
            *(record.tokens_before, record.tokens_after, now, now),
        ),
    )


def _fetch(connection: Connection, scope: str, keys: Iterable[bytes]) -> dict[bytes, DecisionRecord]:
    statement = """SELECT place, why, hash, shown, ids, preview, session, tokens_before, tokens_after, created,
         last_used FROM pin WHERE scope = ? AND place = ?"""
    found = (_decisions(connection.execute(statement, (encoded(scope), key))) for key in keys)
    return {record.key: record for records in found for record in records}


def _decisions(rows: Cursor) -> Iterator[DecisionRecord]:
    for key, why, hashed, frame, ids, preview, session, *counts in rows.fetchall():
        shown = None if hashed is None else decompress(CompressedText(hashed, frame))
        original_ids = tuple(decoded(ids).split())
        yield DecisionRecord(key, why, shown, original_ids, decoded(preview), decoded(session), *counts)


def _compressions(rows: Cursor) -> Iterator[CompressionRecord]:
    for *row, hashed, frame, original, summary_by, kind, is_automatic, undone in rows.fetchall():
        id, session, at, original_tokens, compressed_tokens, cut, kept, fingerprint = row
        match json.decode(decompress(CompressedText(hashed, frame))):
            case {"message": str(message), "summary": str(summary)}:
                yield CompressionRecord(
                    *(id, session, at, original_tokens, compressed_tokens, cut, tuple(map(int, kept.split()))),
                    *(fingerprint, message, summary, original, summary_by, kind, bool(is_automatic), undone),
                )
            case _:
                raise StoreUnavailable("a compression on disk holds no words")

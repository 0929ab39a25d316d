"""Decisions in a database: the form in which parts of conversations and histories were first sent; and facts that later
requests of a conversation need, such as its session or its model.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import astuple

from kimi_proxy.core import json
from kimi_proxy.core.cache import in_batches
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.lines import decode_text, encode_text
from kimi_proxy.services.store.protocols import (
    CompressionRecord,
    CompressionTotals,
    DecisionRecord,
    DecisionTotals,
    FactKind,
    StoredFact,
)
from kimi_proxy.services.store.sql import (
    ERASED,
    NOT_ERASED,
    CompressedText,
    D,
    Row,
    SqlStatement,
    SqlTables,
    audit_block,
    compress,
    decompress,
    legible,
    marks,
    one_of,
    readable,
    sums,
)

# ruff: noqa: S608 - every name that is put into a statement is in this file

DAY_S = 86_400.0
DECISIONS_AT_ONCE = 200  # so that no transaction is long
NEWEST_COMPRESSIONS = 20  # of a session: enough to know which one is active and when it was made
SESSIONS_AT_ONCE = 500  # in one statement

DECISION = "place, why, hash, shown, ids, preview, session, tokens_before, tokens_after, created, last_used"
_COMPRESSION = """handle, session_id, timestamp, original_tokens, compressed_tokens, cut, kept, fingerprint, hash,
  frame, original, summary_by, kind, automatic, undone"""
# Without the sent text, which would have to be decompressed for nothing.
LISTED_DECISION = DECISION.replace("hash, shown", "NULL AS hash, NULL AS shown")
# Whose a compression is; servers of the version before leave that to its session.
_OWNER = "coalesce(scope, (SELECT scope FROM sessions WHERE sessions.id = session_id))"


class SqlDecisions(SqlTables[D]):
    """The part of Decisions that is the same in every database.

    Decisions about parts expire when they have not been used for `ttl_s`; compressions stay with their session.
    """

    def __init__(self, database: D, ttl_s: float) -> None:
        super().__init__(database)
        self._ttl_s = ttl_s

    async def of_original(self, who: Caller, id: str) -> DecisionRecord | None:
        rows = await self.database.rows(*decision_of(who, id))
        return listed_decision(rows[0]) if rows else None

    async def page(self, who: Caller, after: int, limit: int) -> Sequence[tuple[int, DecisionRecord]]:
        rows = await self.database.rows(
            f"""SELECT seq, {DECISION} FROM decision WHERE {one_of("scope", who.scopes)} AND seq > ?
               ORDER BY seq LIMIT ?""",
            (*map(encode_text, who.scopes), after, limit),
        )
        return [(int(str(seq)), listed_decision(tuple(row))) for seq, *row in rows]

    async def sole_originals(
        self, who: Caller, sessions: Collection[str] | None, also: Collection[str] = ()
    ) -> frozenset[str]:
        scopes = tuple(map(encode_text, who.scopes))
        statement = f"SELECT session, ids FROM decision WHERE {one_of('scope', who.scopes)} AND ids <> ?"
        decided = await self.database.rows(statement, (*scopes, b""))
        statement = f"SELECT session_id, original FROM compression_log WHERE {one_of(_OWNER, who.scopes)}"
        compressed = await self.database.rows(statement, who.scopes)
        theirs = set(also)
        others = set[str]()
        for session, id in _uses(decided, compressed):
            (theirs if sessions is None or session in sessions else others).add(id)
        return frozenset(theirs - others)

    async def forget_sessions(self, who: Caller, sessions: Collection[str] | None) -> int:
        scopes = tuple(map(encode_text, who.scopes))
        names = None if sessions is None else sorted(sessions)
        parts = [None] if names is None else in_batches(names, SESSIONS_AT_ONCE)
        total = 0
        for part in parts:
            where = f"{one_of('scope', who.scopes)} AND {one_of('session', part)}"
            chosen = f"SELECT seq FROM decision WHERE {where} ORDER BY seq LIMIT ?"
            statement = f"DELETE FROM decision WHERE seq IN ({chosen}) RETURNING 1"
            values = (*scopes, *map(encode_text, part or ()), DECISIONS_AT_ONCE)
            while gone := await self.database.change(statement, values):
                total += len(gone)
        return total

    async def totals(self, who: Caller) -> DecisionTotals:
        scope = (encode_text(who.scope),)
        outputs = await self.database.rows("SELECT why, count(*) FROM decision WHERE scope = ? GROUP BY why", scope)
        ((before, after),) = await self.database.rows(
            f"SELECT {sums('tokens_before', 'tokens_after')} FROM decision WHERE scope = ? AND shown IS NOT NULL", scope
        )
        return DecisionTotals(dict(outputs), before, after)  # type: ignore[arg-type]

    async def compressions(
        self, who: Caller, session: str, limit: int = NEWEST_COMPRESSIONS
    ) -> Sequence[CompressionRecord]:
        rows = await self.database.rows(
            f"""SELECT {_COMPRESSION} FROM compression_log WHERE session_id = ? AND {one_of(_OWNER, who.scopes)}
               ORDER BY id DESC LIMIT ?""",
            (session, *who.scopes, limit),
        )
        return [_compression(row) for row in rows]

    async def compressed_sessions(self, who: Caller) -> frozenset[str]:
        rows = await self.database.rows(
            f"SELECT DISTINCT session_id FROM compression_log WHERE {one_of(_OWNER, who.scopes)}", who.scopes
        )
        return frozenset(str(session) for (session,) in rows)

    async def undo_compression(self, who: Caller, id: str, at: float) -> None:
        with audit_block(self.database.note, who, "undo_compression", id):
            await self.database.change(
                f"UPDATE compression_log SET undone = ? WHERE handle = ? AND {one_of(_OWNER, who.scopes)} RETURNING 1",
                (at, id, *who.scopes),
            )

    async def compression_totals(self, who: Caller, session: str | None = None) -> CompressionTotals:
        one = None if session is None else (session,)
        scopes = who.counts
        (row,) = await self.database.rows(
            f"""SELECT count(*), count(undone), {sums("original_tokens", "compressed_tokens")} FROM compression_log
               WHERE {one_of("session_id", one)} AND {one_of(_OWNER, scopes)}""",
            (*(one or ()), *(scopes or ())),
        )
        return CompressionTotals(*row)  # type: ignore[arg-type]


def _uses(decided: Sequence[Row], compressed: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield each session with each original that its decisions and compressions refer to."""
    for session, ids in decided:
        if isinstance(session, bytes) and isinstance(ids, bytes):
            for id in decode_text(ids).split():
                yield decode_text(session), id
    for session, original in compressed:
        if original:
            yield str(session), str(original)


def decision_of(who: Caller, id: str, columns: str = DECISION) -> SqlStatement:
    """Return what asks for the decision for the part kept under `id`."""
    return SqlStatement(
        # Ids are joined by spaces, and "!" comes next after those.
        f"""SELECT {columns} FROM decision WHERE {one_of("scope", who.scopes)} AND ids >= ? AND ids < ?
           ORDER BY ids LIMIT 1""",
        (*map(encode_text, who.scopes), encode_text(id), encode_text(id + "!")),
    )


ADD_DECISION = f"INSERT INTO decision (scope, {DECISION}) SELECT {marks(12)} WHERE {NOT_ERASED} ON CONFLICT DO NOTHING"


def decision_row(who: Caller, record: DecisionRecord, now: float) -> Row:
    """Return the values for ADD_DECISION."""
    shown = None if record.shown is None else compress(record.shown)
    return (
        encode_text(who.scope),
        record.key,
        record.why,
        shown and shown.hash,
        shown and shown.frame,
        encode_text(" ".join(record.original_ids)),
        encode_text(record.preview),
        encode_text(record.session),
        record.tokens_before,
        record.tokens_after,
        now,
        now,
        who.person_id,
    )


def check_added(found: Mapping[bytes, DecisionRecord], new: Sequence[DecisionRecord]) -> Mapping[bytes, DecisionRecord]:
    """Return the decisions that stand after some were added. Raise StoreUnavailable if none could be: see ERASED."""
    if any(record.key not in found for record in new):
        raise StoreUnavailable(ERASED)
    return found


def active_compression(who: Caller, session: str) -> SqlStatement:
    """Return what asks for the id of the compression of a session that its requests leave with."""
    return SqlStatement(
        f"""SELECT handle FROM compression_log WHERE session_id = ? AND {one_of(_OWNER, who.scopes)}
           AND undone IS NULL ORDER BY id DESC LIMIT 1""",
        (session, *who.scopes),
    )


def new_compression(who: Caller, made: CompressionRecord) -> SqlStatement:
    """Return what adds a compression."""
    *counted, kept, fingerprint, message, summary, original, summary_by, kind, is_automatic, undone = astuple(made)
    text = compress(json.encode({"message": message, "summary": summary}))
    ratio = round(1 - made.compressed_tokens / made.original_tokens, 4) if made.original_tokens else 0.0
    rest = (original, summary_by, kind, is_automatic, undone, ratio, who.scope)
    return SqlStatement(
        f"INSERT INTO compression_log ({_COMPRESSION}, compression_ratio, scope) SELECT {marks(17)} WHERE {NOT_ERASED}",
        (*counted, " ".join(map(str, kept)), fingerprint, text.hash, text.frame, *rest, who.person_id),
    )


def decision(row: Row) -> DecisionRecord:
    """Return the decision of a row, by which a request is changed. Raise StoreUnavailable if its text is damaged."""
    return _decision(row, decompress)


def listed_decision(row: Row) -> DecisionRecord:
    """Return the decision of a row for people, of whom a damaged one hides no other: it has no text then."""
    return _decision(row, lambda text: readable(text.hash, text.frame))


def _decision(row: Row, read: Callable[[CompressedText], bytes | None]) -> DecisionRecord:
    match row:
        case (bytes(key), str(why), hashed, frame, bytes(ids), bytes(preview), bytes(session), *counts):
            is_cut = isinstance(hashed, bytes) and isinstance(frame, bytes)
            shown = read(CompressedText(hashed, frame)) if is_cut else None  # type: ignore[arg-type]
            names = tuple(legible(ids).split())
            return DecisionRecord(key, why, shown, names, legible(preview), legible(session), *counts)  # type: ignore[arg-type]
        case _:
            raise StoreUnavailable("a decision in the database cannot be read")


def _compression(row: Row) -> CompressionRecord:
    *counted, kept, fingerprint, hashed, frame, original, summary_by, kind, is_automatic, undone = row
    match json.decode(decompress(CompressedText(hashed, frame))):  # type: ignore[arg-type]
        case {"message": str(message), "summary": str(summary)}:
            places = tuple(map(int, str(kept).split()))
            rest = (fingerprint, message, summary, original, summary_by, kind, bool(is_automatic), undone)
            return CompressionRecord(*(*counted, places, *rest))  # type: ignore[arg-type]
        case _:
            raise StoreUnavailable("a compression in the database has no summary")


# ruff: noqa: S608 - every name that is put into a statement is in this file

AT_ONCE = 500  # keys in a statement

_FACT = "scope, kind, key, hash, frame, session, created, last_used"


class SqlFacts(SqlTables[D]):
    """Facts unused for `ttl_s` are deleted by `sweep`, which also saves last-used times."""

    def __init__(self, database: D, ttl_s: float) -> None:
        super().__init__(database)
        self._ttl_s = ttl_s
        self._used: dict[str, set[bytes]] = {}  # keys by scope, of uses that are not written yet

    async def get(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
        return (await self.read(who, {kind: keys})).get(kind, {})

    async def read(
        self, who: Caller, wanted: Mapping[FactKind, Collection[bytes]]
    ) -> Mapping[FactKind, Mapping[bytes, bytes]]:
        # A use is written once a day, or twice within a short ttl: not with every request.
        stale = self.database.clock.look().earliest - min(DAY_S, self._ttl_s / 2)
        found: dict[FactKind, dict[bytes, bytes]] = {}
        places = [(kind, key) for kind, keys in wanted.items() for key in keys]
        for some in in_batches(places, AT_ONCE):
            kinds = list(dict.fromkeys(kind for kind, _ in some))
            of_kind = [[key for each, key in some if each == kind] for kind in kinds]
            either = " OR ".join(f"kind = ? AND key IN ({marks(len(keys))})" for keys in of_kind)
            values = (value for kind, keys in zip(kinds, of_kind, strict=True) for value in (kind, *keys))
            rows = await self.database.rows(
                f"SELECT kind, key, hash, frame, last_used FROM fact WHERE scope = ? AND ({either})",
                (encode_text(who.scope), *values),
            )
            for kind, key, hashed, frame, last_used in rows:
                text = decompress(CompressedText(hashed, frame))  # type: ignore[arg-type]
                found.setdefault(kind, {})[key] = text  # type: ignore[arg-type, index]
                if last_used < stale:  # type: ignore[operator]
                    self._used.setdefault(who.scope, set()).add(key)  # type: ignore[arg-type]
        return found

    async def put_if_absent(
        self, who: Caller, kind: FactKind, facts: Mapping[bytes, bytes], session: str | Mapping[bytes, str] = ""
    ) -> Mapping[bytes, bytes]:
        scope = encode_text(who.scope)
        now = self.database.clock.look().latest
        added = set[object]()
        for some in in_batches(sorted(facts), AT_ONCE):  # in one order, so that no two servers wait for each other
            rows = []
            for key in some:
                text = compress(facts[key])
                of = session if isinstance(session, str) else session[key]
                rows.append((scope, kind, key, text.hash, text.frame, encode_text(of), now, now))
            new = await self.database.change(
                f"""INSERT INTO fact ({_FACT})
                   SELECT * FROM (VALUES {", ".join([f"({marks(8)})"] * len(some))}) AS new WHERE {NOT_ERASED}
                   ON CONFLICT DO NOTHING RETURNING key""",
                (*(value for row in rows for value in row), who.person_id),
            )
            added |= {key for (key,) in new}
        return {**facts, **await self.get(who, kind, facts.keys() - added)}

    async def delete(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> None:
        for some in in_batches(list(keys), AT_ONCE):
            await self.database.change(
                f"DELETE FROM fact WHERE scope = ? AND kind = ? AND key IN ({marks(len(some))}) RETURNING 1",
                (encode_text(who.scope), kind, *some),
            )

    async def forget_sessions(self, who: Caller, sessions: Collection[str] | None) -> None:
        for some in [None] if sessions is None else in_batches(sorted(sessions), AT_ONCE):
            await self.database.change(
                f"""DELETE FROM fact WHERE {one_of("scope", who.scopes)} AND session <> ? AND {one_of("session", some)}
                   RETURNING 1""",
                (*map(encode_text, who.scopes), b"", *map(encode_text, some or ())),
            )

    async def page(self, who: Caller, after: int, limit: int) -> Sequence[tuple[int, StoredFact]]:
        rows = await self.database.rows(
            f"""SELECT seq, kind, session, hash, frame FROM fact WHERE {one_of("scope", who.scopes)} AND seq > ?
               ORDER BY seq LIMIT ?""",
            (*map(encode_text, who.scopes), after, limit),
        )
        return [(int(str(seq)), _fact(*row)) for seq, *row in rows]

    async def keys(self, who: Caller, kind: FactKind, limit: int) -> Sequence[bytes]:
        statement = "SELECT key FROM fact WHERE scope = ? AND kind = ? LIMIT ?"
        rows = await self.database.rows(statement, (encode_text(who.scope), kind, limit))
        return [key for (key,) in rows if isinstance(key, bytes)]

    async def sweep(self) -> None:
        """Write down which facts were used, and delete those that have expired."""
        moment, used, self._used = self.database.clock.look(), self._used, {}
        for scope, keys in used.items():
            for some in in_batches(list(keys), AT_ONCE):
                await self.database.change(
                    f"UPDATE fact SET last_used = ? WHERE scope = ? AND key IN ({marks(len(some))}) RETURNING 1",
                    (moment.latest, encode_text(scope), *some),
                )
        expired = "SELECT seq FROM fact WHERE last_used < ? ORDER BY last_used LIMIT ?"
        delete = f"DELETE FROM fact WHERE seq IN ({expired}) RETURNING 1"
        while len(await self.database.change(delete, (moment.earliest - self._ttl_s, AT_ONCE))) == AT_ONCE:
            pass


def _fact(kind: object, session: object, hashed: object, frame: object) -> StoredFact:
    match session, hashed, frame:
        case bytes(name), bytes(), bytes():
            return StoredFact(str(kind), legible(name), readable(hashed, frame))
    raise StoreUnavailable("a fact in the database cannot be read")

"""Originals in SQLite: committed together, found by id or by question, and expired when they were idle for long."""

import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from sqlite3 import Connection

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import PruneIdNotFound, StoreUnavailable
from kimi_proxy.core.lines import decode_text, encode_text
from kimi_proxy.core.timing import measure_time
from kimi_proxy.services.store.notes import SESSION_FIELD, of_person, of_sessions
from kimi_proxy.services.store.protocols import NEWEST, ListedOriginal, Original, StoredText
from kimi_proxy.services.store.sql import (
    ERASED,
    LEAP_S,
    CompressedText,
    Moment,
    Row,
    SqlTables,
    audit_block,
    compress,
    decompress,
    erased_among,
    legible,
    note_deleted,
    one_of,
    readable,
)
from kimi_proxy.services.store.sql.decisions import LISTED_DECISION, decision_of, listed_decision
from kimi_proxy.services.store.sqlite.database import Database, GroupCommit, reads

# Expired originals stay on disk this long: another process may not have saved a recent use yet.
GRACE_S = 60.0
TOMBSTONE_S = 30 * 86_400.0
TOMBSTONE_BYTES = 2048  # of budget for each; they take about a hundred
DELETE_AT_ONCE = 100  # so that no transaction is long
PAGE = 4096
COMPRESSED_IN_LOOP_BYTES = 128 * 1024  # 0.4 ms: on a busy machine, to wait for a thread takes longer

Handle = tuple[str, str]  # scope and id
Rows = Sequence[tuple[int, bytes, bytes, int]]


@dataclass(eq=False, slots=True)
class PendingOriginal:
    """An original on its way to the disk."""

    original: Original
    compressed: CompressedText
    is_refused: bool = False  # its id already names something else
    is_erased: bool = False  # its person's data was erased

    @property
    def size(self) -> int:
        """The bytes it takes on disk, rounded up."""
        return len(self.compressed.frame) + len(self.original.about) + PAGE


class LastUses:
    """The last use of each original, until the writer puts it on disk. Readers add to it from their threads."""

    def __init__(self) -> None:
        self._last: dict[Handle, float] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._last)

    def add(self, handle: Handle, when: float) -> None:
        with self._lock:
            self._last[handle] = max(when, self._last.get(handle, when))

    def latest(self, handle: Handle, on_disk: float) -> float:
        """Return the last use of an original whose last use on disk is `on_disk`."""
        with self._lock:
            return max(on_disk, self._last.get(handle, on_disk))

    def unwritten(self) -> dict[Handle, float]:
        with self._lock:
            return dict(self._last)

    def drop(self, handle: Handle) -> None:
        """Forget the uses of an original that is deleted."""
        with self._lock:
            self._last.pop(handle, None)

    def written(self, uses: Mapping[Handle, float]) -> None:
        """Drop those of `uses` that were not renewed since."""
        with self._lock:
            for handle, when in uses.items():
                if self._last.get(handle) == when:
                    del self._last[handle]


class SqliteOriginals(SqlTables[Database]):
    """They stay until they were idle for `ttl_s`, and leave earlier, the longest idle first, to fit `max_bytes`."""

    def __init__(self, database: Database, ttl_s: float, max_bytes: int) -> None:
        super().__init__(database)
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self._uses = LastUses()
        self._group: GroupCommit[PendingOriginal] = GroupCommit(database, self._commit, max_bytes // 4)
        self.commits = 0

    async def keep(self, original: Original) -> None:
        with measure_time("store"):
            await self._keep(original)

    async def _keep(self, original: Original) -> None:
        async with self.database.timeout():
            if len(original.text) <= COMPRESSED_IN_LOOP_BYTES:
                compressed = compress(original.text)
            else:
                compressed = await self.database.in_reader(lambda: compress(original.text))
            pending = PendingOriginal(original, compressed)
            if pending.size > self._max_bytes // 4:
                raise StoreUnavailable("a text may take at most a quarter of store.max_bytes: raise that setting")
            await self._group.add(pending)
        if pending.is_erased:
            raise StoreUnavailable(ERASED)
        if pending.is_refused:
            raise StoreUnavailable(f"{original.id} is already the id of another original")

    @reads
    def find(self, connection: Connection, who: Caller, key: bytes) -> str | None:
        moment = self.database.clock.look()
        rows = connection.execute(
            "SELECT id, last_used FROM record WHERE scope = ? AND key = ? ORDER BY seq DESC LIMIT 20",
            (encode_text(who.scope), key),
        )
        found = ((decode_text(id), last_used) for id, last_used in rows.fetchall())
        return next((id for id, last_used in found if self._use((who.scope, id), last_used, moment)), None)

    @reads
    def find_hash(self, connection: Connection, who: Caller, digest: bytes) -> str | None:
        moment = self.database.clock.look()
        rows = connection.execute(
            """SELECT record.id, record.last_used FROM record JOIN text ON text.seq = record.text
               WHERE text.scope = ? AND text.hash = ? AND record.scope = text.scope
               ORDER BY record.seq DESC LIMIT 20""",
            (encode_text(who.scope), digest),
        )
        found = ((decode_text(id), last_used) for id, last_used in rows.fetchall())
        return next((id for id, last_used in found if self._use((who.scope, id), last_used, moment)), None)

    async def get(self, who: Caller, id: str) -> Original:
        with audit_block(self.database.note, who, "recover", id):
            try:
                return await self._get(who, id)
            except PruneIdNotFound as e:
                if e.reason != "unknown":
                    raise
                # What is damaged in one place was set aside whole: the id may be in the copy, and still be readable.
                found = await self.database.read_set_aside(partial(self._find, who=who, id=id))
                if found is None:
                    raise
                return found

    @reads
    def _get(self, connection: Connection, who: Caller, id: str) -> Original:
        return self._find(connection, who=who, id=id)

    def _find(self, connection: Connection, *, who: Caller, id: str) -> Original:
        moment = self.database.clock.look()
        theirs = one_of("scope", who.scopes)
        handle = (*map(encode_text, who.scopes), encode_text(id))
        row = connection.execute(
            f"""SELECT record.scope, record.key, record.about, record.last_used, text.hash, text.frame
               FROM record JOIN text ON text.seq = record.text WHERE record.{theirs} AND record.id = ?""",  # noqa: S608
            handle,
        ).fetchone()
        if row is None:
            statement = f"SELECT 1 FROM tombstone WHERE {theirs} AND id = ?"  # noqa: S608
            raise PruneIdNotFound(id, "expired" if connection.execute(statement, handle).fetchone() else "unknown")
        raw, key, about, last_used, hashed, frame = row
        scope = decode_text(raw)
        if not self._use((scope, id), last_used, moment):
            raise PruneIdNotFound(id, "expired")
        return Original(id, scope, key, decompress(CompressedText(hashed, frame)), about)

    async def live(self, who: Caller, ids: Collection[str]) -> frozenset[str]:
        found = await self._live(who, ids)
        missing = frozenset(ids) - found
        copied = await self.database.read_set_aside(partial(self._find_live, who=who, ids=missing)) if missing else None
        return found | (copied or frozenset())

    @reads
    def _live(self, connection: Connection, who: Caller, ids: Collection[str]) -> frozenset[str]:
        return self._find_live(connection, who=who, ids=ids)

    def _find_live(self, connection: Connection, *, who: Caller, ids: Collection[str]) -> frozenset[str]:
        moment = self.database.clock.look()
        scopes = tuple(map(encode_text, who.scopes))
        statement = f"SELECT scope, last_used FROM record WHERE {one_of('scope', who.scopes)} AND id = ?"  # noqa: S608
        rows = {id: connection.execute(statement, (*scopes, encode_text(id))).fetchone() for id in ids}
        return frozenset(id for id, row in rows.items() if row and self._use((decode_text(row[0]), id), row[1], moment))

    async def note(self, who: Caller, id: str) -> bytes | None:
        found = await self._note(who, id)
        if found is None:
            found = await self.database.read_set_aside(partial(self._find_note, who=who, id=id))
        return found

    @reads
    def _note(self, connection: Connection, who: Caller, id: str) -> bytes | None:
        return self._find_note(connection, who=who, id=id)

    def _find_note(self, connection: Connection, *, who: Caller, id: str) -> bytes | None:
        statement = f"SELECT about FROM record WHERE {one_of('scope', who.scopes)} AND id = ?"  # noqa: S608
        row = connection.execute(statement, (*map(encode_text, who.scopes), encode_text(id))).fetchone()
        return bytes(row[0]) if row else None

    @reads
    def page(self, connection: Connection, who: Caller, before: int, limit: int) -> Sequence[ListedOriginal]:
        rows = connection.execute(
            f"""SELECT seq, id, about, created, last_used FROM record
               WHERE {one_of("scope", who.scopes)} AND seq < ? ORDER BY seq DESC LIMIT ?""",  # noqa: S608
            (*map(encode_text, who.scopes), before, limit),
        ).fetchall()
        asked = (decision_of(who, decode_text(row[1]), LISTED_DECISION) for row in rows)
        decided = [connection.execute(*each).fetchone() for each in asked]
        return [
            ListedOriginal(seq, legible(id), about, created, last_used, listed_decision(row) if row else None)
            for (seq, id, about, created, last_used), row in zip(rows, decided, strict=True)
        ]

    async def texts(
        self, who: Caller, before: int, limit: int, ids: Collection[str] | None = None
    ) -> Sequence[StoredText]:
        with audit_block(self.database.note, who, "search") if before == NEWEST else nullcontext():
            return await self._texts(who, before, limit, None if ids is None else list(ids))

    @reads
    def _texts(
        self, connection: Connection, who: Caller, before: int, limit: int, ids: Sequence[str] | None
    ) -> Sequence[StoredText]:
        rows = connection.execute(
            f"""SELECT record.seq, record.id, record.about, text.hash, text.frame
               FROM record JOIN text ON text.seq = record.text
               WHERE {one_of("record.scope", who.scopes)} AND {one_of("record.id", ids)} AND record.seq < ?
               ORDER BY record.seq DESC LIMIT ?""",  # noqa: S608
            (*map(encode_text, who.scopes), *map(encode_text, ids or ()), before, limit),
        )
        return [
            StoredText(seq, legible(id), about, readable(hashed, frame))
            for seq, id, about, hashed, frame in rows.fetchall()
        ]

    @reads
    def of_sessions(self, connection: Connection, who: Caller, sessions: Collection[str] | None) -> frozenset[str]:
        statement = f"SELECT id, about FROM record WHERE {one_of('scope', who.scopes)} AND instr(about, ?) > 0"  # noqa: S608
        wanted = [SESSION_FIELD] if sessions is None else [encode_text(session) for session in sessions]
        scopes = tuple(map(encode_text, who.scopes))
        rows = [row for needle in wanted for row in connection.execute(statement, (*scopes, needle)).fetchall()]
        return of_sessions(rows, sessions)

    @reads
    def of_person(self, connection: Connection, who: Caller, person_id: str) -> Mapping[str, str]:
        statement = f"SELECT id, about FROM record WHERE {one_of('scope', who.scopes)} AND instr(about, ?) > 0"  # noqa: S608
        values = (*map(encode_text, who.scopes), encode_text(person_id))
        return of_person(connection.execute(statement, values).fetchall(), person_id)

    async def delete(self, who: Caller, ids: Collection[str]) -> frozenset[str]:
        scopes = tuple(map(encode_text, who.scopes))
        wanted = sorted(ids)
        gone = set[str]()
        for start in range(0, len(wanted), DELETE_AT_ONCE):
            some = wanted[start : start + DELETE_AT_ONCE]
            statement = f"""SELECT seq, scope, id, text FROM record
              WHERE {one_of("scope", who.scopes)} AND {one_of("id", some)}"""  # noqa: S608
            values = (*scopes, *map(encode_text, some))

            def work(connection: Connection, moment: Moment, statement: str = statement, values: Row = values) -> Rows:
                found = connection.execute(statement, values).fetchall()
                _bury(connection, found, moment.latest)
                return found

            for _, scope, id, _ in await self.database.write(work):
                handle = decode_text(scope), decode_text(id)
                self._uses.drop(handle)
                gone.add(handle[1])
        note_deleted(self.database.note, who, "delete_original", wanted, gone)
        return frozenset(gone)

    @reads
    def newest_use(self, connection: Connection) -> float | None:
        (newest,) = connection.execute("SELECT max(last_used) FROM record").fetchone()
        return None if newest is None else float(newest)

    @property
    def has_unwritten_uses(self) -> bool:
        return bool(self._uses)

    async def flush(self) -> int:
        """Save last-used times, and delete some expired originals; return their number."""
        async with self.database.turn:
            return await self.database.in_writer(lambda: self._commit(()))

    def _use(self, handle: Handle, on_disk: float, moment: Moment) -> bool:
        """Return whether an original is live, which then counts as use. `on_disk` is its last use on disk."""
        is_live = moment.earliest - self._uses.latest(handle, on_disk) <= self._ttl_s
        if is_live:
            self._uses.add(handle, moment.latest)
        return is_live

    def _commit(self, pending: Sequence[PendingOriginal]) -> int:
        """Write `pending` and all uses in one transaction; return how many originals had to go."""
        uses = self._uses.unwritten()

        def work(connection: Connection, moment: Moment) -> int:
            connection.executemany(
                "UPDATE record SET last_used = max(last_used, ?) WHERE scope = ? AND id = ?",
                [(when, encode_text(scope), encode_text(id)) for (scope, id), when in uses.items()],
            )
            gone = self._expire(connection, moment)
            gone += self._make_room(connection, sum(one.size for one in pending), moment)
            for one in pending:
                one.is_erased = connection.execute(*erased_among([one.original.person])).fetchone() is not None
                one.is_refused = not one.is_erased and not _insert(connection, one, moment.latest)
            if not pending:
                _give_back_space(connection)
            return gone

        gone = self.database.transact(work)
        self._uses.written(uses)
        self.commits += bool(pending)
        return gone

    def _expire(self, connection: Connection, moment: Moment) -> int:
        """Delete some expired originals; return their number."""
        gone = _delete_idle(connection, DELETE_AT_ONCE, moment.latest, moment.earliest - self._ttl_s - GRACE_S)
        # Some of the tombstones that are too old or too many; the oldest have the lowest numbers.
        connection.execute(
            """DELETE FROM tombstone WHERE seq IN (SELECT seq FROM tombstone ORDER BY seq LIMIT 1000)
               AND (expired < ? OR seq <= (SELECT max(seq) FROM tombstone) - ?)""",
            (moment.earliest - TOMBSTONE_S, self._max_bytes // TOMBSTONE_BYTES),
        )
        if moment.is_certain:
            # Later stamps come from a clock that ran ahead; without this they would never expire.
            connection.execute(
                "UPDATE record SET last_used = ? WHERE last_used > ?", (moment.latest, moment.latest + LEAP_S)
            )
        return gone

    def _make_room(self, connection: Connection, needed: int, moment: Moment) -> int:
        """Delete the longest idle until `needed` more bytes fit the budget; return how many originals went."""
        gone = 0
        while gone < DELETE_AT_ONCE and _bytes_used(connection) + needed > self._max_bytes:
            if not _delete_idle(connection, 1, moment.latest):
                break
            gone += 1
        return gone


def _insert(connection: Connection, pending: PendingOriginal, now: float) -> bool:
    """Store an original. Storing it twice keeps one, with the newer note. Return False if its id is taken."""
    original = pending.original
    hashed = pending.compressed.hash
    scope = encode_text(original.scope)
    id = encode_text(original.id)
    known = connection.execute(
        """SELECT record.key, text.hash FROM record JOIN text ON text.seq = record.text
           WHERE record.scope = ? AND record.id = ?""",
        (scope, id),
    ).fetchone()
    if known and known != (original.key, hashed):
        return False
    # The same text is stored once. If the disk has damaged it since, this copy repairs it.
    connection.execute(
        """INSERT INTO text (scope, hash, frame) VALUES (?, ?, ?)
           ON CONFLICT (scope, hash) DO UPDATE SET frame = excluded.frame WHERE frame <> excluded.frame""",
        (scope, hashed, pending.compressed.frame),
    )
    connection.execute(
        """INSERT INTO record (scope, id, key, text, about, created, last_used)
           VALUES (?1, ?2, ?3, (SELECT seq FROM text WHERE scope = ?1 AND hash = ?4), ?5, ?6, ?6)
           ON CONFLICT (scope, id) DO UPDATE SET
             last_used = max(last_used, excluded.last_used), about = excluded.about""",
        (scope, id, original.key, hashed, original.about, now),
    )
    return True


def _delete_idle(connection: Connection, limit: int, now: float, before: float = float("inf")) -> int:
    """Turn the longest idle into tombstones, drop texts that nothing refers to any more; return how many went."""
    idle = connection.execute(
        "SELECT seq, scope, id, text FROM record WHERE last_used < ? ORDER BY last_used, seq LIMIT ?",
        (before, limit),
    ).fetchall()
    _bury(connection, idle, now)
    return len(idle)


def _bury(connection: Connection, rows: Rows, now: float) -> None:
    """Turn originals (seq, scope, id, text) into tombstones, and drop texts that nothing refers to any more."""
    connection.executemany(
        "INSERT INTO tombstone (scope, id, expired) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        [(scope, id, now) for _, scope, id, _ in rows],
    )
    connection.executemany("DELETE FROM record WHERE seq = ?", [(seq,) for seq, *_ in rows])
    connection.executemany(
        "DELETE FROM text WHERE seq = ?1 AND NOT EXISTS (SELECT 1 FROM record WHERE text = ?1)",
        [(text,) for *_, text in rows],
    )


def _bytes_used(connection: Connection) -> int:
    """Return the size of the file without its free pages."""
    (used,) = connection.execute(
        """SELECT (page_count - freelist_count) * page_size
           FROM pragma_page_count, pragma_freelist_count, pragma_page_size"""
    ).fetchone()
    return int(used)


def _give_back_space(connection: Connection) -> None:
    """Return up to 4 MiB of free pages to the disk."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    for _ in range(min(free, 1024)):
        connection.execute("PRAGMA incremental_vacuum (1)")  # sqlite3 takes one step of it, whatever we ask

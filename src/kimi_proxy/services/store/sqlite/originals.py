"""Every statement about originals. Callers hold the transaction."""

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import TypeVar

from kimi_proxy.core.errors import PruneIdNotFound, StoreUnavailable
from kimi_proxy.services.store.protocols import Original, Usage
from kimi_proxy.services.store.sqlite import schema
from kimi_proxy.services.store.sqlite.database import (
    LEAP_S,
    Clock,
    Connect,
    Moment,
    Packed,
    connect,
    is_damage,
    reading,
    set_aside_files,
    translated,
    unpack,
    writing,
)
from kimi_proxy.services.store.sqlite.writer import Keep

Handle = tuple[str, str]  # scope and id


@dataclass(frozen=True, slots=True)
class Found:
    """A record as it lies in the file, its text still packed."""

    key: bytes
    about: bytes
    last_used: float
    packed: Packed


@dataclass(frozen=True, slots=True)
class Idle:
    """A record that may go."""

    seq: int
    scope: bytes
    id: bytes
    text: int


def insert(connection: sqlite3.Connection, original: Original, packed: Packed, now: float) -> bool:
    """Keep `original`. Twice is once, with the newer note; False, and nothing done, if its id is taken."""
    known = fetch(connection, original.scope, original.id)
    if known and (known.key, known.packed.hash) != (original.key, packed.hash):
        return False
    text = _insert_text(connection, _raw(original.scope), packed)
    connection.execute(
        """INSERT INTO record (scope, id, key, text, about, created, last_used) VALUES (?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (scope, id) DO UPDATE SET
             last_used = max(last_used, excluded.last_used), about = excluded.about""",
        (_raw(original.scope), _raw(original.id), original.key, text, original.about, now, now),
    )
    return True


def _insert_text(connection: sqlite3.Connection, scope: bytes, packed: Packed) -> int:
    # The same text is stored once. If the disk has damaged it since, what we hold now mends it.
    connection.execute(
        """INSERT INTO text (scope, hash, frame) VALUES (?, ?, ?)
           ON CONFLICT (scope, hash) DO UPDATE SET frame = excluded.frame WHERE frame <> excluded.frame""",
        (scope, packed.hash, packed.frame),
    )
    (seq,) = connection.execute("SELECT seq FROM text WHERE scope = ? AND hash = ?", (scope, packed.hash)).fetchone()
    return int(seq)


def find(connection: sqlite3.Connection, scope: str, key: bytes) -> list[tuple[str, float]]:
    """The ids kept for `key` with their last use, newest first."""
    rows = connection.execute(
        "SELECT id, last_used FROM record WHERE scope = ? AND key = ? ORDER BY seq DESC LIMIT 20",
        (_raw(scope), key),
    )
    return [(_text(id), last_used) for id, last_used in rows.fetchall()]


def fetch(connection: sqlite3.Connection, scope: str, id: str) -> Found | None:
    row = connection.execute(
        """SELECT record.key, record.about, record.last_used, text.hash, text.frame
           FROM record JOIN text ON text.seq = record.text WHERE record.scope = ? AND record.id = ?""",
        (_raw(scope), _raw(id)),
    ).fetchone()
    return None if row is None else Found(row[0], row[1], row[2], Packed(row[3], row[4]))


def newest(connection: sqlite3.Connection, scope: str, limit: int) -> list[tuple[str, bytes, float, float]]:
    """The id, the note, the birth and the last use of the newest originals."""
    rows = connection.execute(
        "SELECT id, about, created, last_used FROM record WHERE scope = ? ORDER BY seq DESC LIMIT ?",
        (_raw(scope), limit),
    )
    return [(_text(id), about, created, last_used) for id, about, created, last_used in rows.fetchall()]


def page(
    connection: sqlite3.Connection, scope: str, before: int, limit: int
) -> list[tuple[int, str, bytes, float, float]]:
    """Originals older than the one numbered `before`, newest first: number, id, note, birth and last use."""
    rows = connection.execute(
        "SELECT seq, id, about, created, last_used FROM record WHERE scope = ? AND seq < ? ORDER BY seq DESC LIMIT ?",
        (_raw(scope), before, limit),
    )
    return [(seq, _text(id), about, created, last_used) for seq, id, about, created, last_used in rows.fetchall()]


def texts(connection: sqlite3.Connection, scope: str, before: int, limit: int) -> list[tuple[int, str, bytes, Packed]]:
    """The same with their texts, still packed: number, id, note and text."""
    rows = connection.execute(
        """SELECT record.seq, record.id, record.about, text.hash, text.frame
           FROM record JOIN text ON text.seq = record.text
           WHERE record.scope = ? AND record.seq < ? ORDER BY record.seq DESC LIMIT ?""",
        (_raw(scope), before, limit),
    )
    return [(seq, _text(id), about, Packed(hashed, frame)) for seq, id, about, hashed, frame in rows.fetchall()]


def last_use(connection: sqlite3.Connection, scope: str, id: str) -> float | None:
    row = connection.execute(
        "SELECT last_used FROM record WHERE scope = ? AND id = ?", (_raw(scope), _raw(id))
    ).fetchone()
    return None if row is None else float(row[0])


def is_expired(connection: sqlite3.Connection, scope: str, id: str) -> bool:
    """Whether `id` was once kept here and has gone."""
    row = connection.execute("SELECT 1 FROM tombstone WHERE scope = ? AND id = ?", (_raw(scope), _raw(id))).fetchone()
    return row is not None


def touch(connection: sqlite3.Connection, uses: Mapping[Handle, float]) -> None:
    connection.executemany(
        "UPDATE record SET last_used = max(last_used, ?) WHERE scope = ? AND id = ?",
        [(when, _raw(scope), _raw(id)) for (scope, id), when in uses.items()],
    )


def cap_uses(connection: sqlite3.Connection, now: float, latest: float) -> None:
    """Stamps later than `latest` come from a clock that ran ahead; without this they would never expire."""
    connection.execute("UPDATE record SET last_used = ? WHERE last_used > ?", (now, latest))


def newest_use(connection: sqlite3.Connection) -> float | None:
    (newest,) = connection.execute("SELECT max(last_used) FROM record").fetchone()
    return None if newest is None else float(newest)


def longest_idle(connection: sqlite3.Connection, limit: int, before: float = float("inf")) -> list[Idle]:
    rows = connection.execute(
        "SELECT seq, scope, id, text FROM record WHERE last_used < ? ORDER BY last_used, seq LIMIT ?",
        (before, limit),
    )
    return [Idle(*row) for row in rows.fetchall()]


def forget(connection: sqlite3.Connection, idle: Sequence[Idle], now: float) -> None:
    """Turn records into tombstones, and drop the texts that nothing refers to any more."""
    connection.executemany(
        "INSERT INTO tombstone (scope, id, expired) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        [(record.scope, record.id, now) for record in idle],
    )
    connection.executemany("DELETE FROM record WHERE seq = ?", [(record.seq,) for record in idle])
    connection.executemany(
        "DELETE FROM text WHERE seq = ? AND NOT EXISTS (SELECT 1 FROM record WHERE text = ?)",
        [(record.text, record.text) for record in idle],
    )


def drop_tombstones(connection: sqlite3.Connection, before: float, at_most: int) -> None:
    """Drop some of those that are too old or too many; the oldest have the lowest numbers."""
    connection.execute(
        """DELETE FROM tombstone WHERE seq IN (SELECT seq FROM tombstone ORDER BY seq LIMIT 1000)
           AND (expired < ? OR seq <= (SELECT max(seq) FROM tombstone) - ?)""",
        (before, at_most),
    )


def bytes_used(connection: sqlite3.Connection) -> int:
    """The file without its free pages."""
    (used,) = connection.execute(
        """SELECT (page_count - freelist_count) * page_size
           FROM pragma_page_count, pragma_freelist_count, pragma_page_size"""
    ).fetchone()
    return int(used)


def bytes_on_disk(connection: sqlite3.Connection) -> int:
    (size,) = connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()
    return int(size)


def give_back_space(connection: sqlite3.Connection) -> None:
    """Return up to 4 MiB of free pages to the disk."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    for _ in range(min(free, 1024)):
        connection.execute("PRAGMA incremental_vacuum (1)")  # sqlite3 takes one step of it, whatever we ask


def count(connection: sqlite3.Connection) -> tuple[int, float | None]:
    """How many originals there are, and when the oldest was kept."""
    (originals,) = connection.execute("SELECT count(*) FROM record").fetchone()
    oldest = connection.execute("SELECT created FROM record ORDER BY seq LIMIT 1").fetchone()
    return int(originals), None if oldest is None else float(oldest[0])


# Scopes and ids may hold anything a caller sends, lone surrogates too, which SQLite's TEXT can't.
def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


# What has expired stays this long on disk: a use that another process has yet to write may revive it.
GRACE_S = 60.0
TOMBSTONE_S = 30 * 86_400.0
TOMBSTONE_BYTES = 2048  # of budget for each; they take about a hundred
FORGET_AT_ONCE = 100  # so that no transaction is long


@dataclass(frozen=True, slots=True)
class Retention:
    """How long originals stay idle, and how much room they may take."""

    ttl_s: float
    max_bytes: int

    def is_live(self, last_used: float, moment: Moment) -> bool:
        return moment.earliest - last_used <= self.ttl_s

    def expire(self, connection: Connection, moment: Moment) -> int:
        """Let some of what has expired go; how many went."""
        before = moment.earliest - self.ttl_s - GRACE_S
        idle = longest_idle(connection, FORGET_AT_ONCE, before)
        forget(connection, idle, moment.latest)
        drop_tombstones(connection, moment.earliest - TOMBSTONE_S, self.max_bytes // TOMBSTONE_BYTES)
        if moment.is_certain:
            cap_uses(connection, moment.latest, moment.latest + LEAP_S)
        return len(idle)

    def make_room(self, connection: Connection, needed: int, moment: Moment) -> int:
        """Let the longest idle go until `needed` more bytes fit the budget; how many went."""
        gone = 0
        while gone < FORGET_AT_ONCE and bytes_used(connection) + needed > self.max_bytes:
            idle = longest_idle(connection, 1)
            if not idle:
                break
            forget(connection, idle, moment.latest)
            gone += 1
        return gone


class Uses:
    """Touched by readers, emptied by the writer."""

    def __init__(self) -> None:
        self._last: dict[Handle, float] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._last)

    def add(self, handle: Handle, when: float) -> None:
        with self._lock:
            self._last[handle] = max(when, self._last.get(handle, when))

    def last(self, handle: Handle, written: float) -> float:
        """The last use of an original whose last written use was `written`."""
        with self._lock:
            return max(written, self._last.get(handle, written))

    def pending(self) -> dict[Handle, float]:
        with self._lock:
            return dict(self._last)

    def written(self, uses: Mapping[Handle, float]) -> None:
        """Forget those of `uses` that nobody has renewed since."""
        with self._lock:
            for handle, when in uses.items():
                if self._last.get(handle) == when:
                    del self._last[handle]


T = TypeVar("T")

log = logging.getLogger(__name__)


class Shelf:
    """Every call opens the file afresh, so whatever is wrong with it is over as soon as its cause is."""

    def __init__(
        self,
        path: Path,
        retention: Retention,
        now: Callable[[], float],
        patience_s: float,
        connect: Connect = connect,
    ) -> None:
        self._path = path
        self._retention = retention
        self._now = now
        self._patience_s = patience_s
        self._connect = connect
        self._clock = Clock(now, last_seen=0.0)  # in doubt of everything until we have read the file
        self._uses = Uses()
        self._commits = 0
        self.trouble: str | None = None

    def trust_clock(self) -> None:
        """Compare the clock with the newest stamp on file: a leap since then waits for a second look."""
        with self._reading() as connection:
            self._clock = Clock(self._now, newest_use(connection))

    def find(self, scope: str, key: bytes) -> str | None:
        moment = self._clock.look()
        with self._reading() as connection:
            ids = find(connection, scope, key)
        for id, written in ids:
            if self._retention.is_live(self._uses.last((scope, id), written), moment):
                self._uses.add((scope, id), moment.latest)
                return id
        return None

    def original(self, scope: str, id: str) -> Original:
        moment = self._clock.look()
        with self._reading() as connection:
            found = fetch(connection, scope, id)
            has_expired = found is None and is_expired(connection, scope, id)
        if found is None:
            raise PruneIdNotFound(id, "expired" if has_expired else "unknown")
        if not self._retention.is_live(self._uses.last((scope, id), found.last_used), moment):
            raise PruneIdNotFound(id, "expired")
        self._uses.add((scope, id), moment.latest)
        return Original(id, scope, found.key, unpack(found.packed), found.about)

    def live(self, scope: str, ids: Collection[str]) -> frozenset[str]:
        moment = self._clock.look()
        with self._reading() as connection:
            written = {id: last_used for id in ids if (last_used := last_use(connection, scope, id)) is not None}
        found = [
            id
            for id, last_used in written.items()
            if self._retention.is_live(self._uses.last((scope, id), last_used), moment)
        ]
        for id in found:
            self._uses.add((scope, id), moment.latest)
        return frozenset(found)

    def commit(self, keeps: Sequence[Keep]) -> int:
        """Write `keeps` and all pending uses in one transaction; how many originals had to go."""
        try:
            with translated(self._path):
                gone = _or_start_afresh(lambda: self._transact(keeps))
        except StoreUnavailable as e:
            self.report(str(e))
            raise
        self.report(None)
        return gone

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What quick queries find."""
        with self._reading() as connection:
            return work(connection)

    def write(self, work: Callable[[sqlite3.Connection, Moment], T]) -> T:
        """Do `work` in a transaction of its own."""

        def transact() -> T:
            moment = self._clock.look()
            with writing(self._path, self._patience_s, self._connect) as connection:
                return work(connection, moment)

        try:
            with translated(self._path):
                return _or_start_afresh(transact)
        except StoreUnavailable as e:
            self.report(str(e))
            raise

    def has_uses_to_write(self) -> bool:
        return bool(self._uses)

    def watch_clock(self) -> None:
        """Between two looks that are far apart, time that has passed can't be told from a leap."""
        self._clock.look()

    def report(self, trouble: str | None) -> None:
        """Remember how we fare, and say so once when it changes."""
        if trouble and trouble != self.trouble:
            log.warning("store_degraded", extra={"path": str(self._path), "trouble": trouble})
        elif self.trouble and not trouble:
            log.info("store_healed", extra={"path": str(self._path)})
        self.trouble = trouble

    def usage(self) -> Usage:
        with self._reading() as connection:
            originals, oldest = count(connection)
            size, set_aside = bytes_on_disk(connection), set_aside_files(self._path)
        return self._usage(self.trouble, originals, oldest, size, set_aside)

    def sick_usage(self, trouble: str) -> Usage:
        """What can be said without the file."""
        return self._usage(self.trouble or trouble)

    def _usage(
        self,
        trouble: str | None,
        originals: int = 0,
        oldest: float | None = None,
        size: int = 0,
        set_aside: tuple[str, ...] = (),
    ) -> Usage:
        return Usage(
            path=str(self._path),
            state=f"degraded: {trouble}" if trouble else "ok",
            originals=originals,
            oldest=oldest,
            bytes_on_disk=size,
            max_bytes=self._retention.max_bytes,
            commits=self._commits,
            set_aside=set_aside,
        )

    def _transact(self, keeps: Sequence[Keep]) -> int:
        moment = self._clock.look()
        uses = self._uses.pending()
        with writing(self._path, self._patience_s, self._connect) as connection:
            if self.trouble:
                schema.write_a_page(connection)
            touch(connection, uses)
            gone = self._retention.expire(connection, moment)
            gone += self._retention.make_room(connection, sum(keep.room for keep in keeps), moment)
            for keep in keeps:
                keep.is_refused = not insert(connection, keep.original, keep.packed, moment.latest)
            if not keeps:
                give_back_space(connection)
        self._uses.written(uses)
        self._commits += bool(keeps)
        return gone

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with translated(self._path), reading(self._path, self._patience_s, self._connect) as connection:
            yield connection


def _or_start_afresh(transact: Callable[[], T]) -> T:
    try:
        return transact()
    except sqlite3.DatabaseError as e:
        if not is_damage(e):
            raise
    return transact()  # the damaged file is out of the way now

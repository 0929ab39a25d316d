"""Every statement about originals. Callers hold the transaction."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kimi_proxy.services.store.originals import Original
from kimi_proxy.services.store.packing import Packed

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


def has_expired(connection: sqlite3.Connection, scope: str, id: str) -> bool:
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

"""Copies a store from its SQLite file into PostgreSQL: row by row, resumable, and read back to compare hashes.

Existing ids and tokens keep working, because scopes, ids, keys, hashes and times are copied unchanged.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg

from kimi_proxy.core.addresses import Address
from kimi_proxy.core.errors import ConfigError, StoreUnavailable
from kimi_proxy.services.store.sql import FOREIGN, FOREIGN_MARKS, WallClock, readable, refuse_marks
from kimi_proxy.services.store.sqlite import schema
from kimi_proxy.services.store.sqlite.store import store_path
from kimi_proxy.team.store.postgres.database import PostgresDatabase, read_bytes, storable
from kimi_proxy.team.store.postgres.originals import PAGE

AT_ONCE = 200  # rows of a transaction; after each of them a copy can be ended and resumed
BRING_UP_S = 600.0

# The tables that are copied. Texts come before the records that refer to them; the number of a row is its own in each
# database.
TABLES = (
    "text",
    "record",
    "tombstone",
    "decision",
    "fact",
    "sessions",
    "metrics",
    "compression_log",
    "memory_segments",
    "person",
    "erased",
    "token",
    "login",
    "usage_day",
    "open_request",
    "audit_log",
    "secret",
    "project_memory",
    "provider_object",
)

# The tables that only PostgreSQL has, each with the reason why nothing is copied into it.
LEFT_OUT = {
    "schema_version": "The copy begins with creating the tables.",
    "copied": "Records how far this copy has come.",
    "kept": "Counts the originals, which the copy counts as it adds them.",
    "sent_prefix": "Holds what servers that share the database have just sent.",
    "event_batch": "Holds live events between servers that share the database.",
    "rate": "Holds the request rates of servers that share the database.",
    "stray_object": "Lists objects in object storage, which an earlier version used.",
}
# Small tables whose rows have no number to resume from: every run reads all of them.
WITHOUT_NUMBERS = ("token",)

Row = tuple[object, ...]
CopyProgress = Callable[[str, int, int], None]  # the name of the step, the rows copied so far, and their total


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The number of rows of each table that this run copied, and of originals that are equal in both stores."""

    copied: dict[str, int] = field(default_factory=dict)
    verified: int = 0
    damaged: tuple[str, ...] = ()  # ids of originals that the file itself cannot give back


def sqlite_file(url: str) -> Path:
    """Return the file that `sqlite:///PATH`, a path of it, or the path of a home means. Raise ConfigError if none."""
    path = Path(unquote(urlsplit(url).path)) if url.startswith("sqlite:") else Path(url)
    path = store_path(path) if path.is_dir() else path
    if not path.is_file():
        raise ConfigError(f"{path} is not a file: give a store such as sqlite:///HOME/store/originals.sqlite3")
    return path


def copy_store(file: Path, url: str, progress: CopyProgress) -> CopyResult:
    """Copy all rows that are not copied yet, then compare every original; return the counts.

    Raise StoreUnavailable if a database cannot be used, or if an original differs afterwards.
    """
    asyncio.run(_brought_up(url))
    try:
        with (
            closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as source,
            psycopg.connect(url, autocommit=True) as target,
        ):
            if schema.version(source) != schema.VERSION:
                raise ConfigError(f"{file} was written by another version: start and stop this version on it once")
            refuse_marks(source.execute(FOREIGN, FOREIGN_MARKS).fetchall())
            copied = {
                name: _copy_whole(source, target, name, progress)
                if name in WITHOUT_NUMBERS
                else _copy_table(source, target, str(file), name, progress)
                for name in TABLES
            }
            _end_old_tokens(source, target)
            verified, damaged = _verify(source, target, progress)
    except sqlite3.Error as e:
        raise StoreUnavailable(f"{file} cannot be read: {e}") from e
    except psycopg.Error as e:
        raise StoreUnavailable(f"PostgreSQL: {str(e).strip().splitlines()[0]}; run it again to resume") from e
    return CopyResult(copied, verified, damaged)


async def _brought_up(url: str) -> None:
    """Make the tables. Raise StoreUnavailable if the database is away."""
    database = PostgresDatabase(Address(url), WallClock(lambda: 0.0), BRING_UP_S)
    await database.open()
    try:
        if database.trouble:
            raise database.trouble
    finally:
        await database.close()


def _copy_table(
    source: sqlite3.Connection, target: "psycopg.Connection[Row]", file: str, name: str, progress: CopyProgress
) -> int:
    """Copy the rows of a table after the last one that an earlier run has copied; return how many."""
    (total,) = source.execute(f"SELECT count(*) FROM {name}").fetchone()  # noqa: S608 - of TABLES
    columns, booleans = _columns(source, target, name)
    where = "SELECT last, rows FROM copied WHERE source = %s AND name = %s"
    found = target.execute(where, (file, name)).fetchone() or (-(2**62), 0)
    last = found[0]
    done = int(str(found[1]))
    new = 0
    while rows := source.execute(
        f"SELECT rowid, {', '.join(columns)} FROM {name} WHERE rowid > ? ORDER BY rowid LIMIT ?",  # noqa: S608
        (last, AT_ONCE),
    ).fetchall():
        with target.transaction():
            new += _insert(source, target, name, columns, [_values(row[1:], columns, booleans) for row in rows])
            last = rows[-1][0]
            done += len(rows)
            target.execute(
                """INSERT INTO copied VALUES (%s, %s, %s, %s)
                   ON CONFLICT (source, name) DO UPDATE SET last = excluded.last, rows = excluded.rows""",
                (file, name, last, done),
            )
        progress(name, done, int(total))
    return new


def _copy_whole(
    source: sqlite3.Connection, target: "psycopg.Connection[Row]", name: str, progress: CopyProgress
) -> int:
    """Copy a small table in one transaction; return the number of rows that were not there before."""
    columns, booleans = _columns(source, target, name)
    rows = source.execute(f"SELECT {', '.join(columns)} FROM {name}").fetchall()  # noqa: S608 - of TABLES
    with target.transaction():
        new = _insert(source, target, name, columns, [_values(row, columns, booleans) for row in rows])
    progress(name, len(rows), len(rows))
    return new


def _end_old_tokens(source: sqlite3.Connection, target: "psycopg.Connection[Row]") -> None:
    """Repeat what happened to people's tokens in the file between two runs; what is newer in the database stays."""
    people = source.execute("SELECT id, token_hash, rotated, revoked FROM person").fetchall()
    with target.cursor() as cursor:
        cursor.executemany(
            """UPDATE person SET token_hash = new.hash, rotated = new.rotated, revoked = new.revoked
               FROM (VALUES (%s, %s::bytea, %s::float8, %s::float8)) AS new (id, hash, rotated, revoked)
               WHERE person.id = new.id AND (new.rotated > person.rotated
                 OR new.rotated = person.rotated AND person.revoked IS NULL AND new.revoked IS NOT NULL)""",
            people,
        )


def _columns(
    source: sqlite3.Connection, target: "psycopg.Connection[Row]", name: str
) -> tuple[list[str], frozenset[str]]:
    """Return the columns to copy, and those of them that are true or false."""
    theirs = target.execute(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_name = %s AND table_schema = current_schema()",
        (name,),
    ).fetchall()
    kinds = {str(column): str(kind) for column, kind in theirs}
    ours = [
        str(column)
        for _, column, kind, _, _, is_key, is_computed in source.execute(f"PRAGMA table_xinfo({name})")
        if not is_computed and not (is_key and kind == "INTEGER")  # the number of a row
    ]
    columns = [column for column in ours if column in kinds]
    return columns, frozenset(column for column, kind in kinds.items() if kind == "boolean")


def _insert(
    source: sqlite3.Connection,
    target: "psycopg.Connection[Row]",
    name: str,
    columns: Sequence[str],
    values: Sequence[Sequence[object]],
) -> int:
    """Insert rows; return the number of those that were not there before."""
    if name == "record":
        return _insert_records(source, target, columns, values)
    places = ", ".join(["%s"] * len(columns))
    statement = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({places}) ON CONFLICT DO NOTHING"  # noqa: S608
    with target.cursor() as cursor:
        cursor.executemany(statement.encode(), values)
        return max(0, cursor.rowcount)


def _insert_records(
    source: sqlite3.Connection,
    target: "psycopg.Connection[Row]",
    columns: Sequence[str],
    values: Sequence[Sequence[object]],
) -> int:
    """Insert records, which refer to texts by the texts' own hashes, and add them to the totals."""
    places = ", ".join(
        "(SELECT seq FROM text WHERE scope = %s AND hash = %s)" if c == "text" else "%s" for c in columns
    )
    statement = f"""INSERT INTO record ({", ".join(columns)}, size) VALUES ({places}, %s)
      ON CONFLICT DO NOTHING RETURNING size"""  # noqa: S608 - the columns of a table
    at = columns.index("text")
    about = columns.index("about")
    count = size = 0
    for row in values:
        text = source.execute("SELECT scope, hash, length(frame) FROM text WHERE seq = ?", (row[at],)).fetchone()
        note = row[about]
        room = text[2] + (len(note) if isinstance(note, bytes) else 0) + PAGE
        given = [*row[:at], text[0], text[1], *row[at + 1 :], room]
        if target.execute(statement.encode(), given).fetchone() is not None:
            count, size = count + 1, size + room
    target.execute("UPDATE kept SET originals = originals + %s, bytes = bytes + %s WHERE shard = 0", (count, size))
    return count


def _verify(
    source: sqlite3.Connection, target: "psycopg.Connection[Row]", progress: CopyProgress
) -> tuple[int, tuple[str, ...]]:
    """Read every original back from the database; return how many are the same, and which the file has damaged."""
    (total,) = source.execute("SELECT count(*) FROM record").fetchone()
    damaged: list[str] = []
    done = 0
    for rows in _batches(source):
        found = {
            (scope, id): (key, hashed, frame)
            for scope, id, key, hashed, frame in target.execute(
                """SELECT record.scope, record.id, record.key, text.hash, text.frame
                   FROM record JOIN text ON text.seq = record.text
                   JOIN unnest(%s::bytea[], %s::bytea[]) AS given (scope, id)
                     ON given.scope = record.scope AND given.id = record.id""",
                ([row[1] for row in rows], [row[2] for row in rows]),
            )
        }
        for _, scope, id, key, hashed, frame in rows:
            there = found.get((scope, id))
            if readable(hashed, frame) is None:
                damaged.append(bytes(id).decode("utf-8", "replace"))
            elif there is None or there[:2] != (key, hashed) or readable(hashed, read_bytes(there[2])) is None:
                shown = bytes(id).decode("utf-8", "replace")
                raise StoreUnavailable(f"{shown} differs in PostgreSQL: was it deleted there in the meantime?")
        done += len(rows)
        progress("comparing", done, int(total))
    return done - len(damaged), tuple(damaged)


def _batches(source: sqlite3.Connection) -> Iterator[list[tuple[int, bytes, bytes, bytes, bytes, bytes]]]:
    last = -1
    while rows := source.execute(
        """SELECT record.seq, record.scope, record.id, record.key, text.hash, text.frame
           FROM record JOIN text ON text.seq = record.text WHERE record.seq > ? ORDER BY record.seq LIMIT ?""",
        (last, AT_ONCE),
    ).fetchall():
        last = rows[-1][0]
        yield rows


def _values(row: Sequence[object], columns: Sequence[str], booleans: frozenset[str]) -> list[object]:
    return [_value(one, column in booleans) for one, column in zip(row, columns, strict=True)]


def _value(value: object, is_boolean: bool) -> object:
    """Return a value for a PostgreSQL column: TEXT accepts neither NUL nor half of a surrogate pair."""
    if is_boolean:
        return bool(value)
    return storable(value) if isinstance(value, str) else value

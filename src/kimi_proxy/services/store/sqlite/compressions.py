"""What sessions' histories were replaced by, beside the originals and written by the same thread."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kimi_proxy.core import json
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.sqlite.database import Moment, Packed, pack, unpack

T = TypeVar("T")

NEWEST = 20  # of a session: enough to know what stands and when it was made


class File(Protocol):
    """Where statements are run; StoreUnavailable if they can't be now."""

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T: ...
    async def write(self, work: Callable[[sqlite3.Connection, Moment], T]) -> T: ...


@dataclass(frozen=True, slots=True)
class Compressed:
    """One compression. `message` is what the model reads, `summary` the part of it that was written for it."""

    id: str
    session: str
    at: float
    original_tokens: int
    compressed_tokens: int
    cut: int
    kept: tuple[int, ...]
    fingerprint: bytes
    message: str
    summary: str
    original: str  # the id under which the removed messages are kept
    summary_by: str
    kind: str  # compression or compaction
    is_automatic: bool
    undone: float | None = None


@dataclass(frozen=True, slots=True)
class Sums:
    compressions: int
    undone: int
    original_tokens: int
    compressed_tokens: int


class CompressionLog:
    def __init__(self, file: File) -> None:
        self._file = file

    async def add(self, compressed: Compressed) -> None:
        """On disk for good when this returns."""
        await self._file.write(lambda connection, moment: _insert(connection, compressed))

    async def newest(self, session: str) -> Sequence[Compressed]:
        """The newest first."""
        return await self._file.read(lambda connection: _newest(connection, session))

    async def undo(self, id: str, at: float) -> None:
        await self._file.write(
            lambda connection, moment: connection.execute(
                "UPDATE compression_log SET undone = ? WHERE handle = ?", (at, id)
            )
        )

    async def sums(self, session: str | None = None) -> Sums:
        return await self._file.read(lambda connection: _sums(connection, session))


def _insert(connection: sqlite3.Connection, one: Compressed) -> None:
    packed = pack(json.encode({"message": one.message, "summary": one.summary}))
    ratio = round(1 - one.compressed_tokens / one.original_tokens, 4) if one.original_tokens else 0.0
    connection.execute(
        """INSERT INTO compression_log (handle, session_id, timestamp, original_tokens, compressed_tokens, cut, kept,
             fingerprint, hash, frame, original, summary_by, kind, automatic, undone, compression_ratio)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
        (
            *(one.id, one.session, one.at, one.original_tokens, one.compressed_tokens),
            *(one.cut, " ".join(map(str, one.kept)), one.fingerprint, packed.hash, packed.frame),
            *(one.original, one.summary_by, one.kind, one.is_automatic, one.undone, ratio),
        ),
    )


def _newest(connection: sqlite3.Connection, session: str) -> list[Compressed]:
    rows = connection.execute(
        """SELECT handle, session_id, timestamp, original_tokens, compressed_tokens, cut, kept, fingerprint, hash,
             frame, original, summary_by, kind, automatic, undone
           FROM compression_log WHERE session_id = ? ORDER BY id DESC LIMIT ?""",
        (session, NEWEST),
    )
    return [_compressed(*row) for row in rows.fetchall()]


def _sums(connection: sqlite3.Connection, session: str | None) -> Sums:
    row = connection.execute(
        """SELECT count(*), count(undone), coalesce(sum(original_tokens), 0), coalesce(sum(compressed_tokens), 0)
           FROM compression_log WHERE ?1 IS NULL OR session_id = ?1""",
        (session,),
    ).fetchone()
    return Sums(*map(int, row))


def _compressed(
    handle: str,
    session: str,
    at: float,
    original_tokens: int,
    compressed_tokens: int,
    cut: int,
    kept: str,
    fingerprint: bytes,
    hashed: bytes,
    frame: bytes,
    original: str,
    summary_by: str,
    kind: str,
    is_automatic: int,
    undone: float | None,
) -> Compressed:
    message, summary = _words(unpack(Packed(hashed, frame)))
    return Compressed(
        *(handle, session, at, original_tokens, compressed_tokens, cut, tuple(map(int, kept.split())), fingerprint),
        *(message, summary, original, summary_by, kind, bool(is_automatic), undone),
    )


def _words(raw: bytes) -> tuple[str, str]:
    match json.decode(raw):
        case {"message": str(message), "summary": str(summary)}:
            return message, summary
    raise StoreUnavailable("a compression on disk holds no words")

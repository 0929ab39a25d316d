"""Every statement about pins: how parts of conversations left when first sent. Callers hold the transaction."""

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kimi_proxy.services.store.packing import Packed, pack, unpack


@dataclass(frozen=True, slots=True)
class Pin:
    """A part of a conversation, by its place. `shown` is what was left of it, None that it went out whole."""

    place: bytes
    why: str
    shown: bytes | None = None
    ids: tuple[str, ...] = ()  # of the originals; the first is that of the part itself
    preview: str = ""
    session: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    created: float = 0.0
    last_used: float = 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """What all pins come to: how many for each reason, and the tokens of those that were cut."""

    outputs: Mapping[str, int]
    tokens_before: int
    tokens_after: int


def insert(connection: sqlite3.Connection, scope: str, pin: Pin, now: float) -> None:
    """Pin a part; one that is pinned already stays as it is."""
    packed = None if pin.shown is None else pack(pin.shown)
    connection.execute(
        """INSERT INTO pin (scope, place, why, hash, shown, ids, preview, session, tokens_before, tokens_after,
             created, last_used) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
        (
            *(_raw(scope), pin.place, pin.why, packed and packed.hash, packed and packed.frame),
            *(_raw(" ".join(pin.ids)), _raw(pin.preview), _raw(pin.session)),
            *(pin.tokens_before, pin.tokens_after, now, now),
        ),
    )


def release(connection: sqlite3.Connection, scope: str, places: Iterable[bytes]) -> None:
    connection.executemany("DELETE FROM pin WHERE scope = ? AND place = ?", [(_raw(scope), p) for p in places])


def fetch(connection: sqlite3.Connection, scope: str, place: bytes) -> Pin | None:
    row = connection.execute(
        """SELECT place, why, hash, shown, ids, preview, session, tokens_before, tokens_after, created, last_used
           FROM pin WHERE scope = ? AND place = ?""",
        (_raw(scope), place),
    ).fetchone()
    return None if row is None else _pin(*row)


def of_original(connection: sqlite3.Connection, scope: str, id: str, with_shown: bool) -> Pin | None:
    """The pin of the part that is kept under `id`; what was shown of it is only unpacked if somebody wants it."""
    shown = "hash, shown" if with_shown else "NULL, NULL"
    row = connection.execute(
        f"""SELECT place, why, {shown}, ids, preview, session, tokens_before, tokens_after, created, last_used
           FROM pin WHERE scope = ? AND ids >= ? AND ids < ? ORDER BY ids LIMIT 1""",  # noqa: S608 - two fixed texts
        (_raw(scope), _raw(id), _raw(id + "!")),  # ids stand with spaces between them, and "!" is next after those
    ).fetchone()
    return None if row is None else _pin(*row)


def newest_cuts(connection: sqlite3.Connection, scope: str, limit: int) -> list[Pin]:
    rows = connection.execute(
        """SELECT place, why, hash, shown, ids, preview, session, tokens_before, tokens_after, created, last_used
           FROM pin WHERE scope = ? AND ids <> x'' ORDER BY seq DESC LIMIT ?""",
        (_raw(scope), limit),
    )
    return [_pin(*row) for row in rows.fetchall()]


def totals(connection: sqlite3.Connection, scope: str) -> Totals:
    outputs = connection.execute(
        "SELECT why, count(*) FROM pin WHERE scope = ? AND (ids <> x'' OR shown IS NULL) GROUP BY why", (_raw(scope),)
    ).fetchall()
    (before, after) = connection.execute(
        """SELECT coalesce(sum(tokens_before), 0), coalesce(sum(tokens_after), 0)
           FROM pin WHERE scope = ? AND ids <> x''""",
        (_raw(scope),),
    ).fetchone()
    return Totals(dict(outputs), int(before), int(after))


def touch(connection: sqlite3.Connection, used: Iterable[tuple[str, bytes]], now: float) -> None:
    connection.executemany(
        "UPDATE pin SET last_used = ? WHERE scope = ? AND place = ?", [(now, _raw(scope), at) for scope, at in used]
    )


def expire(connection: sqlite3.Connection, before: float, at_most: int) -> None:
    connection.execute(
        "DELETE FROM pin WHERE seq IN (SELECT seq FROM pin WHERE last_used < ? ORDER BY last_used LIMIT ?)",
        (before, at_most),
    )


def _pin(
    place: bytes,
    why: str,
    hashed: bytes | None,
    frame: bytes | None,
    ids: bytes,
    preview: bytes,
    session: bytes,
    tokens_before: int,
    tokens_after: int,
    created: float,
    last_used: float,
) -> Pin:
    shown = None if hashed is None or frame is None else unpack(Packed(hashed, frame))
    names = tuple(_text(ids).split())
    told = _text(preview), _text(session)
    return Pin(place, why, shown, names, *told, tokens_before, tokens_after, created, last_used)


# Sessions are named by clients, and previews are what tools said: SQLite's TEXT can't hold lone surrogates.
def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")

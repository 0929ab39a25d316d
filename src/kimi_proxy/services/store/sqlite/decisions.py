"""How parts of conversations left when they were first sent, beside the originals and written by the same thread."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Protocol, TypeVar

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.sqlite import originals
from kimi_proxy.services.store.sqlite.database import Moment, Packed, pack, unpack


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


T = TypeVar("T")

DAY_S = 86_400.0
EXPIRE_AT_ONCE = 200  # so that no transaction is long


class File(Protocol):
    """Where statements are run; StoreUnavailable if they can't be now."""

    async def read(self, work: Callable[[Connection], T]) -> T: ...
    async def write(self, work: Callable[[Connection, Moment], T]) -> T: ...


@dataclass(frozen=True, slots=True)
class Mask:
    """An original, its note, and the pin of the output that it is, if it is one."""

    id: str
    about: bytes
    created: float
    last_used: float
    pin: Pin | None
    seq: int = 0  # its place among all; newer ones have a higher


@dataclass(frozen=True, slots=True)
class Kept:
    """An original with its text, its note and its place among all."""

    seq: int
    id: str
    about: bytes
    text: bytes


class Pinboard:
    """Pins by scope and place; they go when they have not been used for `ttl_s`."""

    def __init__(self, file: File, ttl_s: float) -> None:
        self._file = file
        self._ttl_s = ttl_s
        self._used: dict[tuple[str, bytes], Pin] = {}  # read since the last commit

    async def pinned(self, scope: str, places: Sequence[bytes]) -> Mapping[bytes, Pin]:
        """The pins of these places. Counts as use."""
        found = await self._file.read(lambda connection: _standing(connection, scope, places))
        self._used |= {(scope, place): pin for place, pin in found.items()}
        return found

    async def pin(self, scope: str, new: Sequence[Pin], gone: Sequence[bytes] = ()) -> Mapping[bytes, Pin]:
        """Forget those of `gone`, pin those of `new`, and return what then stands in their places, on disk for good.

        Whoever came first stays pinned, and all others follow.
        """
        used, self._used = self._used, {}

        def work(connection: Connection, moment: Moment) -> Mapping[bytes, Pin]:
            stamped = moment.earliest - min(DAY_S, self._ttl_s / 2)
            release(connection, scope, gone)
            touch(connection, (at for at, pin in used.items() if pin.last_used < stamped), moment.latest)
            for pin in new:
                insert(connection, scope, pin, moment.latest)
            expire(connection, moment.earliest - self._ttl_s, EXPIRE_AT_ONCE)
            return _standing(connection, scope, (pin.place for pin in new))

        return await self._file.write(work)

    async def newest(self, scope: str, limit: int) -> Sequence[Mask]:
        """The newest originals that something was cut from, by whichever door."""

        def work(connection: Connection) -> Sequence[Mask]:
            kept = originals.newest(connection, scope, limit)
            cuts = {pin.ids[0]: pin for pin in newest_cuts(connection, scope, limit)}
            return [Mask(id, about, created, last_used, cuts.get(id)) for id, about, created, last_used in kept]

        return await self._file.read(work)

    async def page(self, scope: str, before: int, limit: int) -> Sequence[Mask]:
        """The originals before the one numbered `before`, newest first; what was shown of them is left out."""

        def work(connection: Connection) -> Sequence[Mask]:
            kept = originals.page(connection, scope, before, limit)
            return [
                Mask(id, about, created, used, of_original(connection, scope, id, with_shown=False), seq)
                for seq, id, about, created, used in kept
            ]

        return await self._file.read(work)

    async def pin_of(self, scope: str, id: str) -> Pin | None:
        """The pin of the part that is kept under `id`, with what was shown."""
        return await self._file.read(lambda connection: of_original(connection, scope, id, with_shown=True))

    async def texts(self, scope: str, before: int, limit: int) -> Sequence[Kept]:
        """The same originals with their texts; one that is damaged is left out. Does not count as use."""

        def work(connection: Connection) -> Sequence[Kept]:
            return list(_unpacked(originals.texts(connection, scope, before, limit)))

        return await self._file.read(work)

    async def newest_cuts(self, scope: str, limit: int) -> Sequence[Pin]:
        return await self._file.read(lambda connection: newest_cuts(connection, scope, limit))

    async def totals(self, scope: str) -> Totals:
        return await self._file.read(lambda connection: totals(connection, scope))


def _unpacked(found: Iterable[tuple[int, str, bytes, Packed]]) -> Iterator[Kept]:
    for seq, id, about, packed in found:
        with suppress(StoreUnavailable):
            yield Kept(seq, id, about, unpack(packed))


def _standing(connection: Connection, scope: str, places: Iterable[bytes]) -> dict[bytes, Pin]:
    found = (fetch(connection, scope, place) for place in places)
    return {pin.place: pin for pin in found if pin is not None}

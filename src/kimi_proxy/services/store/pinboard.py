"""How parts of conversations left when they were first sent, beside the originals and written by the same thread."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Protocol, TypeVar

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store import pins, records
from kimi_proxy.services.store.clock import Moment
from kimi_proxy.services.store.packing import Packed, unpack
from kimi_proxy.services.store.pins import Pin, Totals

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
            pins.release(connection, scope, gone)
            pins.touch(connection, (at for at, pin in used.items() if pin.last_used < stamped), moment.latest)
            for pin in new:
                pins.insert(connection, scope, pin, moment.latest)
            pins.expire(connection, moment.earliest - self._ttl_s, EXPIRE_AT_ONCE)
            return _standing(connection, scope, (pin.place for pin in new))

        return await self._file.write(work)

    async def newest(self, scope: str, limit: int) -> Sequence[Mask]:
        """The newest originals that something was cut from, by whichever door."""

        def work(connection: Connection) -> Sequence[Mask]:
            kept = records.newest(connection, scope, limit)
            cuts = {pin.ids[0]: pin for pin in pins.newest_cuts(connection, scope, limit)}
            return [Mask(id, about, created, last_used, cuts.get(id)) for id, about, created, last_used in kept]

        return await self._file.read(work)

    async def page(self, scope: str, before: int, limit: int) -> Sequence[Mask]:
        """The originals before the one numbered `before`, newest first; what was shown of them is left out."""

        def work(connection: Connection) -> Sequence[Mask]:
            kept = records.page(connection, scope, before, limit)
            return [
                Mask(id, about, created, used, pins.of_original(connection, scope, id, with_shown=False), seq)
                for seq, id, about, created, used in kept
            ]

        return await self._file.read(work)

    async def pin_of(self, scope: str, id: str) -> Pin | None:
        """The pin of the part that is kept under `id`, with what was shown."""
        return await self._file.read(lambda connection: pins.of_original(connection, scope, id, with_shown=True))

    async def texts(self, scope: str, before: int, limit: int) -> Sequence[Kept]:
        """The same originals with their texts; one that is damaged is left out. Does not count as use."""

        def work(connection: Connection) -> Sequence[Kept]:
            return list(_unpacked(records.texts(connection, scope, before, limit)))

        return await self._file.read(work)

    async def newest_cuts(self, scope: str, limit: int) -> Sequence[Pin]:
        return await self._file.read(lambda connection: pins.newest_cuts(connection, scope, limit))

    async def totals(self, scope: str) -> Totals:
        return await self._file.read(lambda connection: pins.totals(connection, scope))


def _unpacked(found: Iterable[tuple[int, str, bytes, Packed]]) -> Iterator[Kept]:
    for seq, id, about, packed in found:
        with suppress(StoreUnavailable):
            yield Kept(seq, id, about, unpack(packed))


def _standing(connection: Connection, scope: str, places: Iterable[bytes]) -> dict[bytes, Pin]:
    found = (pins.fetch(connection, scope, place) for place in places)
    return {pin.place: pin for pin in found if pin is not None}

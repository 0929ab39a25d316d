"""The outside, as tests replace it: a clock, a store."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from kimi_proxy.core.errors import PruneIdNotFound, StoreUnavailable
from kimi_proxy.services.store import Original, Pin, Pinboard, Usage


class Clock:
    """Stands still until it is told to advance."""

    def __init__(self, at: float = 1_000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += seconds


class MemoryStore:
    """A store that loses everything at the end, and falls ill when it is told to."""

    def __init__(self) -> None:
        self.originals: dict[tuple[str, str], Original] = {}
        self.illness: Exception | None = None
        self.is_stuck = False
        self.keeps = 0

    async def find(self, scope: str, key: bytes) -> str | None:
        await self._feel()
        found = [o.id for o in self.originals.values() if (o.scope, o.key) == (scope, key)]
        return found[-1] if found else None

    async def keep(self, original: Original) -> None:
        await self._feel()
        self.keeps += 1
        self.originals[original.scope, original.id] = original

    async def original(self, scope: str, id: str) -> Original:
        await self._feel()
        if (scope, id) not in self.originals:
            raise PruneIdNotFound(id, "unknown")
        return self.originals[scope, id]

    async def live(self, scope: str, ids: Collection[str]) -> frozenset[str]:
        await self._feel()
        return frozenset(id for id in ids if (scope, id) in self.originals)

    async def usage(self) -> Usage:
        state = "degraded: told so" if self.illness else "ok"
        return Usage("memory", state, len(self.originals), 0, 0, None, self.keeps, ())

    async def close(self) -> None:
        self.illness = StoreUnavailable("closed")

    def fall_ill(self, ill: bool) -> None:
        self.illness = StoreUnavailable("told so") if ill else None

    def forget(self, id: str) -> None:
        self.originals = {place: o for place, o in self.originals.items() if o.id != id}

    async def _feel(self) -> None:
        await asyncio.sleep(0)
        if self.is_stuck:
            await asyncio.Event().wait()
        if self.illness:
            raise self.illness


class MemoryPinboard(Pinboard):
    """Pins that are gone at the end."""

    def __init__(self) -> None:
        self.pins: dict[tuple[str, bytes], Pin] = {}

    async def pinned(self, scope: str, places: Sequence[bytes]) -> Mapping[bytes, Pin]:
        return {place: self.pins[scope, place] for place in places if (scope, place) in self.pins}

    async def pin(self, scope: str, new: Sequence[Pin], gone: Sequence[bytes] = ()) -> Mapping[bytes, Pin]:
        for place in gone:
            self.pins.pop((scope, place), None)
        for pin in new:
            self.pins.setdefault((scope, pin.place), pin)
        return await self.pinned(scope, [pin.place for pin in new])

"""Group commit: what waits while one transaction runs shares the next one, and its fsync."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from kimi_proxy.services.store.protocols import Original
from kimi_proxy.services.store.sqlite.database import Packed

T = TypeVar("T")

MAX_KEEPS = 256
PAGE = 4096


@dataclass(eq=False, slots=True)
class Keep:
    """An original on its way to the disk."""

    original: Original
    packed: Packed
    is_refused: bool = False  # its id already names something else

    @property
    def room(self) -> int:
        """The bytes it takes on disk, rounded up."""
        return len(self.packed.frame) + len(self.original.about) + PAGE


class _Batch:
    """Keeps that share a transaction; it takes more until its turn comes."""

    def __init__(self) -> None:
        self.keeps: list[Keep] = []
        self.room = 0
        self.has_begun = False
        self.done: asyncio.Task[int]

    def add(self, keep: Keep) -> None:
        self.keeps.append(keep)
        self.room += keep.room

    def has_room_for(self, keep: Keep, max_bytes: int) -> bool:
        return len(self.keeps) < MAX_KEEPS and self.room + keep.room <= max_bytes

    def withdraw(self, keep: Keep) -> None:
        if not self.has_begun:
            self.keeps.remove(keep)


class Writer:
    """Runs `commit` in one thread, a batch at a time; whoever brought a keep waits for its batch."""

    def __init__(self, commit: Callable[[Sequence[Keep]], int], max_bytes: int) -> None:
        self._commit = commit
        self._max_bytes = max_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-writer")
        self._turn = asyncio.Lock()
        self._filling: _Batch | None = None

    async def keep(self, keep: Keep) -> None:
        batch = self._with_room_for(keep)
        batch.add(keep)
        try:
            # Whoever stops waiting must not take the others' commit down with it.
            await asyncio.shield(batch.done)
        except asyncio.CancelledError:
            batch.withdraw(keep)
            raise

    async def flush(self) -> int:
        """A commit that keeps nothing new; how many originals went."""
        return await self._run(_Batch())

    async def run(self, work: Callable[[], T]) -> T:
        """Do other work in the same thread, when its turn comes."""
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Wait for what has begun, then end the thread."""
        async with self._turn:
            self._thread.shutdown(wait=False)

    def _with_room_for(self, keep: Keep) -> _Batch:
        batch = self._filling
        if batch is None or not batch.has_room_for(keep, self._max_bytes):
            self._filling = batch = _Batch()
            batch.done = asyncio.create_task(self._run(batch))
        return batch

    async def _run(self, batch: _Batch) -> int:
        async with self._turn:
            batch.has_begun = True
            if self._filling is batch:
                self._filling = None
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._commit, tuple(batch.keeps))

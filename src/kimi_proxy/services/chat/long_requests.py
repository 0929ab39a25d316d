"""Long requests take turns: what reads and shortens them shares one interpreter with everything else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from kimi_proxy.core.caller import Caller

LONG_BYTES = 2 * 1024**2
AT_ONCE = 2


@dataclass(slots=True)
class _WaitingPerson:
    """One person's long requests, which follow each other."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class LongRequests:
    """Lets two long requests be prepared at a time; of each person of a team one, so that nobody takes both turns."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._people: dict[str, _WaitingPerson] = {}

    @asynccontextmanager
    async def turn(self, who: Caller, size: int) -> AsyncIterator[None]:
        """Wait until a request of this size may be prepared; it is being prepared until the block ends."""
        if size <= LONG_BYTES:
            yield
            return
        async with AsyncExitStack() as held:
            if who.person_id:
                await held.enter_async_context(self._own_turn(who.person_id))
            await held.enter_async_context(self._all)
            yield

    @asynccontextmanager
    async def _own_turn(self, person: str) -> AsyncIterator[None]:
        turn = self._people.setdefault(person, _WaitingPerson())
        turn.waiting += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._people[person]

"""Tells a running server whose data was erased, by a command or on another server, so that it forgets them too."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.team.records import ErasedPerson, TeamTables

CHECK_S = 2.0
CHECKS = 5  # so many times a person is forgotten: requests that were under way end within two, and may note something


class Erasures:
    """The people whose data was erased, as far as this server knows."""

    def __init__(self, tables: TeamTables, check_s: float = CHECK_S) -> None:
        self._tables = tables
        self._check_s = check_s
        self._erased: set[str] = set()

    def covers(self, person_id: str) -> bool:
        """Return whether the data of the person of this id was erased."""
        return person_id in self._erased

    async def follow(self, forget: Callable[[Caller], None]) -> None:
        """Call `forget` with each scope of each person, also of those that were erased while this server was down.

        A scope that a team shares is forgotten whole: what is remembered of colleagues is read from the store again.
        """
        last = 0
        recent: deque[Sequence[ErasedPerson]] = deque(maxlen=CHECKS)
        while True:
            found: Sequence[ErasedPerson] = ()
            with suppress(StoreUnavailable):
                found = await self._tables.erased_since(last)
            recent.append(found)
            self._erased.update(person.id for person in found)
            for person in chain.from_iterable(recent):
                last = max(last, person.seq)
                for scope in person.scopes:
                    forget(Caller(scope, is_admin=False, person_id=person.id))
            await asyncio.sleep(self._check_s)

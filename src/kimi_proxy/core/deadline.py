"""A moment that keeps being put off, and what happens when it comes after all."""

import asyncio
from collections.abc import Callable

GLANCE_S = 1.0


class Watchdog:
    """Calls `bark` when `by` has passed. To put it off costs nothing: nobody looks more than once a second."""

    def __init__(self, by: float, bark: Callable[[], None], glance: Callable[[], None] = lambda: None) -> None:
        """`glance` is called whenever somebody looks."""
        self.by = by
        self._bark = bark
        self._glance = glance
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_at(min(by, self._loop.time() + GLANCE_S), self._look)

    def stop(self) -> None:
        self._next.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        if now >= self.by:
            self._bark()
            return
        self._next = self._loop.call_at(min(self.by, now + GLANCE_S), self._look)
        self._glance()

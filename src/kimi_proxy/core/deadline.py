"""A deadline that can be moved at no cost."""

import asyncio
from collections.abc import Callable

CHECK_S = 1.0


class Deadline:
    """Calls `on_expired` once `at` has passed, a time of the running loop.

    Setting `at` is a plain assignment: a timer looks at it at most once a second. `on_check` is called each time.
    """

    def __init__(self, at: float, on_expired: Callable[[], None], on_check: Callable[[], None] = lambda: None) -> None:
        self.at = at
        self._on_expired = on_expired
        self._on_check = on_check
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_at(min(at, self._loop.time() + CHECK_S), self._check)

    def stop(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        now = self._loop.time()
        if now >= self.at:
            self._on_expired()
            return
        self._timer = self._loop.call_at(min(self.at, now + CHECK_S), self._check)
        self._on_check()

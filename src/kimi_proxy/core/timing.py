"""Durations of the parts of a request, collected only on demand, and a deadline that can be moved at no cost."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

MAX_PARTS = 200  # of one request; a conversation of thousands of results has more than anyone reads


@dataclass(frozen=True, slots=True)
class TimedPart:
    """A timed step, with its start and end in nanoseconds of wall time."""

    name: str
    began_ns: int
    ended_ns: int


@dataclass(slots=True, eq=False)
class Timings:
    """The parts of one request, in the order in which they ended."""

    began_ns: int
    parts: list[TimedPart] = field(default_factory=list)


_timings: ContextVar[Timings | None] = ContextVar("timings", default=None)


def begin_timings() -> Timings:
    """Collect the parts of what runs in this context from now on."""
    found = Timings(time.time_ns())
    _timings.set(found)
    return found


@contextmanager
def measure_time(name: str) -> Iterator[None]:
    """Note how long the block takes, if this context collects that."""
    timings = _timings.get()
    if timings is None or len(timings.parts) >= MAX_PARTS:
        yield
        return
    began = time.time_ns()
    try:
        yield
    finally:
        timings.parts.append(TimedPart(name, began, time.time_ns()))


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

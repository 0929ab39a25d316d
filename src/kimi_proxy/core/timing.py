"""Durations of the parts of a request: store, scoring, recall, upstream. Collected only on demand."""

import time
from collections.abc import Iterator
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

"""Limits on how long a request waits: for CPU time on a busy machine, and for a store that may hang."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.metrics import Metrics

BUSY_FACTOR = 3  # how much longer than its CPU time a request waits: agents run builds, so cores are shared
HURRY_S = 0.5  # extra time in which late results are cut without scores; any that remain after it are sent uncut
# A shortened result is worth waiting for a slow disk, even on a busy machine, but not for a disk that has hung.
COMMIT_GRACE_S, HUNG_GRACE_S = 1.5, 0.25

Value = TypeVar("Value")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WaitLimit:
    """Until when a request waits for work that may take `cpu_s` of CPU time."""

    cpu_s: float
    ends_at: float
    now: Callable[[], float]

    @classmethod
    def begin(cls, cpu_s: float, now: Callable[[], float]) -> "WaitLimit":
        return cls(cpu_s, now() + BUSY_FACTOR * cpu_s, now)

    @property
    def left_s(self) -> float:
        return max(0.0, self.ends_at - self.now())

    @property
    def is_past_hurry(self) -> bool:
        """Return whether even the extra time for cuts without scores has run out."""
        return self.now() > self.ends_at + HURRY_S


class StoreGrace:
    """Waits for the store, less long after it has hung once, and continues without it."""

    def __init__(self, cpu_s: float, metrics: Metrics) -> None:
        self._usual_s = self._grace_s = COMMIT_GRACE_S + cpu_s
        self._metrics = metrics

    @asynccontextmanager
    async def wait(self, more_s: float = 0.0) -> AsyncIterator[None]:
        """Raise TimeoutError if the store takes too long; after that it gets less time, until it answers again."""
        try:
            async with asyncio.timeout(self._grace_s + more_s):
                yield
        except TimeoutError:
            self._grace_s = HUNG_GRACE_S
            raise
        self._grace_s = self._usual_s

    async def read(self, work: Awaitable[Value], fallback: Value) -> Value:
        """Return the store's result, or `fallback` if it does not respond in time."""
        try:
            async with self.wait():
                return await work
        except (StoreUnavailable, TimeoutError) as e:
            self.fell_back("remember", "store_unavailable", str(e))
            return fallback

    def fell_back(self, step: str, code: str, what: str) -> None:
        """Count and log that a step of the sanitizer did without something."""
        self._metrics.chat_faults.labels(step, code).inc()
        log.warning("sanitizer fell back", extra={"step": step, "code": code, "what": what[:300]})

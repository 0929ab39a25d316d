"""How often each provider may be asked: `requests_per_minute` of its settings, on all servers together."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kimi_proxy.core.config.providers import Provider
from kimi_proxy.core.errors import RateLimited, StoreUnavailable
from kimi_proxy.services.store.protocols import Replicas

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Rate:
    """A leaky bucket: `per_minute` requests at once, then as many as drain in a minute; 0 sets no limit."""

    per_minute: int
    level: float = 0.0
    measured_at: float = 0.0

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next request may leave; 0 if one may now."""
        if self.per_minute == 0:
            return 0.0
        return max(0.0, (self._level(now) + 1 - self.per_minute) * MINUTE_S / self.per_minute)

    def with_request(self, now: float) -> "Rate":
        return self if self.per_minute == 0 else Rate(self.per_minute, self._level(now) + 1, now)

    def _level(self, now: float) -> float:
        return max(0.0, self.level - max(0.0, now - self.measured_at) * self.per_minute / MINUTE_S)


class RateLimiter:
    def __init__(
        self,
        providers: Mapping[str, Provider],
        now: Callable[[], float] = time.monotonic,
        replicas: Replicas | None = None,  # other servers ask the same providers
    ) -> None:
        self._rates = {name: Rate(provider.requests_per_minute) for name, provider in providers.items()}
        self._now = now
        self._replicas = replicas

    async def take(self, provider: str) -> None:
        """Count one request to `provider`; raise RateLimited if it is too early for one."""
        rate, now = self._rates[provider], self._now()
        wait_s = rate.wait_s(now)
        if wait_s == 0 and rate.per_minute and self._replicas is not None:
            wait_s = await self._taken(self._replicas, provider, rate.per_minute)
        if wait_s > 0:
            raise RateLimited(provider, wait_s)
        # While we waited for the database another request may have been counted.
        self._rates[provider] = self._rates[provider].with_request(now)

    async def _taken(self, replicas: Replicas, provider: str, per_minute: int) -> float:
        """Count it for all servers; return the seconds to wait. While the store is away each counts for itself."""
        try:
            return await replicas.take_turn(provider, per_minute)
        except StoreUnavailable:
            return 0.0

    def limits(self) -> Mapping[str, tuple[int, float]]:
        """Return the requests per minute of each provider, and the seconds until the next may leave."""
        now = self._now()
        return {name: (rate.per_minute, rate.wait_s(now)) for name, rate in self._rates.items()}

"""Whose turn it is: providers are asked no more often than the settings allow."""

import time
from collections.abc import Callable, Mapping

from kimi_proxy.core.errors import RateLimited
from kimi_proxy.core.providers import Provider
from kimi_proxy.features.rate import Rate


class Turns:
    def __init__(self, providers: Mapping[str, Provider], now: Callable[[], float] = time.monotonic) -> None:
        self._rates = {name: Rate(provider.requests_per_minute) for name, provider in providers.items()}
        self._now = now

    def take(self, provider: str) -> None:
        """RateLimited if it is too early to ask again."""
        rate, now = self._rates[provider], self._now()
        wait_s = rate.wait_s(now)
        if wait_s > 0:
            raise RateLimited(provider, wait_s)
        self._rates[provider] = rate.taken(now)

    def limits(self) -> Mapping[str, tuple[Rate, float]]:
        """How often each provider may be asked, and the seconds until it may be again."""
        now = self._now()
        return {name: (rate, rate.wait_s(now)) for name, rate in self._rates.items()}

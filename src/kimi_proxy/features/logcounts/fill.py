"""How much of a window is taken, by whoever knows best."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kimi_proxy.features import metering
from kimi_proxy.features.logcounts.count import LogCount
from kimi_proxy.features.metering import Metric

# What a log says of a session, as long as that is worth more than our own newest count.
Logged: TypeAlias = Callable[[Metric | None, str], LogCount | None]


@dataclass(frozen=True, slots=True)
class Fill:
    tokens: int
    max_context: int | None
    counted_by: str  # estimate, provider or log

    @property
    def percent(self) -> float | None:
        return metering.percent(self.tokens, self.max_context)


def fill(newest: Metric | None, logged: LogCount | None) -> Fill:
    window = newest.max_context if newest else None
    if logged is not None:
        return Fill(logged.tokens, logged.max_context or window, "log")
    return Fill(newest.tokens, window, newest.counted_by) if newest else Fill(0, None, "estimate")


def unlogged(newest: Metric | None, session: str) -> None:
    """Where no log is watched."""

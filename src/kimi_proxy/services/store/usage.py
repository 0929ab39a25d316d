"""Usage by day, person, team and model, in the store; and requests that are not in it yet."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Protocol

from kimi_proxy.features.metering import Metric


@dataclass(frozen=True, slots=True, order=True)
class UsageKey:
    """Requests are counted by day (2026-11-16, in UTC), person, team and model.

    A person is written by id, and read by name: that of someone who is no longer in the team is empty.
    """

    day: str
    person: str
    team: str
    model: str


@dataclass(frozen=True, slots=True)
class UsageSum:
    """The total usage of a number of requests, as their providers counted it; money as far as prices are known."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    tokens_saved: int = 0
    net_saved_tokens: int = 0
    cost_usd: float = 0.0
    net_saved_usd: float = 0.0

    def __add__(self, other: "UsageSum") -> "UsageSum":
        return UsageSum(*(getattr(self, name) + getattr(other, name) for name in SUMS))


SUMS = tuple(field.name for field in fields(UsageSum))


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request in progress, with its estimated cost. If it has expired, its server has died."""

    id: str
    use: UsageKey
    usd: float
    input_tokens: int
    expires: float


class OpenRequests(Protocol):
    """Requests that have left and are not in the account yet. The requests that `SessionStore.write` adds are closed.

    Every method raises StoreUnavailable if the store cannot answer in time.
    """

    async def hold_open(self, new: Sequence[OpenRequest], held: Collection[str], expires: float) -> None:
        """Open the new ones, and let those that are `held` expire later."""

    async def settle(self, id: str, usd: float) -> None:
        """Change the cost of an open request."""

    async def close_requests(self, done: Sequence[tuple[str, UsageKey, UsageSum]]) -> None:
        """Close requests, and add their usage to the counts of their days."""

    async def close_expired(self, now: float) -> int:
        """Close requests of dead servers at their estimated cost; return their number."""


class UsageTables(OpenRequests, Protocol):
    """Every method raises StoreUnavailable if the store cannot answer in time."""

    async def usage(self, since: str, people: Collection[str] | None = None) -> Sequence[tuple[UsageKey, UsageSum]]:
        """Return usage since a day, of people by their ids, or of all (None)."""


def day_of(at: float) -> str:
    """Return the day of a moment, in UTC."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def usage_key(at: float, person: str, team: str, model: str) -> UsageKey:
    """Return the key for counting a request; a model's name comes from the client and may not be storable."""
    return UsageKey(day_of(at), person, team, model.replace("\0", "\ufffd").encode("utf-8", "replace").decode())


def usage_of(metrics: Sequence[Metric]) -> list[tuple[UsageKey, UsageSum]]:
    """Return what requests add to the counts, in the order in which every server writes them."""
    found: dict[UsageKey, UsageSum] = {}
    for metric in metrics:
        account = metric.account
        key = usage_key(metric.at, metric.person, metric.team, metric.model)
        sent = 1 if metric.status == 200 else 0  # the provider refused the others
        found[key] = found.get(key, UsageSum()) + UsageSum(
            requests=sent,
            input_tokens=metric.input_tokens or 0,
            cached_tokens=metric.cached_tokens or 0,
            output_tokens=metric.output_tokens or 0,
            tokens_saved=metric.tokens_saved,
            net_saved_tokens=account.net_saved_tokens if account else 0,
            cost_usd=metric.cost_usd or 0.0,
            net_saved_usd=(account.net_saved_usd or 0.0) if account else 0.0,
        )
    return sorted(found.items(), key=lambda pair: pair[0])

"""Budgets: what a person, a team and a model may use in a day or a month, counted in the store for every server."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config.team import EACH, BudgetSettings
from kimi_proxy.core.errors import BudgetExceeded, StoreUnavailable
from kimi_proxy.proxy.headers import Header
from kimi_proxy.services.events import Publish, no_op
from kimi_proxy.services.store.team import Spent, TeamTables, UsageRange, usage_key

HEADER = b"x-kimi-proxy-budget"
EVENT = "budget_alert"
MAX_ALERTS = 10_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget as it applies to one request: whose requests it counts, and until when."""

    name: str
    settings: BudgetSettings
    counts: UsageRange
    resets_at: datetime

    def share(self, spent: Spent) -> float:
        """Return how much of it is used, of requests or of money, whichever is more."""
        limits = ((spent.requests, self.settings.requests), (spent.usd, self.settings.usd))
        return max(used / limit for used, limit in limits if limit)

    def is_over(self, spent: Spent) -> bool:
        return self.settings.hard and self.share(spent) >= 1

    def refusal(self, spent: Spent) -> str:
        """Return which limit is reached; one that is not would send its reader after the wrong thing."""
        requests, usd = self.settings.requests, self.settings.usd
        limits = [f"{requests} requests"] if requests and spent.requests >= requests else []
        limits += [f"{usd:g} USD"] if usd and spent.usd >= usd else []
        return f"the {' and '.join(limits)} of this {self.settings.per} are used"


def budgets_for(settings: Mapping[str, BudgetSettings], who: Caller, model: str, now: datetime) -> Sequence[Budget]:
    """Return the budgets that count a request of `who` to `model`."""
    return [
        Budget(name, one, UsageRange(_first_day(one, now), *chosen), _resets_at(one, now))
        for name, one in settings.items()
        if (chosen := _counted_by(one, who, model)) is not None
    ]


def _counted_by(budget: BudgetSettings, who: Caller, model: str) -> tuple[str | None, str | None, str | None] | None:
    """Return whose requests are counted; None if the budget is not for this one."""
    found: list[str | None] = []
    for wanted, actual in ((budget.person, who.person), (budget.team, who.team), (budget.model, model)):
        if (wanted not in ("", EACH, actual)) or (wanted and not actual):
            return None
        found.append(actual if wanted else None)
    return found[0], found[1], found[2]


def _first_day(budget: BudgetSettings, now: datetime) -> str:
    return (now.date() if budget.per == "day" else now.date().replace(day=1)).isoformat()


def _resets_at(budget: BudgetSettings, now: datetime) -> datetime:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    later = today + timedelta(days=1) if budget.per == "day" else today.replace(day=1) + timedelta(days=32)
    return later if budget.per == "day" else later.replace(day=1)


class Budgets:
    def __init__(
        self,
        settings: Mapping[str, BudgetSettings],
        tables: TeamTables,
        publish: Publish = no_op,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._publish = publish
        self._now = now
        self._alerted: LruCache[tuple[str, UsageRange], bool] = LruCache(MAX_ALERTS)

    async def admit(self, who: Caller, model: str) -> tuple[Header, ...]:
        """Count a request of a person's; return what its answer says of budgets that are nearly used.

        Raise BudgetExceeded if one is. While the store is away, requests go on and are not counted here: what they
        cost is, as soon as it is back.
        """
        at = self._now()
        now = datetime.fromtimestamp(at, UTC)
        budgets = budgets_for(self._settings, who, model, now)
        if not budgets:
            return ()

        def has_room(spent: Sequence[Spent]) -> bool:
            return not any(budget.is_over(one) for budget, one in zip(budgets, spent, strict=True))

        use = usage_key(at, who.person, who.team, model)
        try:
            spent = await self._tables.admit(use, [budget.counts for budget in budgets], has_room)
        except StoreUnavailable as e:
            log.warning("a request was not counted for its budget", extra={"what": str(e)[:300]})
            return ()
        for budget, one in zip(budgets, spent, strict=True):
            self._alert(who, budget, one)
            if budget.is_over(one):
                raise BudgetExceeded(budget.name, budget.refusal(one), (budget.resets_at - now).total_seconds())
        near = [(budget, one) for budget, one in zip(budgets, spent, strict=True) if _is_near(budget, one)]
        return tuple((HEADER, f"{budget.name}; used={_percent(budget, one)}%".encode()) for budget, one in near)

    def _alert(self, who: Caller, budget: Budget, spent: Spent) -> None:
        """Publish once in a period, by each server, that a budget is nearly used, and once that it is."""
        for is_reached, name in ((budget.share(spent) >= 1, "used"), (_is_near(budget, spent), "near")):
            place = f"{budget.name} {name}", budget.counts
            if is_reached and place not in self._alerted:
                self._alerted.put(place, True)
                self._publish(
                    who,
                    EVENT,
                    {
                        "budget": budget.name,
                        "level": name,
                        "percent": _percent(budget, spent),
                        "per": budget.settings.per,
                        "hard": budget.settings.hard,
                        "requests": spent.requests,
                        "usd": round(spent.usd, 4),
                    },
                )
                return


def _is_near(budget: Budget, spent: Spent) -> bool:
    """Return whether a budget is nearly used with the request that is being admitted, which is not in `spent` yet."""
    return budget.share(replace(spent, requests=spent.requests + 1)) >= budget.settings.warn_at


def _percent(budget: Budget, spent: Spent) -> int:
    """Return the share that is used with the request that is being admitted; a refused one uses nothing."""
    counted = spent if budget.is_over(spent) else replace(spent, requests=spent.requests + 1)
    return math.floor(budget.share(counted) * 100)

"""Budgets of people, teams and models per day or month, counted in the store across servers."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.core.config.team import EACH, BudgetSettings, TeamSettings
from kimi_proxy.core.errors import AccessDenied, BudgetExceeded, BudgetUnknown, StoreUnavailable
from kimi_proxy.features.accounting import prices_of
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.metering import charged_usd
from kimi_proxy.features.models import Models, Target
from kimi_proxy.services.chat.admission import ADMITTED, BudgetAdmission, BudgetAlert, BudgetLevel, Charge
from kimi_proxy.services.chat.observers import MAX_MODEL_CHARS
from kimi_proxy.services.chat.relay import Exchange
from kimi_proxy.services.events import Publish, no_op
from kimi_proxy.services.store.usage import OpenRequest, UsageKey, usage_key
from kimi_proxy.team.records import Spent, TeamTables, UsageRange

HEADER = b"x-kimi-proxy-budget"
EVENT = "budget_alert"
MAX_ALERTS = 10_000
SETTLE_S = 2.0
RESERVE_S = 600.0  # after this a request missing from the journal is charged at its reservation
BYTES_PER_TOKEN = 4
USUAL_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS = 4096, 8192  # reserved for an answer: few are longer, whatever the limit

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
        requests = self.settings.requests
        usd = self.settings.usd
        limits = [f"{requests} requests"] if requests and spent.requests >= requests else []
        limits += [f"{usd:g} USD"] if usd and spent.usd >= usd else []
        return f"the {' and '.join(limits)} of this {self.settings.per} are used"


def budgets_for(
    settings: Mapping[str, BudgetSettings], who: Caller, target: Target, models: Models, now: datetime
) -> Sequence[Budget]:
    """Return the budgets that count a request of `who` to a model."""
    return [
        Budget(
            name, one, UsageRange(_first_day(one, now), *whose, _models_of(one, target, models)), _resets_at(one, now)
        )
        for name, one in settings.items()
        if _is_of_model(one, target, models) and (whose := _counted_by(one, who)) is not None
    ]


def _counted_by(budget: BudgetSettings, who: Caller) -> tuple[str | None, str | None] | None:
    """Return the id of the person and the team whose requests are counted; None if the budget is not for this one."""
    for wanted, actual in ((budget.person, who.person), (budget.team, who.team)):
        if (wanted not in ("", EACH, actual)) or (wanted and not actual):
            return None
    return who.person_id if budget.person else None, who.team if budget.team else None


def _is_of_model(budget: BudgetSettings, target: Target, models: Models) -> bool:
    """Return whether a budget counts a model, however its name is spelled here and there."""
    if budget.model in ("", EACH):
        return not budget.model or bool(target.model)
    return bool(target.model) and models.is_same(budget.model, target)


def _models_of(budget: BudgetSettings, target: Target, models: Models) -> tuple[str, ...] | None:
    return models.counted_names(target) if budget.model else None


def _first_day(budget: BudgetSettings, now: datetime) -> str:
    return (now.date() if budget.per == "day" else now.date().replace(day=1)).isoformat()


def _resets_at(budget: BudgetSettings, now: datetime) -> datetime:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    later = today + timedelta(days=1) if budget.per == "day" else today.replace(day=1) + timedelta(days=32)
    return later if budget.per == "day" else later.replace(day=1)


class Budgets:
    """Counts requests before they are sent. Under a budget in money, the estimated cost is reserved until the end."""

    def __init__(
        self,
        settings: TeamSettings,
        tables: TeamTables,
        models: Models,
        publish: Publish = no_op,
        now: Callable[[], float] = time.time,
        count: Callable[[str, str], None] = lambda budget, outcome: None,
    ) -> None:
        self._count = count
        self._settings = settings.budgets
        self._refuses_blindly = settings.budgets_without_store == "refuse"
        self._tables = tables
        self._models = models
        self._settling: set[asyncio.Task[None]] = set()
        self._publish = publish
        self._now = now
        self._alerted: LruCache[tuple[str, UsageRange], bool] = LruCache(MAX_ALERTS)

    async def admit(self, draft: Draft, charge: Charge) -> BudgetAdmission:
        """Count a request of a person; return the response headers about budgets that are nearly used up.

        Raise BudgetExceeded if one is used up, and AccessDenied if a budget in money could not count the request's
        cost. While the store is unavailable, requests are sent and not counted here, unless the settings refuse them;
        their cost is counted once it is back.
        """
        at = self._now()
        who = draft.caller
        target = draft.target
        now = datetime.fromtimestamp(at, UTC)
        if charge == "unpriced":
            self._check_price(who)
        budgets = budgets_for(self._settings, who, target, self._models, now)
        if not budgets:
            return ADMITTED
        is_money = charge == "counted" and any(budget.settings.usd for budget in budgets)
        if is_money and self._settling:  # so that the next request sees the cost of the last one
            await asyncio.wait(self._settling, timeout=SETTLE_S)

        def has_room(spent: Sequence[Spent]) -> bool:
            return not any(budget.is_over(one) for budget, one in zip(budgets, spent, strict=True))

        use = usage_key(at, who.person_id, who.team, self._models.counted_name(target)[:MAX_MODEL_CHARS])
        if is_money:
            self._refuse_unpriced(budgets, draft)
        reserve = self._reservation(draft, use, at) if is_money else None
        try:
            spent = await self._tables.admit(use, [budget.counts for budget in budgets], has_room, reserve)
        except StoreUnavailable as e:
            log.warning("a request was not counted for its budget", extra={"what": str(e)[:300]})
            for budget in budgets:
                self._count(budget.name, "not_counted")
            if self._refuses_blindly and any(budget.settings.hard for budget in budgets):
                raise BudgetUnknown(str(e)) from e
            return ADMITTED
        for budget, one in zip(budgets, spent, strict=True):
            self._alert(who, budget, one)
            if budget.is_over(one):
                self._count(budget.name, "refused")
                raise BudgetExceeded(budget.name, budget.refusal(one), (budget.resets_at - now).total_seconds())
        for budget, one in zip(budgets, spent, strict=True):
            self._count(budget.name, "near" if _is_near(budget, one) else "admitted")
        near = [(budget, one) for budget, one in zip(budgets, spent, strict=True) if _is_near(budget, one)]
        headers = tuple((HEADER, f"{budget.name}; used={_percent(budget, one)}%".encode()) for budget, one in near)
        return BudgetAdmission(headers, reserve.usd, self._settle) if reserve else BudgetAdmission(headers)

    async def close(self) -> None:
        """Wait until the costs of ended requests are written."""
        if self._settling:
            await asyncio.wait(self._settling, timeout=SETTLE_S)

    def _refuse_unpriced(self, budgets: Sequence[Budget], draft: Draft) -> None:
        """Raise AccessDenied if a hard budget in money would count less than a request costs."""
        name = next((budget.name for budget in budgets if budget.settings.hard and budget.settings.usd), "")
        if not name:
            return
        target = draft.target
        if not self._models.is_priced(target):
            raise AccessDenied(
                f"the budget {name!r} is in money, and no price of {target.name[:80]!r} is known: ask an "
                "admin to set input_usd_per_million and output_usd_per_million in [models] (0 if it is free)"
            )
        if prices_of(self._models.model(target)) is None:  # it is free
            return
        if extra := draft.request.format.surcharge(draft.request.json):
            raise AccessDenied(
                f"the budget {name!r} is in money, and the cost of {extra[:80]} is unknown when a request is sent: "
                "send it without, or ask an admin"
            )

    def _check_price(self, who: Caller) -> None:
        """Raise AccessDenied if a hard budget in money counts this person's requests."""
        for name, budget in self._settings.items():
            if budget.hard and budget.usd and _counted_by(budget, who) is not None:
                raise AccessDenied(
                    f"the budget {name!r} is in money, and the cost of batches, images, audio and other jobs is "
                    "unknown when they are sent: send the requests one by one, or ask an admin"
                )

    def _reservation(self, draft: Draft, use: UsageKey, at: float) -> OpenRequest | None:
        """Return about the most that a request costs; None if no price of its model is known."""
        model = self._models.model(draft.target)
        request = draft.request
        prices = prices_of(model)
        if model is None or prices is None:
            return None
        tokens = min(len(request.body) // BYTES_PER_TOKEN, model.max_context_size)
        limit = request.format.output_limit(request.json) or USUAL_OUTPUT_TOKENS
        usd = prices.cost_usd(Usage(tokens, min(limit, MAX_OUTPUT_TOKENS), 0))
        return OpenRequest(draft.id, use, usd, tokens, at + RESERVE_S)

    def _settle(self, exchange: Exchange) -> None:
        """Replace the reserved amount of a request with its actual cost, in the background."""
        prices = prices_of(self._models.model(exchange.draft.target))
        ending = exchange.ending
        usd = charged_usd(prices, ending.counted_usage, ending) if prices and ending.is_charged else 0.0
        task = asyncio.create_task(self._write_cost(exchange.draft.id, usd or 0.0))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _write_cost(self, id: str, usd: float) -> None:
        with suppress(StoreUnavailable):  # the reservation counts until the journal writes the request
            await self._tables.settle(id, usd)

    def _alert(self, who: Caller, budget: Budget, spent: Spent) -> None:
        """Publish once in a period, by each server, that a budget is nearly used, and once that it is."""
        levels: tuple[tuple[bool, BudgetLevel], ...] = (
            (budget.share(spent) >= 1, "used"),
            (_is_near(budget, spent), "near"),
        )
        for is_reached, name in levels:
            place = f"{budget.name} {name}", budget.counts
            if is_reached and place not in self._alerted:
                self._alerted.put(place, True)
                fields: BudgetAlert = {
                    "budget": budget.name,
                    "level": name,
                    "percent": _percent(budget, spent),
                    "per": budget.settings.per,
                    "hard": budget.settings.hard,
                    "requests": spent.requests,
                    "usd": round(spent.usd, 4),
                }
                self._publish(who, EVENT, fields)
                return


def _is_near(budget: Budget, spent: Spent) -> bool:
    """Return whether a budget is nearly used with the request that is being admitted, which is not in `spent` yet."""
    return budget.share(replace(spent, requests=spent.requests + 1)) >= budget.settings.warn_at


def _percent(budget: Budget, spent: Spent) -> int:
    """Return the share that is used with the request that is being admitted; a refused one uses nothing."""
    counted = spent if budget.is_over(spent) else replace(spent, requests=spent.requests + 1)
    return math.floor(budget.share(counted) * 100)

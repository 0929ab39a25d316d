"""How a request is charged for, and the gate that admits it against a budget."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict

from kimi_proxy.core.chat.wires import COUNT_PATHS
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.proxy.headers import Header, UpstreamRequest
from kimi_proxy.services.chat.relay import Exchange

# A provider reports the usage of a request in its answer, charges nothing, or charges without reporting it.
Charge = Literal["counted", "free", "unpriced"]


def _settle_nothing(exchange: Exchange) -> None:
    """Do nothing: nothing was reserved."""


@dataclass(frozen=True, slots=True)
class BudgetAdmission:
    """An admitted request: the budget headers of its response, and the function to call at its end."""

    headers: tuple[Header, ...] = ()
    reserved_usd: float = 0.0
    settle: Callable[[Exchange], None] = _settle_nothing  # returns at once


ADMITTED = BudgetAdmission()


BudgetLevel = Literal["near", "used"]


class BudgetAlert(TypedDict):
    """The fields of a `budget_alert`."""

    budget: str
    level: BudgetLevel
    percent: int
    per: Literal["day", "month"]
    hard: bool
    requests: int
    usd: float


class ObjectGate(Protocol):
    async def check(self, provider: str, question: UpstreamRequest) -> None:
        """Raise AccessDenied if a request may name what others stored with the same key."""


class BudgetGate(Protocol):
    async def admit(self, draft: Draft, charge: Charge) -> BudgetAdmission:
        """Count a request before it is sent. Raise BudgetExceeded if a budget is used up."""


COUNTED = ("/v1/completions", "/v1/embeddings", "/v1/responses/compact")
FREE = re.compile(
    r"/v1/(?:files|uploads|models)(?:/.*)?|/v1/moderations|/v1/responses/(?:input_tokens|[^/]+/cancel)"
    r"|/v1/(?:messages/)?batches/[^/]+/cancel"
    r"|/v1internal:(?:loadCodeAssist|onboardUser|recordCodeAssistMetrics|retrieveUserQuota|fetchAdminControls"
    r"|listExperiments|[gs]etCodeAssistGlobalUserSetting)"
)


def charge_of(question: UpstreamRequest) -> Charge:
    """Return how a provider charges for a request, by its path; chat requests have no entry of their own.

    A path that is not known to be free has no price that could be known when it is sent.
    """
    if question.path in ("", *COUNTED):
        return "counted"
    is_free = question.method != "POST" or question.path in COUNT_PATHS or FREE.fullmatch(question.path)
    return "free" if is_free else "unpriced"

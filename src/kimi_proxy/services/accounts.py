"""Settles what each request saved: opened when it leaves, closed when its answer is over."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kimi_proxy.core.providers import Model
from kimi_proxy.features.accounting.account import Account, Bill, Sent, account, unanswered
from kimi_proxy.features.accounting.caching import Caching
from kimi_proxy.features.accounting.prefixes import Prefixes
from kimi_proxy.features.metering import Ending, Metric
from kimi_proxy.features.pipeline import Draft
from kimi_proxy.features.pricing import prices_of
from kimi_proxy.services.metrics import Metrics

PAID = 200  # nobody pays for an answer of another status


@dataclass(frozen=True, slots=True)
class Opened:
    model: Model | None  # that answers
    asked_for: Model | None  # by the client; another one if the request was routed
    is_rewritten: bool  # its beginning is not the one that the session had


class Accounts:
    def __init__(self, models: Mapping[str, Model], metrics: Metrics) -> None:
        self._models = models
        self._metrics = metrics
        self._prefixes = Prefixes()
        self._caching = Caching()

    def open(self, came: Draft, leaves: Draft) -> Opened:
        model, asked_for = (self._models.get(one.target.key or "") for one in (leaves, came))
        routed = "" if leaves.target == came.target else leaves.target.model
        prefix = f"{leaves.cut.id if leaves.cut else ''} {routed}"
        return Opened(model, asked_for, self._prefixes.changes(leaves.session.id, prefix))

    def settled(self, metric: Metric, opened: Opened, sent: Sent, ending: Ending) -> Metric:
        """With what the request saved, after all that this cost."""
        if ending.status != PAID and not sent.summaries:
            return metric
        told = self._account(metric, opened, sent, ending)
        self._metrics.net_saved_tokens.labels(metric.provider).inc(told.net_saved_tokens)
        return replace(metric, account=told)

    def _account(self, metric: Metric, opened: Opened, sent: Sent, ending: Ending) -> Account:
        prices = prices_of(opened.asked_for), prices_of(opened.model)
        if ending.status != PAID:
            return unanswered(sent, prices[1])
        known = f"{metric.provider} {metric.model}"
        told = account(sent, Bill(ending.counted, ending.recalled, *prices, self._caching[known]))
        self._caching.observe(known, sent, ending.counted)
        return told

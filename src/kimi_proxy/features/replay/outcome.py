"""What a recorded conversation comes to under a policy."""

from dataclasses import dataclass, replace

from kimi_proxy.core.chat.usage import Usage
from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.pricing import Prices


@dataclass(frozen=True, slots=True)
class Outcome:
    policy: str
    requests: int = 0  # that the client sent
    input_tokens: int = 0  # of these all: cached, written and plain ones
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    largest_tokens: int = 0  # of one request
    too_long: int = 0  # requests that do not fit into the window: a provider would have refused them
    recoveries: int = 0  # passages that the model had to read back
    extra_turns: int = 0  # times that the provider was asked beside the client's requests
    compressions: int = 0
    cost_usd: float | None = None

    @property
    def plain_tokens(self) -> int:
        """Read at the full price."""
        return self.input_tokens - self.cached_tokens - self.cache_write_tokens

    def with_request(self, usage: Usage, prices: Prices | None, window: int | None = None) -> "Outcome":
        grown = replace(
            self,
            requests=self.requests + 1,
            largest_tokens=max(self.largest_tokens, usage.input_tokens),
            too_long=self.too_long + (window is not None and usage.input_tokens > window),
        )
        return grown._with(usage, prices)

    def with_extra_turn(self, usage: Usage, prices: Prices | None) -> "Outcome":
        return replace(self, extra_turns=self.extra_turns + 1)._with(usage, prices)

    def _with(self, usage: Usage, prices: Prices | None) -> "Outcome":
        return replace(
            self,
            input_tokens=self.input_tokens + usage.input_tokens,
            cached_tokens=self.cached_tokens + usage.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + usage.cache_write_tokens,
            output_tokens=self.output_tokens + usage.output_tokens,
            cost_usd=None if prices is None else round((self.cost_usd or 0.0) + prices.cost_usd(usage), 9),
        )


def told(outcome: Outcome, off: Outcome) -> JsonObject:
    """An outcome beside the one of doing nothing; a saving below zero is a loss."""
    is_priced = outcome.cost_usd is not None and off.cost_usd is not None
    return {
        "policy": outcome.policy,
        "requests": outcome.requests,
        "input_tokens": outcome.input_tokens,
        "plain_tokens": outcome.plain_tokens,
        "cached_tokens": outcome.cached_tokens,
        "cache_write_tokens": outcome.cache_write_tokens,
        "output_tokens": outcome.output_tokens,
        "largest_tokens": outcome.largest_tokens,
        "too_long": outcome.too_long,
        "recoveries": outcome.recoveries,
        "extra_turns": outcome.extra_turns,
        "compressions": outcome.compressions,
        "cost_usd": outcome.cost_usd,
        "tokens_saved_percent": saved_percent(outcome.input_tokens, off.input_tokens),
        "cost_saved_percent": saved_percent(outcome.cost_usd or 0, off.cost_usd or 0) if is_priced else None,
    }


def saved_percent(now: float, before: float) -> float | None:
    return round(100 * (before - now) / before, 1) if before else None


_COUNTS = ("input", "plain", "from cache", "to cache", "output", "largest", "too long", "recoveries", "extra turns")
_HEAD = ("", *_COUNTS, "USD", "saved")


def table(outcomes: list[Outcome]) -> list[str]:
    """For people; the first outcome is the one of doing nothing."""
    off = outcomes[0]
    rows = [_HEAD, *(_cells(outcome, off) for outcome in outcomes)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    return [f"{row[0]:<{widths[0]}}  {'  '.join(map(str.rjust, row[1:], widths[1:]))}".rstrip() for row in rows]


def _cells(outcome: Outcome, off: Outcome) -> tuple[str, ...]:
    counts = (
        *(outcome.input_tokens, outcome.plain_tokens, outcome.cached_tokens, outcome.cache_write_tokens),
        *(outcome.output_tokens, outcome.largest_tokens, outcome.too_long, outcome.recoveries, outcome.extra_turns),
    )
    cost, known = outcome.cost_usd, off.cost_usd
    saved = saved_percent(outcome.input_tokens if cost is None else cost, off.input_tokens if known is None else known)
    price = "–" if cost is None else f"{cost:.4f}"
    return outcome.policy, *(f"{count:,}" for count in counts), price, "–" if saved is None else f"{saved:.1f} %"

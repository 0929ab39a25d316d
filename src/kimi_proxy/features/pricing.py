"""What tokens cost, by the price table of the settings."""

from dataclasses import dataclass

from kimi_proxy.core.chat.usage import Usage
from kimi_proxy.core.providers import Model

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """USD for a million tokens."""

    input: float
    cached: float  # read from the provider's cache
    cache_write: float  # put there
    output: float

    def cost_usd(self, usage: Usage) -> float:
        """Whatever a provider counts, no token is paid for twice."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        written = min(usage.cache_write_tokens, usage.input_tokens - cached)
        plain = usage.input_tokens - cached - written
        read = plain * self.input + cached * self.cached + written * self.cache_write
        return round((read + usage.output_tokens * self.output) / MILLION, 9)


def prices_of(model: Model | None) -> Prices | None:
    """None if the settings know no price; what the cache does costs as much as any input unless they say otherwise."""
    if model is None or not (model.input_usd_per_million or model.output_usd_per_million):
        return None
    plain, given = model.input_usd_per_million, model.model_fields_set
    return Prices(
        input=plain,
        cached=model.cached_usd_per_million if "cached_usd_per_million" in given else plain,
        cache_write=model.cache_write_usd_per_million if "cache_write_usd_per_million" in given else plain,
        output=model.output_usd_per_million,
    )

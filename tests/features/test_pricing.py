"""Prices by the table of the settings: every token is paid for once, at the price of what was done with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.core.config.providers import Model
from kimi_proxy.features.accounting import Prices, prices_of

ANTHROPIC = Model(
    provider="anthropic",
    input_usd_per_million=4,
    cached_usd_per_million=0.4,
    cache_write_usd_per_million=5,
    output_usd_per_million=20,
)
COUNTS = st.integers(0, 10**6)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS)


def test_reads_and_writes_of_the_cache_have_their_own_prices():
    prices = prices_of(ANTHROPIC)

    assert prices == Prices(4, 0.4, 5, 20)
    usage = Usage(input_tokens=1_000_000, cached_tokens=500_000, cache_write_tokens=100_000, output_tokens=1_000_000)
    assert prices.cost_usd(usage) == pytest.approx(0.4 * 4 + 0.5 * 0.4 + 0.1 * 5 + 20)


def test_writes_for_an_hour_have_a_price_of_their_own():
    prices = prices_of(ANTHROPIC.model_copy(update={"long_write_usd_per_million": 8}))

    assert prices == Prices(4, 0.4, 5, 20, long_write=8)
    usage = Usage(input_tokens=300_000, cache_write_tokens=300_000, long_write_tokens=100_000)
    assert prices.cost_usd(usage) == pytest.approx(0.2 * 5 + 0.1 * 8)


def test_what_the_cache_does_costs_like_any_input_where_nobody_says_otherwise():
    assert prices_of(Model(provider="p", input_usd_per_million=4)) == Prices(4, 4, 4, 0)


def test_a_price_of_nothing_is_a_price():
    free = Model(provider="p", input_usd_per_million=4, cached_usd_per_million=0, cache_write_usd_per_million=0)

    assert prices_of(free) == Prices(4, 0, 0, 0)


def test_without_a_price_nobody_knows():
    assert prices_of(None) is None
    assert prices_of(Model(provider="p")) is None


@given(USAGES)
def test_no_count_makes_a_cost_below_zero_or_above_that_of_all_tokens_at_the_dearest_price(usage: Usage):
    prices = Prices(4, 0.4, 5, 20)

    assert 0 <= prices.cost_usd(usage) <= (usage.input_tokens * 5 + usage.output_tokens * 20) / 1e6 + 1e-8

"""Tokens, shares of the window and prices, computed from what a provider says or does not say."""

from dataclasses import replace

import pytest

from kimi_proxy.core.chat.reply import ReplyFacts, Usage
from kimi_proxy.core.config.providers import Model
from kimi_proxy.features import metering
from kimi_proxy.features.accounting import Account
from kimi_proxy.features.metering import Ending, Metric, QuotaWindow, plan_quota

PRICED = Model(
    provider="p", max_context_size=1000, input_usd_per_million=2, cached_usd_per_million=0.5, output_usd_per_million=10
)
STARTED = Metric("req_1", "ses_1", 1.0, "p", "m", "chat", 400, 0, ("nothing_to_do",), 1000)


def ended(usage: Usage | None, model: Model | None = PRICED) -> Metric:
    return metering.with_ending(STARTED, Ending(200, "ok", ReplyFacts("m", "stop", usage), 0.0404, 1.2346), model)


def test_an_estimate_stands_until_the_provider_has_counted():
    assert (STARTED.tokens, STARTED.percent, STARTED.counted_by) == (400, 40.0, "estimate")

    counted = ended(Usage(input_tokens=900, output_tokens=50, cached_tokens=100))

    assert (counted.tokens, counted.percent, counted.counted_by) == (900, 90.0, "provider")
    assert (counted.tokens_estimated, counted.cached_tokens, counted.output_tokens) == (400, 100, 50)
    assert (counted.status, counted.outcome, counted.finish) == (200, "ok", "stop")
    assert (counted.first_token_ms, counted.duration_ms) == (40, 1235)


@pytest.mark.parametrize("usage", [None, Usage(), Usage(output_tokens=5)])
def test_a_provider_that_counts_nothing_leaves_the_estimate(usage: Usage | None):
    metric = ended(usage)

    assert (metric.tokens, metric.counted_by, metric.input_tokens, metric.cost_usd) == (400, "estimate", None, None)


def test_the_share_is_of_this_request_and_unknown_for_an_unknown_window():
    assert metering.window_percent(0, 1000) == 0
    assert metering.window_percent(1500, 1000) == 150
    assert metering.window_percent(1, None) is None


def test_turns_in_which_the_model_read_back_do_not_fill_the_window_twice():
    asked_again = replace(
        STARTED, input_tokens=17_000, max_context=20_000, account=Account(9_000, 8_000, extra_turns=1)
    )

    assert (asked_again.tokens, asked_again.percent) == (8_000, 40.0)
    assert asked_again.input_tokens == 17_000  # all of it is paid for


@pytest.mark.parametrize(
    ("share", "level"),
    [
        (None, "unknown"),
        (0.0, "ok"),
        (79.99, "ok"),
        (80.0, "caution"),
        (89.99, "caution"),
        (90.0, "warning"),
        (95.0, "critical"),
        (400.0, "critical"),
    ],
)
def test_levels_begin_at_80_90_and_95_percent(share: float | None, level: str):
    assert metering.level(share) == level


def test_a_level_is_worse_only_if_it_is_nearer_to_the_end():
    order = ("unknown", "ok", "caution", "warning", "critical")
    worse = {(now, before) for now in order for before in order if metering.is_worse_level(now, before)}

    assert worse == {
        *(("caution", before) for before in ("unknown", "ok")),
        *(("warning", before) for before in ("unknown", "ok", "caution")),
        *(("critical", before) for before in ("unknown", "ok", "caution", "warning")),
    }


def test_cached_tokens_have_their_own_price():
    # 800 × 2 + 200 × 0.5 + 100 × 10 = 2,700 millionths
    assert ended(Usage(1000, 100, cached_tokens=200), PRICED).cost_usd == pytest.approx(0.0027)


def test_without_a_price_of_their_own_cached_tokens_cost_as_much_as_others():
    model = Model(provider="p", input_usd_per_million=2, output_usd_per_million=10)
    free = Model(provider="p", input_usd_per_million=2, cached_usd_per_million=0, output_usd_per_million=10)

    assert ended(Usage(1000, 0, cached_tokens=200), model).cost_usd == pytest.approx(0.002)
    assert ended(Usage(1000, 0, cached_tokens=200), free).cost_usd == pytest.approx(0.0016)


def test_more_cached_tokens_than_tokens_cost_no_less_than_nothing():
    assert ended(Usage(10, 0, cached_tokens=10**9), PRICED).cost_usd == pytest.approx(10 * 0.5 / 1e6)


@pytest.mark.parametrize("model", [None, Model(provider="p")])
def test_nobody_knows_a_price_that_the_settings_do_not_say(model: Model | None):
    assert ended(Usage(1000, 100), model).cost_usd is None


def test_a_plan_s_quota_is_read_from_the_answer_s_headers():
    headers = (
        (b"content-type", b"application/json"),
        (b"Anthropic-RateLimit-Unified-5h-Utilization", b"0.42"),
        (b"anthropic-ratelimit-unified-5h-reset", b"1790256000"),
        (b"anthropic-ratelimit-unified-7d-utilization", b"0.18"),
        (b"anthropic-ratelimit-unified-overage-utilization", b"0.5"),
        (b"anthropic-ratelimit-unified-status", b"allowed"),
    )

    assert plan_quota(headers) == (QuotaWindow("5h", 0.42, 1790256000.0), QuotaWindow("7d", 0.18, None))


@pytest.mark.parametrize("value", [b"", b"nan", b"-1", b"inf", b"much"])
def test_a_quota_that_is_no_number_is_none(value: bytes):
    assert plan_quota(((b"anthropic-ratelimit-unified-5h-utilization", value),)) == ()


@pytest.mark.parametrize(
    ("resets", "kept"),
    [
        (STARTED.at + 3600, STARTED.at + 3600),
        (STARTED.at + metering.MAX_RESET_S, STARTED.at + metering.MAX_RESET_S),
        (STARTED.at + metering.MAX_RESET_S + 1, None),
        (500_000_000_000.0, None),
        (1e300, None),
        (None, None),
    ],
)
def test_a_reset_more_than_a_year_away_is_none(resets: float | None, kept: float | None):
    ending = Ending(200, "ok", ReplyFacts(), 0.1, 0.2, quota=(QuotaWindow("5h", 0.42, resets),))

    assert metering.with_ending(STARTED, ending, None).quota == (QuotaWindow("5h", 0.42, kept),)

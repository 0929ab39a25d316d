"""An account is never better than the truth: every cost is taken off once, and no saving is counted twice."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.features.accounting import Account, Bill, Prices, Recalled, Sent, account

PRICES = Prices(input=3, cached=0.3, cache_write=3.75, output=15)


def bill(usage: Usage | None, recalled: Recalled | None = None, caches: bool = True) -> Bill:
    return Bill(usage, recalled or Recalled(), PRICES, PRICES, caches)


def usd(input: int = 0, cached: int = 0, written: int = 0, output: int = 0) -> float:
    return (input * 3 + cached * 0.3 + written * 3.75 + output * 15) / 1e6


def test_a_request_that_nobody_changed_saves_nothing_and_costs_what_it_costs():
    usage = Usage(10_000, 500, 8_000, 2_000)

    told = account(Sent(9_500, 9_500, 7_000, 7_000), bill(usage))

    assert told == Account(
        *(10_000, 10_000),
        cost_before_usd=PRICES.cost_usd(usage),
        net_saved_usd=0.0,
        cache_lost_usd=0.0,
        overhead_usd=0.0,
    )


def test_what_is_cut_before_the_model_has_read_it_is_saved_at_the_full_price():
    told = account(Sent(20_000, 10_000, 1_000, 1_000), bill(Usage(10_000, 100)))

    assert (told.tokens_before, told.tokens_after, told.net_saved_tokens) == (20_000, 10_000, 10_000)
    assert told.net_saved_usd == pytest.approx(usd(input=10_000))


def test_what_was_cut_long_ago_would_have_been_read_cheaply():
    told = account(Sent(20_000, 10_000, 19_000, 9_000), bill(Usage(10_000, 100, cached_tokens=9_000)))

    assert told.net_saved_usd == pytest.approx(usd(cached=10_000))


def test_the_provider_s_count_sets_the_scale():
    told = account(Sent(2_000, 1_000), bill(Usage(1_200, 100)))

    assert (told.tokens_before, told.net_saved_tokens) == (2_400, 1_200)


def test_a_prefix_that_we_changed_is_paid_for_anew():
    sent = Sent(30_000, 29_000, 25_000, 25_500, is_rewritten=True)
    told = account(sent, bill(Usage(29_000, 100, cached_tokens=0, cache_write_tokens=29_000)))

    assert told.cache_lost_tokens == 25_500
    assert told.net_saved_tokens == 1_000 - 25_500
    assert told.net_saved_usd == pytest.approx(usd(cached=25_000, written=5_000) - usd(written=29_000))


def test_where_there_is_no_cache_nothing_of_it_is_lost():
    sent = Sent(30_000, 29_000, 25_000, 25_500, is_rewritten=True)
    told = account(sent, bill(Usage(29_000, 100), caches=False))

    assert (told.cache_lost_tokens, told.net_saved_tokens) == (0, 1_000)


def test_turns_in_which_the_model_reads_back_are_taken_off():
    first, all_turns = Usage(10_000, 60), Usage(10_000 + 11_000, 60 + 400, cached_tokens=9_984)
    told = account(Sent(20_000, 10_000), bill(all_turns, Recalled(calls=2, turns=1, first=first)))

    assert (told.recoveries, told.extra_turns, told.recovery_tokens) == (2, 1, 11_060)
    assert told.net_saved_tokens == 10_000 - 11_060
    assert told.cost_before_usd == pytest.approx(usd(input=20_000, output=400))
    assert told.net_saved_usd == pytest.approx(usd(input=20_000, output=400) - PRICES.cost_usd(all_turns))


def test_texts_that_the_client_read_back_would_not_be_there():
    told = account(Sent(20_000, 10_000, recovered=4_000, recoveries=1), bill(Usage(10_000, 100)))

    assert (told.recoveries, told.recovery_tokens, told.net_saved_tokens) == (1, 4_000, 6_000)
    assert told.net_saved_usd == pytest.approx(usd(input=6_000))


def test_what_others_cut_and_the_client_read_back_is_no_loss_of_ours():
    told = account(Sent(10_000, 10_000, recovered=4_000), bill(Usage(10_000, 100)))

    assert (told.recovery_tokens, told.net_saved_tokens, told.net_saved_usd) == (0, 0, 0.0)


def test_summaries_are_paid_for():
    sent = Sent(10_000, 10_000, summaries=1, summary=Usage(5_000, 800))
    told = account(sent, bill(Usage(10_000, 100)))

    assert (told.summaries, told.summary_tokens, told.net_saved_tokens) == (1, 5_800, -5_800)
    assert told.net_saved_usd == pytest.approx(-usd(input=5_000, output=800))


def test_without_a_count_or_a_price_there_is_no_money_and_our_own_count():
    sent = Sent(2_000, 1_500)

    assert account(sent, bill(None)) == Account(2_000, 1_500, net_saved_tokens=500)
    assert account(sent, Bill(Usage(1_500, 9))) == Account(2_000, 1_500, net_saved_tokens=500)


def test_a_model_that_we_chose_instead_is_compared_with_the_one_that_was_asked_for():
    dearer = Bill(Usage(1_000, 0), prices_before=PRICES, prices=replace(PRICES, input=6))

    assert account(Sent(1_000, 1_000), dearer).net_saved_usd == pytest.approx(-usd(input=1_000))


COUNTS = st.integers(0, 200_000)
USAGES = st.builds(Usage, st.integers(1, 200_000), COUNTS, COUNTS, COUNTS)
SENT = st.builds(
    Sent,
    COUNTS,
    COUNTS,
    COUNTS,
    COUNTS,
    st.booleans(),
    COUNTS,
    st.integers(0, 3),
    st.integers(0, 2),
    st.builds(Usage, COUNTS, COUNTS),
)
RECALLED = st.just(Recalled()) | st.builds(Recalled, st.integers(1, 4), st.integers(1, 4), st.none() | USAGES)
BILLS = st.builds(
    Bill, st.none() | USAGES, RECALLED, st.none() | st.just(PRICES), st.none() | st.just(PRICES), st.booleans()
)


@given(SENT, BILLS)
def test_the_net_is_what_is_left_when_every_cost_is_taken_off_once(sent: Sent, bill: Bill):
    told = account(sent, bill)
    costs = (told.cache_lost_tokens, told.recovery_tokens, told.summary_tokens)

    assert told.net_saved_tokens == told.tokens_before - told.tokens_after - sum(costs)
    assert min(told.tokens_before, told.tokens_after, *costs) >= 0
    assert (told.net_saved_usd is None) == (told.cost_before_usd is None)


@given(SENT, USAGES, RECALLED, st.booleans())
def test_doing_nothing_would_never_have_cost_less_than_the_account_says(
    sent: Sent, usage: Usage, recalled: Recalled, caches: bool
):
    """All that came, read at the dearest price, and the answer: more than that cannot have been saved."""
    told = account(sent, bill(usage, recalled, caches))

    assert told.cost_before_usd is not None
    assert 0 <= told.cost_before_usd <= usd(written=told.tokens_before, output=usage.output_tokens) + 1e-8


@given(SENT, USAGES, RECALLED)
def test_every_further_cost_makes_the_net_smaller(sent: Sent, usage: Usage, recalled: Recalled):
    told = account(sent, bill(usage, recalled))
    dearer = replace(sent, summary=Usage(sent.summary.input_tokens + 100, sent.summary.output_tokens + 10))

    assert account(dearer, bill(usage, recalled)).net_saved_tokens == told.net_saved_tokens - 110
    lost = account(replace(sent, is_rewritten=True), bill(usage, recalled))
    assert lost.net_saved_tokens <= told.net_saved_tokens


def test_money_spent_on_saving_is_named_beside_the_net():
    first = Usage(10_000, 50, cached_tokens=9_000)
    usage = Usage(21_000, 250, cached_tokens=19_000)
    sent = Sent(20_000, 10_000, 9_000, 9_000, summaries=1, summary=Usage(4_000, 300))

    told = account(sent, bill(usage, Recalled(calls=1, turns=1, first=first, all=usage)))

    further_turn = usd(input=2_000, cached=19_000, output=250) - usd(input=1_000, cached=9_000, output=200)
    assert told.overhead_usd == pytest.approx(usd(input=4_000, output=300) + further_turn)
    assert told.cache_lost_usd == 0


def test_cache_reads_that_we_lost_are_named_in_money():
    sent = Sent(30_000, 29_000, 25_000, 25_500, is_rewritten=True)
    told = account(sent, bill(Usage(29_000, 100, cached_tokens=0, cache_write_tokens=29_000)))

    assert told.cache_lost_usd == pytest.approx(usd(written=25_500) - usd(cached=25_500))

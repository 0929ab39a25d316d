"""What a conversation comes to, added up and shown."""

from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.features.accounting import Prices
from kimi_proxy.lab.replay import ReplayOutcome, table

PRICES = Prices(1, 0.1, 2, 10)


def played(policy: str, usage: Usage, prices: Prices | None, window: int | None = None) -> ReplayOutcome:
    outcome = ReplayOutcome(policy, prices, window)
    outcome.add_request(usage)
    return outcome


def test_requests_and_extra_turns_are_both_paid_for():
    outcome = played("off", Usage(1000, 10, 400, 100), PRICES, window=900)
    outcome.add_extra_turn(Usage(500, 5))

    assert (outcome.requests, outcome.extra_turns, outcome.too_long, outcome.largest_tokens) == (1, 1, 1, 1000)
    assert (outcome.input_tokens, outcome.plain_tokens, outcome.output_tokens) == (1500, 1000, 15)
    assert outcome.cost_usd == (500 + 40 + 200 + 100 + 500 + 50) / 1e6


def test_a_loss_is_shown_as_one():
    off = played("off", Usage(1000, 10), PRICES)
    worse = played("worse", Usage(1100, 10), PRICES)

    assert worse.to_json(off)["tokens_saved_percent"] == -10.0
    assert worse.to_json(off)["cost_saved_percent"] == -9.1
    assert table([off, worse])[2].endswith("-9.1 %")


def test_without_prices_tokens_are_compared_and_no_money_is_shown():
    off = played("off", Usage(1000, 10), None)
    less = played("less", Usage(750, 10), None)

    assert less.to_json(off)["cost_saved_percent"] is None
    assert table([off, less])[2].split()[-3:] == ["–", "25.0", "%"]

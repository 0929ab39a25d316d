"""Savings as JSON: those that saved most first, and a loss by what it was spent on."""

from dataclasses import replace

from kimi_proxy.features.accounting import Account, SavingsLine
from kimi_proxy.features.metering import Metric
from kimi_proxy.services import serialize

GAIN = SavingsLine({}, "ses_a", "", "/src/shop", "m", 3, 1000, 700, 100, 50, 1, 1, 30, 1, 20, 200, 0, *[0.1] * 7)
METRIC = Metric("req_a", "ses_a", 0.0, "p", "m", "chat", 100, 0, (), None)
LOSS = replace(GAIN, session="ses_b", directory="/src/docs", net_saved_tokens=-900, net_saved_usd=-0.2)


def test_the_project_that_saved_most_comes_first():
    projects = serialize.savings_by_project([LOSS, GAIN])

    assert [(each["directory"], each["net_saved_usd"]) for each in projects] == [
        ("/src/shop", 0.1),
        ("/src/docs", -0.2),
    ]


def test_answers_have_every_field_that_their_types_list():
    spent = Account(10, 7, net_saved_tokens=3)
    done = serialize.metric(replace(METRIC, account=spent))

    assert list(serialize.period([GAIN, LOSS])) == list(serialize.PeriodBody.__annotations__)
    assert [name for name in done if name in serialize.AccountBody.__annotations__] == list(
        serialize.AccountBody.__annotations__
    )
    assert (done["tokens_after"], done["net_saved_tokens"]) == (7, 3)


def test_a_loss_is_split_into_what_it_was_spent_on():
    assert serialize.losses(replace(LOSS, tokens_after=1100)) == {
        "tool": 100,
        "cache": 50,
        "recovered": 30,
        "summaries": 20,
    }

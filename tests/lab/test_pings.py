"""How often it would pay to refresh a prompt cache during a pause."""

from dataclasses import dataclass, replace

import pytest

from kimi_proxy.features.models.known import cache_rules
from kimi_proxy.lab.pings import worthwhile_pings


@dataclass
class Ratio:
    read: float
    write: float
    life_s: float = 300.0
    expected: int = 0
    limit: int = 20


@pytest.mark.parametrize(
    "ratio",
    [
        Ratio(0.1, 1.25, expected=2),
        Ratio(0.05, 1.25, expected=3),
        Ratio(0.025, 1.25, expected=5),
        Ratio(0.1, 1.0, expected=1),
        Ratio(0.5, 1.0, expected=0),
        Ratio(0.1, 2.0, 3600, expected=0),
        Ratio(0.05, 2.0, 3600, expected=2),
        Ratio(0.05, 1.25, expected=2, limit=2),
    ],
    ids=str,
)
def test_how_often_a_ping_pays_follows_from_the_prices(ratio: Ratio):
    rules = replace(
        cache_rules("anthropic", "claude-sonnet-4-5", ""),
        read=ratio.read,
        write=ratio.write,
        life_s=ratio.life_s,
        is_refreshed=True,
    )
    assert worthwhile_pings(rules, ratio.limit) == ratio.expected

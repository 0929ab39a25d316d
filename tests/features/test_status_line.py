"""The line of an agent's status bar."""

from dataclasses import replace

import pytest

from kimi_proxy.core.config.sections import DisplaySettings
from kimi_proxy.features.accounting import SavingsLine, sum_lines
from kimi_proxy.features.status_line import status_line

NOTHING = sum_lines(())
EURO = DisplaySettings(currency="EUR", currency_per_usd=0.5)


@pytest.mark.parametrize(
    ("percent", "saved", "left", "display", "text"),
    [
        (
            42.9,
            replace(NOTHING, net_saved_usd=1.234),
            252,
            DisplaySettings(),
            "window 42% · saved $1.23 today · cache 4:12",
        ),
        (None, replace(NOTHING, net_saved_usd=3.0), 0, EURO, "saved €1.50 today · cache cold"),
        (7.0, replace(NOTHING, net_saved_tokens=12_345), None, EURO, "window 7% · saved 12.3k tokens today"),
        (
            1.0,
            replace(NOTHING, net_saved_usd=-0.5),
            7265,
            DisplaySettings(),
            "window 1% · saved -$0.50 today · cache 2h01",
        ),
        (
            1.0,
            replace(NOTHING, observed_tokens=9, observed_usd=0.25),
            None,
            DisplaySettings(currency="CHF"),
            "window 1% · would have saved 0.25 CHF today",
        ),
    ],
)
def test_it_says_window_savings_and_cache(
    percent: float | None, saved: SavingsLine, left: int | None, display: DisplaySettings, text: str
):
    assert status_line(percent, saved, left, display) == text

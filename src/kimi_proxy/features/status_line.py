"""The line in an agent's status bar: how full its window is, today's savings, the life of its prompt cache."""

from kimi_proxy.core.config.sections import DisplaySettings
from kimi_proxy.features.accounting import SavingsLine

_SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹"}
_THOUSAND = 1000


def status_line(percent: float | None, saved: SavingsLine, cache_left_s: int | None, display: DisplaySettings) -> str:
    """Return how full the window is, today's savings, and the remaining lifetime of the prompt cache."""
    window = "" if percent is None else f"window {int(percent)}%"
    cache = "" if cache_left_s is None else f"cache {_duration(cache_left_s)}" if cache_left_s else "cache cold"
    return " · ".join(part for part in (window, _describe_savings(saved, display), cache) if part)


def _describe_savings(saved: SavingsLine, display: DisplaySettings) -> str:
    if saved.observed_tokens and not saved.net_saved_tokens:
        return f"would have saved {_amount(saved.observed_usd, saved.observed_tokens, display)} today"
    return f"saved {_amount(saved.net_saved_usd, saved.net_saved_tokens, display)} today"


def _amount(usd: float | None, tokens: int, display: DisplaySettings) -> str:
    """Return money, or tokens while no price is known."""
    if usd is None:
        size = f"{tokens / _THOUSAND:.1f}k" if abs(tokens) >= _THOUSAND else str(tokens)
        return f"{size} tokens"
    amount = usd * display.currency_per_usd
    number = f"{abs(amount):,.2f}"
    sign = "-" if amount < 0 else ""
    symbol = _SYMBOLS.get(display.currency)
    return f"{sign}{symbol}{number}" if symbol else f"{sign}{number} {display.currency}"


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}" if hours else f"{minutes}:{rest:02}"

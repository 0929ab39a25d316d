"""Requests that would keep a prompt cache warm during a pause: only simulated, kimi-proxy sends none."""

from itertools import takewhile

from kimi_proxy.features.models.known import CacheRules

LEAST_TOKENS = 20_000  # of a conversation whose cache would be kept
MARGIN_S = 30.0  # before the end of a cache's life; an answer may take some of it
HOUR_S = 3600.0
# How often the user came back within one more life of the cache, of those who had not come back before, in 335 public
# sessions of Claude Code (entireio/cli, auth-go and skills): by the number of lives that have passed.
RETURNS = (0.28, 0.14, 0.08, 0.05, 0.04, 0.02)
RETURNS_AFTER_HOURS = (0.05, 0.04, 0.01)
# Of a prompt whose cache has expired, the share that the sanitizer cuts for free when the user comes back: to keep it
# warm also means to do without that cut.
CUT_SHARE = 0.2


def worthwhile_pings(rules: CacheRules, at_most: int) -> int:
    """Return how many times in a row it pays to refresh a cache: while a return is likely enough for the price."""
    gain = rules.write * (1 - CUT_SHARE) - rules.read
    if not (rules.life_s and rules.is_refreshed) or gain <= 0:
        return 0
    returns = RETURNS_AFTER_HOURS if rules.life_s >= HOUR_S else RETURNS
    return min(at_most, sum(1 for _ in takewhile(lambda likely: likely * gain > rules.read, returns)))


def due_in_s(rules: CacheRules) -> float:
    """Return how long after a request the cache has to be refreshed."""
    return max(0.0, rules.life_s - MARGIN_S)

"""Keeping a prompt cache warm: when a request of our own pays before the cache expires, and what it looks like."""

from itertools import takewhile

from kimi_proxy.core.chat import Request, edit
from kimi_proxy.features.models.cache_rules import CacheRules

OUTCOME = "keep_warm"  # of such a request in the journal
LEAST_TOKENS = 20_000
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


def ping_of(request: Request) -> Request | None:
    """Return the same prompt with the same thinking, to be answered by one token; None where that cannot be asked."""
    return None if request.is_crowded else edit.with_one_token(request)

"""How much of an output may go: by what it is, how long it is, and whether the model has read it before."""

from collections.abc import Sequence

from kimi_proxy.features.sanitizer.failures import FAILING

HUGE_TOKENS = 8_000
UNREAD = 0.5  # the model has just asked for it
MIN_KEEP_LINES = 20

# An output that is huge, or that the model has read before.
_READ = {"code": 0.65, "docs": 0.65, "listing": 0.6, "logs": 0.8, "json": 0.9}
_HUGE_LOG = 0.9
_UNREAD_LISTING, _HUGE_LISTING_TOKENS = 0.42, 30_000  # what a hit is worth is hard to tell: rather one too many
# Of a log that says what failed, the report stays with as much again around it, and a screen more.
_AROUND_FAILURES = 2
_SCREEN_LINES = 40


def ratio_of(kind: str, tokens: int, is_unread: bool) -> float:
    if kind == "logs" and tokens > HUGE_TOKENS:
        return _HUGE_LOG
    if kind == "listing" and is_unread and tokens <= _HUGE_LISTING_TOKENS:
        return _UNREAD_LISTING
    return UNREAD if is_unread and tokens <= HUGE_TOKENS else _READ[kind]


def log_ratio(protected: Sequence[str], usual: float) -> float:
    """The ratio for a log with these protected lines; one that tells what failed can do with less of the rest."""
    if not any(why in FAILING for why in protected):
        return usual
    kept = _AROUND_FAILURES * sum(1 for why in protected if why) + _SCREEN_LINES
    return max(0.0, 1 - kept / len(protected))

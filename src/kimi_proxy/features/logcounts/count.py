"""A number of tokens that somebody else counted, and how long it is worth more than our own."""

from dataclasses import dataclass

MAX_AGE_S = 5.0  # an older one loses to the proxy's own count
MAX_TOKENS = 2**40  # what is more is no count


@dataclass(frozen=True, slots=True)
class LogCount:
    source: str  # continue, kimi_log or kimi_context
    tokens: int
    max_context: int | None = None
    conversation: str = ""  # what the agent calls it, where its log tells


def is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < MAX_TOKENS


def is_fresh(seen_at: float, now: float) -> bool:
    return 0 <= now - seen_at <= MAX_AGE_S

"""When tool results are cut, and how deep: three policies, and the moments at which a cut costs nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

PolicyName = Literal["careful", "default", "deep"]

# Prices as multiples of plain input, as Anthropic lists them; OpenAI's writes are free, which only makes cuts cheaper.
CACHE_READ, CACHE_WRITE = 0.1, 1.25

# An output over this never enters a conversation whole, whatever the policy.
HUGE_TOKENS = 8_000


@dataclass(frozen=True, slots=True)
class Policy:
    """Figures measured on real agents' sessions (`scripts/bench sessions`); see docs/sanitizer.md."""

    entry_tokens: int  # a new result with more tokens is cut when it enters
    keep_newest: int  # results that a cut of old ones leaves alone
    old_tokens: int = 200  # an old result with fewer tokens stays: its marker would cost half of it
    pays_within: int = (
        0  # requests within which a cut of cached results has to pay, at a user's new turn; 0: none is made
    )


POLICIES: Mapping[PolicyName, Policy] = {
    "careful": Policy(entry_tokens=HUGE_TOKENS, keep_newest=5),
    "default": Policy(entry_tokens=4_000, keep_newest=3),
    "deep": Policy(entry_tokens=1_000, keep_newest=3, pays_within=10),
}


@dataclass(frozen=True, slots=True)
class SentPrefix:
    """The newest request of a conversation, as far as the provider's prompt cache is concerned."""

    at: float  # seconds
    life_s: float  # how long the provider keeps what it has cached of it
    beginning: bytes = b""  # a digest of what a cached prefix begins with; empty if unknown


def is_cold(before: SentPrefix | None, now: SentPrefix) -> bool:
    """Return whether the provider has to write the beginning anew, whatever we send.

    So it is after a pause longer than the cache's life, when the conversation begins otherwise than before (another
    model, other tools), and when it was never seen: then it is new, or was resumed.
    """
    if before is None or now.at - before.at > before.life_s:
        return True
    return bool(before.beginning) and now.beginning != before.beginning


@dataclass(frozen=True, slots=True)
class CachedCut:
    """A cut of a result that the provider has cached."""

    place: int  # tokens that stand before it
    saved: int


def paying(cuts: Sequence[CachedCut], prompt_tokens: int, within_requests: int) -> Sequence[CachedCut]:
    """Return the newest of these cuts, oldest first, that earn most within so many requests; none if none do.

    What stands after the oldest of them has to be written to the cache anew.
    """
    best, most, saved = len(cuts), 0.0, 0
    for at in range(len(cuts) - 1, -1, -1):
        saved += cuts[at].saved
        rewritten = max(0, prompt_tokens - cuts[at].place - saved)
        net = CACHE_READ * saved * (within_requests + 1) - (CACHE_WRITE - CACHE_READ) * rewritten
        if net > most:
            best, most = at, net
    return cuts[best:]


@dataclass(frozen=True, slots=True)
class Aged:
    """A tool result in the order of the conversation, with what speaks for and against cutting it now."""

    tokens: int  # as it stands in the request now
    is_unread: bool  # the model has not answered since
    failed: bool = False  # it reports a failure that nothing has mended yet
    is_referred: bool = False  # the newest words of the user or the model name its file
    is_recovered: bool = False  # it was read back: never cut again


def old_results(results: Sequence[Aged], policy: Policy) -> list[int]:
    """Return the positions of the results that a free cut takes, oldest first.

    What is unread, among the newest, failed, still referred to or read back stays.
    """
    newest = max(0, len(results) - policy.keep_newest)
    return [
        at
        for at, result in enumerate(results)
        if at < newest
        and result.tokens > policy.old_tokens
        and not (result.is_unread or result.failed or result.is_referred or result.is_recovered)
    ]

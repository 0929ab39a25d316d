"""A model of a provider: what it reads from its cache, what it puts there, and what it reads anew.

OpenAI and those who speak its API keep the beginning of every request by themselves and find the longest one that a new
request shares, in steps of 128 tokens. Anthropic keeps a request up to each block that the client marks, and finds only
such ends again. Both need 1,024 tokens at least and forget after five minutes without use.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from kimi_proxy.core.chat.usage import Usage
from kimi_proxy.core.chat.wire import Wire
from kimi_proxy.core.heads import common_head
from kimi_proxy.features.replay.blocks import Block, Count

MIN_TOKENS = 1024
STEP_TOKENS = 128
TTL_S = 300.0


class Provider:
    """Asked in the order of time; deterministic."""

    def __init__(self, wire: Wire, count: Count, ttl_s: float = TTL_S) -> None:
        self._cache = _Marked(ttl_s) if wire is Wire.MESSAGES else _Prefixes(ttl_s, count)

    def ask(self, request: Sequence[Block], output_tokens: int, at: float) -> Usage:
        cached, written = self._cache.ask(request, at)
        return Usage(sum(block.tokens for block in request), output_tokens, cached, written)


@dataclass(slots=True)
class _Kept:
    blocks: tuple[Block, ...]
    used: float


class _Prefixes:
    """Whole requests; a new one shares a beginning with some of them."""

    def __init__(self, ttl_s: float, count: Count) -> None:
        self._ttl_s = ttl_s
        self._count = count
        self._kept: list[_Kept] = []

    def ask(self, request: Sequence[Block], at: float) -> tuple[int, int]:
        self._kept = [kept for kept in self._kept if at - kept.used <= self._ttl_s]
        shared = [(self._shared(kept.blocks, request), kept) for kept in self._kept]
        most, found = max(shared, key=lambda one: one[0], default=(0, None))
        if found is not None:
            found.used = at
        # What this request repeats to its last word is not kept twice.
        self._kept = [kept for kept in self._kept if kept.blocks != tuple(request[: len(kept.blocks)])]
        self._kept.append(_Kept(tuple(request), at))
        return (most // STEP_TOKENS * STEP_TOKENS if most >= MIN_TOKENS else 0), 0

    def _shared(self, kept: Sequence[Block], request: Sequence[Block]) -> int:
        tokens = 0
        for one, other in zip(kept, request, strict=False):
            if one.text == other.text:
                tokens += other.tokens
                continue
            return tokens + self._count(one.text[: common_head(one.text, other.text)])
        return tokens


class _Marked:
    """The ends of what clients marked; what lies before one is read in one piece, or not."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._ends: dict[bytes, float] = {}

    def ask(self, request: Sequence[Block], at: float) -> tuple[int, int]:
        digest, tokens, cached, marked = sha256(), 0, 0, 0
        marks: list[bytes] = []
        last = max((place for place, block in enumerate(request) if block.is_marked), default=-1)
        for block in request[: last + 1]:
            digest.update(block.text.encode("utf-8", "surrogatepass") + b"\0")
            tokens += block.tokens
            if tokens < MIN_TOKENS:
                continue
            end = digest.digest()
            if at - self._ends.get(end, float("-inf")) <= self._ttl_s:
                self._ends[end], cached = at, tokens
            if block.is_marked:
                marks.append(end)
                marked = tokens
        self._ends |= dict.fromkeys(marks, at)
        return cached, max(0, marked - cached)

"""A provider with a prompt cache, for recordings: what it reads there, what it puts there, and what it reads anew."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from kimi_proxy.core.chat import Part, Request, Wire
from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.core.lines import common_head
from kimi_proxy.features.chat.context import composition
from kimi_proxy.features.chat.memory import TextWeight

MIN_TOKENS = 1024
STEP_TOKENS = 128
TTL_S = 300.0

# Ids are drawn at random. As the same one, they weigh the same in every run.
_ID = re.compile(r"\b(prn|msk|cmp)_[0-9a-hjkmnp-tv-z]{16}\b", re.ASCII)
# Clients move these marks to the end of the conversation with every request; they are no part of the text.
_MARK = re.compile(rb'(?:,\s*+|(?<![\s,])\s*+)"cache_control"\s*+:\s*+\{[^{}]*+\}\s*+,?')
_HAS_MARK = b'"cache_control"'

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class PromptBlock:
    text: str
    tokens: int
    is_marked: bool = False  # the client asks to have everything up to its end cached


def blocks(request: Request, count: Count) -> tuple[PromptBlock, ...]:
    """Return the descriptions of the tools, the system prompt that stands apart, and each message."""
    weighed = composition(request, lambda text: TextWeight(count(with_fixed_ids(text))))
    members = request.members
    tools = bytes(members.get("tools") or b"")
    apart = bytes(members.get(request.format.system_member) or b"")
    made = [
        PromptBlock(_MARK.sub(b"", tools).decode("utf-8", "replace"), weighed.definitions, _HAS_MARK in tools),
        PromptBlock(_MARK.sub(b"", apart).decode("utf-8", "replace"), weighed.apart.tokens, _HAS_MARK in apart),
    ]
    for message, one in zip(request.messages, weighed.messages, strict=True):
        raw = request.body[message.start : message.end]
        made.append(PromptBlock(with_fixed_ids(_text(message.role, message.parts)), one.tokens, _HAS_MARK in raw))
    return tuple(block for block in made if block.tokens)


def with_fixed_ids(text: str) -> str:
    return _ID.sub(r"\1_0000000000000000", text) if "_" in text else text


def _text(role: str, parts: Iterable[Part]) -> str:
    texts = [role]
    for part in parts:
        text = part.text or part.body[part.start : part.end].decode("utf-8", "replace")
        texts.append(f"{part.kind} {part.name} {part.call_id}\n{text}")
    return "\n".join(texts)


class CachingProvider:
    """Simulates a provider's prompt cache: what it reads there, what it puts there, and what it reads anew.

    OpenAI and those who speak its API keep the beginning of every request by themselves and find the longest one that a
    new request shares, in steps of 128 tokens. Anthropic keeps a request up to each block that the client marks, and
    finds only such ends again. Both need 1,024 tokens at least and forget after five minutes without use.
    Requests come in the order of time.
    """

    def __init__(self, wire: Wire, count: Count, ttl_s: float = TTL_S) -> None:
        self._cache = _Marked(ttl_s) if wire.format.has_cache_marks else _Prefixes(ttl_s, count)

    def ask(self, request: Sequence[PromptBlock], output_tokens: int, at: float) -> Usage:
        cached, written = self._cache.ask(request, at)
        return Usage(sum(block.tokens for block in request), output_tokens, cached, written)


@dataclass(slots=True)
class _Kept:
    blocks: tuple[PromptBlock, ...]
    used: float


class _Prefixes:
    """Whole requests; a new one shares a beginning with some of them."""

    def __init__(self, ttl_s: float, count: Count) -> None:
        self._ttl_s = ttl_s
        self._count = count
        self._kept: list[_Kept] = []

    def ask(self, request: Sequence[PromptBlock], at: float) -> tuple[int, int]:
        self._kept = [kept for kept in self._kept if at - kept.used <= self._ttl_s]
        shared = [(self._shared(kept.blocks, request), kept) for kept in self._kept]
        most, found = max(shared, key=lambda one: one[0], default=(0, None))
        if found is not None:
            found.used = at
        # What this request repeats to its last word is not kept twice.
        self._kept = [kept for kept in self._kept if kept.blocks != tuple(request[: len(kept.blocks)])]
        self._kept.append(_Kept(tuple(request), at))
        return (most // STEP_TOKENS * STEP_TOKENS if most >= MIN_TOKENS else 0), 0

    def _shared(self, kept: Sequence[PromptBlock], request: Sequence[PromptBlock]) -> int:
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

    def ask(self, request: Sequence[PromptBlock], at: float) -> tuple[int, int]:
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

"""What an answer cost, as its provider counts, in one shape for all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kimi_proxy.core.chat.wire import Wire
from kimi_proxy.core.types import JsonValue


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int = 0  # all that the model read, from the provider's cache or not
    output_tokens: int = 0  # all that it wrote, its thoughts included
    cached_tokens: int = 0  # read from the cache
    cache_write_tokens: int = 0  # put there
    reasoning_tokens: int = 0  # thoughts


def openai(usage: JsonValue) -> Usage | None:
    """Chat completions and their imitators, which put cached tokens in three different places."""
    if not isinstance(usage, Mapping):
        return None
    read, written = _mapping(usage, "prompt_tokens_details"), _mapping(usage, "completion_tokens_details")
    cached = _count(read, "cached_tokens") or _count(usage, "cached_tokens") or _count(usage, "prompt_cache_hit_tokens")
    return Usage(
        input_tokens=_count(usage, "prompt_tokens"),
        output_tokens=_count(usage, "completion_tokens"),
        cached_tokens=cached,
        reasoning_tokens=_count(written, "reasoning_tokens"),
    )


def responses(usage: JsonValue) -> Usage | None:
    if not isinstance(usage, Mapping):
        return None
    return Usage(
        input_tokens=_count(usage, "input_tokens"),
        output_tokens=_count(usage, "output_tokens"),
        cached_tokens=_count(_mapping(usage, "input_tokens_details"), "cached_tokens"),
        reasoning_tokens=_count(_mapping(usage, "output_tokens_details"), "reasoning_tokens"),
    )


def anthropic(usage: JsonValue) -> Usage | None:
    """Here `input_tokens` are only those that came after the cache."""
    if not isinstance(usage, Mapping):
        return None
    cached, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    return Usage(
        input_tokens=_count(usage, "input_tokens") + cached + written,
        output_tokens=_count(usage, "output_tokens"),
        cached_tokens=cached,
        cache_write_tokens=written,
    )


def merged(before: Usage | None, after: Usage | None) -> Usage | None:
    """Counts in a stream only grow, and may be told twice or in parts."""
    if before is None or after is None:
        return before or after
    return Usage(
        max(before.input_tokens, after.input_tokens),
        max(before.output_tokens, after.output_tokens),
        max(before.cached_tokens, after.cached_tokens),
        max(before.cache_write_tokens, after.cache_write_tokens),
        max(before.reasoning_tokens, after.reasoning_tokens),
    )


def _mapping(usage: Mapping[str, JsonValue], name: str) -> Mapping[str, JsonValue]:
    value = usage.get(name)
    return value if isinstance(value, Mapping) else {}


def _count(usage: Mapping[str, JsonValue], name: str) -> int:
    """A whole number that can be a count; anything else counts nothing."""
    value = usage.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return 0
    return int(value)


READERS: Mapping[Wire, Callable[[JsonValue], Usage | None]] = {
    Wire.CHAT: openai,
    Wire.MESSAGES: anthropic,
    Wire.RESPONSES: responses,
}

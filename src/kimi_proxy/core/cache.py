"""Bounded containers: a cache limited by age, entries and bytes, and long lists in pieces."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """A cache that evicts the least recently used entry first; a value larger than `max_bytes` is not kept at all.

    What belongs to a person has that person's scope in its key.
    """

    def __init__(
        self,
        max_entries: int,
        *,
        max_bytes: float = math.inf,
        ttl_s: float = math.inf,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._now = now
        self._entries: OrderedDict[Key, Value] = OrderedDict()
        # Only where there is such a limit: there are tens of thousands of small entries.
        self._sizes: dict[Key, int] = {}
        self._expires: dict[Key, float] = {}
        self._bytes = 0

    def __contains__(self, key: Key) -> bool:
        """Return whether `key` is in the cache, without counting as use."""
        return key in self._entries and (not self._expires or not self._is_expired(key))

    def items(self) -> list[tuple[Key, Value]]:
        """Return the entries, least recently used first."""
        return [(key, value) for key, value in self._entries.items() if not self._is_expired(key)]

    def get(self, key: Key) -> Value | None:
        value = self._entries.get(key)
        if value is None:
            return None
        if self._expires and self._is_expired(key):
            self.forget(key)
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: Key, value: Value, size: int = 0) -> None:
        self.forget(key)
        if size > self._max_bytes:
            return
        self._entries[key] = value
        if self._max_bytes < math.inf:
            self._sizes[key] = size
            self._bytes += size
        if self._ttl_s < math.inf:
            self._expires[key] = self._now() + self._ttl_s
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            self.forget(next(iter(self._entries)))

    def _is_expired(self, key: Key) -> bool:
        return bool(self._expires) and self._expires[key] <= self._now()

    def pop(self, key: Key) -> Value | None:
        """Return the value of `key` and forget it."""
        value = self.get(key)
        self.forget(key)
        return value

    def forget(self, key: Key) -> None:
        self._entries.pop(key, None)
        self._expires.pop(key, None)
        self._bytes -= self._sizes.pop(key, 0)

    def forget_matching(self, matches: Callable[[Key], bool]) -> None:
        """Forget every entry whose key is meant."""
        for key in [key for key in self._entries if matches(key)]:
            self.forget(key)


Item = TypeVar("Item")


def in_batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield the items in their order, up to `size` at a time."""
    return (items[at : at + size] for at in range(0, len(items), size))

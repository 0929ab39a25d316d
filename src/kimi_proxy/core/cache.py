"""A bounded cache in memory, limited by age, number of entries and bytes."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from kimi_proxy.core import caller

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _Entry(NamedTuple, Generic[Value]):
    value: Value
    size: int
    expires: float


def _everyone() -> str:
    return ""


class LruCache(Generic[Key, Value]):
    """The least recently used entry leaves first; a value larger than `max_bytes` is not kept at all.

    What one scope has put in, no other finds. `shared` is for what says nothing about anyone, such as a model's window.
    """

    def __init__(
        self,
        max_entries: int,
        *,
        max_bytes: float = math.inf,
        ttl_s: float = math.inf,
        now: Callable[[], float] = time.monotonic,
        shared: bool = False,
    ) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._now = now
        self._scope: Callable[[], str] = _everyone if shared else caller.scope
        self._entries: OrderedDict[tuple[str, Key], _Entry[Value]] = OrderedDict()
        self._bytes = 0

    def __contains__(self, key: Key) -> bool:
        """Whether `key` is kept; looking does not count as use."""
        place = self._scope(), key
        return place in self._entries and self._entries[place].expires > self._now()

    def items(self) -> list[tuple[Key, Value]]:
        """Return what is kept, the least recently used first."""
        now, own = self._now(), self._scope()
        entries = self._entries.items()
        return [(key, entry.value) for (scope, key), entry in entries if scope == own and entry.expires > now]

    def get(self, key: Key) -> Value | None:
        place = self._scope(), key
        entry = self._entries.get(place)
        if entry is None:
            return None
        if entry.expires < math.inf and entry.expires <= self._now():
            self._drop(place)
            return None
        self._entries.move_to_end(place)
        return entry.value

    def put(self, key: Key, value: Value, size: int = 0) -> None:
        place = self._scope(), key
        if place in self._entries:
            self._drop(place)
        if size > self._max_bytes:
            return
        expires = math.inf if self._ttl_s == math.inf else self._now() + self._ttl_s
        self._entries[place] = _Entry(value, size, expires)
        self._bytes += size
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def pop(self, key: Key) -> Value | None:
        """Return the value of `key` and forget it."""
        value = self.get(key)
        self.forget(key)
        return value

    def forget(self, key: Key) -> None:
        self._drop((self._scope(), key))

    def clear(self) -> None:
        """Forget everything that is in the caller's scope."""
        own = self._scope()
        for place in [place for place in self._entries if place[0] == own]:
            self._drop(place)

    def _drop(self, place: tuple[str, Key]) -> None:
        entry = self._entries.pop(place, None)
        self._bytes -= entry.size if entry else 0

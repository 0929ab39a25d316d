"""Recent answers, kept in memory: for a while, up to a number, and up to a weight in bytes."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Kept(Generic[Value]):
    value: Value
    weight: int
    until: float


class LruCache(Generic[Key, Value]):
    """The least recently used leave first; a value heavier than the whole budget is not kept at all."""

    def __init__(self, *, ttl_s: float, max_entries: int, max_bytes: int, now: Callable[[], float]) -> None:
        self._ttl_s = ttl_s
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._now = now
        self._kept: OrderedDict[Key, _Kept[Value]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Key) -> Value | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.until <= self._now():
            self.forget(key)
            return None
        self._kept.move_to_end(key)
        return kept.value

    def put(self, key: Key, value: Value, weight: int) -> None:
        self.forget(key)
        if weight > self._max_bytes:
            return
        self._kept[key] = _Kept(value, weight, self._now() + self._ttl_s)
        self._bytes += weight
        while len(self._kept) > self._max_entries or self._bytes > self._max_bytes:
            self.forget(next(iter(self._kept)))

    def forget(self, key: Key) -> None:
        kept = self._kept.pop(key, None)
        self._bytes -= kept.weight if kept else 0

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0

"""What is remembered of conversations in memory: every cache of them is in one registry, which a deletion walks."""

import math
import time
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import Caller

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

# The session that an entry goes with; "" for one that goes with any session of its person, None for one that stays.
SessionOf = Callable[[Key, Value], str | None]
DAY_S = 86_400.0


def stays(key: object, value: object) -> None:
    """Of entries without anyone's words, such as digests."""
    return


def with_any(key: object, value: object) -> str:
    """Of entries that do not know their session: they are forgotten with any of their person's, and read again."""
    return ""


def with_session(key: tuple[str, str], value: object) -> str:
    """Of entries whose key is a scope and a session in it."""
    return key[1]


class Remembered(LruCache[Key, Value]):
    """Entries of one kind: how many there may be, how long they live, and which sessions they are forgotten with."""

    def __init__(
        self,
        memory: "Memory",
        name: str,
        *,
        size: int,
        forget: SessionOf[Key, Value],
        max_bytes: float = math.inf,
        life_s: float = math.inf,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(size, max_bytes=max_bytes, ttl_s=life_s, now=now)
        self.name = name
        self._session_of = forget
        memory.add(self)

    def forget_session(self, scope: str, session: str | None) -> None:
        """Forget what belongs to a session, or to any of a person's."""
        for key, value in self.items():
            if _scope_of(key) == scope:
                of = self._session_of(key, value)
                if of is not None and (session is None or of in ("", session)):
                    self.forget(key)


def _scope_of(key: object) -> object:
    return key[0] if isinstance(key, tuple) else key


class Memory:
    """The registry of everything that is `Remembered`, by name."""

    def __init__(self) -> None:
        self._kinds: dict[str, Remembered[Hashable, object]] = {}

    def add(self, remembered: Remembered[Key, Value]) -> None:
        if remembered.name in self._kinds:
            raise ValueError(f"{remembered.name!r} is remembered twice: choose another name")
        self._kinds[remembered.name] = remembered  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Remembered[Hashable, object]]:
        return iter(self._kinds.values())

    def forget(self, who: Caller, session: str | None) -> None:
        """Forget a session that was deleted, or all of a person's, also as it would have been had it been changed."""
        for kind in self._kinds.values():
            kind.forget_session(who.scope, session)
            kind.forget_session(who.observed.scope, session)

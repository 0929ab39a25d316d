"""The newest request of a session that an earlier process relayed: read once for all stages that ask for it."""

from collections.abc import Callable

from kimi_proxy.core.caller import Caller
from kimi_proxy.services.remembered import Memory, Remembered, with_session
from kimi_proxy.services.store.protocols import NewestRequest, SessionStore

MAX_SESSIONS = 10_000
READ_AGAIN_S = 1.0  # those who ask for it do so within one request

ScopedSession = tuple[str, str]


class NewestRequests:
    def __init__(self, sessions: SessionStore, now: Callable[[], float], memory: Memory | None = None) -> None:
        self._sessions = sessions
        # In a tuple, because there may be none.
        self._read: Remembered[ScopedSession, tuple[NewestRequest | None]] = Remembered(
            memory or Memory(),
            "newest requests of other processes",
            size=MAX_SESSIONS,
            life_s=READ_AGAIN_S,
            now=now,
            forget=with_session,
        )

    async def read(self, who: Caller, session: str) -> NewestRequest | None:
        """Return the newest request of a session; raise StoreUnavailable if it cannot be read."""
        place = who.scope, session
        known = self._read.get(place)
        if known is None:
            known = (await self._sessions.newest_request(who, session),)
            self._read.put(place, known)
        return known[0]

"""Summaries that a provider charges for and that no request's account carries yet; the session's next one will."""

from collections.abc import Callable

from kimi_proxy.features.pipeline import Note
from kimi_proxy.services import compression_told
from kimi_proxy.services.recent import Recent
from kimi_proxy.services.summaries import Summary

DAY_S = 86_400
REMEMBERED = 10_000


class Unpaid:
    def __init__(self, now: Callable[[], float]) -> None:
        self._owed: Recent[str, tuple[Note, ...]] = Recent(
            ttl_s=DAY_S, max_entries=REMEMBERED, max_bytes=REMEMBERED, now=now
        )

    def owe(self, session: str, summary: Summary) -> None:
        """Outlines cost nothing."""
        if summary.usage is not None:
            owed = (*(self._owed.get(session) or ()), Note("compression_paid", compression_told.price(summary)))
            self._owed.put(session, owed, len(owed))

    def taken(self, session: str) -> tuple[Note, ...]:
        """All that a session owes, once."""
        owed = self._owed.get(session) or ()
        self._owed.forget(session)
        return owed

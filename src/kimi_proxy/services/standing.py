"""What stands for each session: the compression that its requests carry, and whether one may come by itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kimi_proxy.services.recent import Recent
from kimi_proxy.services.store import Compressed, CompressionLog

DAY_S = 86_400
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Standing:
    active: Compressed | None
    is_paused: bool  # somebody took the last one back: nothing happens by itself any more
    automatic: tuple[float, ...]  # when it happened by itself, the newest first


class Standings:
    """On disk; a session that was looked up is remembered, because a look costs as much as a whole request."""

    def __init__(self, log: CompressionLog, now: Callable[[], float]) -> None:
        self._log = log
        self._known: Recent[str, Standing] = Recent(ttl_s=DAY_S, max_entries=REMEMBERED, max_bytes=REMEMBERED, now=now)

    async def of(self, session: str) -> Standing:
        """StoreUnavailable if nobody can tell."""
        known = self._known.get(session)
        if known is None:
            known = _standing(await self._log.newest(session))
            self._known.put(session, known, 1)
        return known

    def forget(self, session: str | None = None) -> None:
        """One of them, or all: the next look is at the disk."""
        if session is None:
            self._known.clear()
        else:
            self._known.forget(session)


def _standing(rows: Sequence[Compressed]) -> Standing:
    live = [one for one in rows if one.undone is None]
    is_paused = bool(rows) and rows[0].undone is not None
    return Standing(live[0] if live else None, is_paused, tuple(one.at for one in live if one.is_automatic))

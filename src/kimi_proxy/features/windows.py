"""How full the windows of the sessions are that we have met."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from kimi_proxy.features import metering
from kimi_proxy.features.metering import Metric

MAX_SESSIONS = 10_000  # remembered; who talked last stays


@dataclass(frozen=True, slots=True)
class _Level:
    name: str
    counted_by: str


_NEW = _Level("ok", "estimate")


class Windows:
    def __init__(self) -> None:
        self._levels: OrderedDict[str, _Level] = OrderedDict()
        self._sunk: set[str] = set()  # those whose instructions are buried

    def __contains__(self, session: str) -> bool:
        return session in self._levels

    def meet(self, sessions: Iterable[str]) -> None:
        for session in sessions:
            if session not in self._levels:
                self._remember(session, _NEW)

    def sinks(self, session: str, is_sunk: bool) -> bool:
        """Whether the instructions of a session have just been buried."""
        was_sunk = session in self._sunk
        if is_sunk:
            self._sunk.add(session)
        else:
            self._sunk.discard(session)
        return is_sunk and not was_sunk

    def forget(self, session: str | None = None) -> None:
        """One of them, or all."""
        if session is None:
            self._levels.clear()
            self._sunk.clear()
        else:
            self._levels.pop(session, None)
            self._sunk.discard(session)

    def rise(self, metric: Metric) -> str | None:
        """The level that a request has brought its session to, if it is worse than before."""
        before = self._levels.get(metric.session, _NEW)
        now = _Level(metering.level(metric.percent), metric.counted_by)
        is_worse = metering.is_worse(now.name, before.name)
        # Estimates and counts differ: going from one to the other must not look like a way back.
        if is_worse or (now.counted_by, before.counted_by) != ("estimate", "provider"):
            self._remember(metric.session, now)
        return now.name if is_worse else None

    def _remember(self, session: str, level: _Level) -> None:
        self._levels[session] = level
        self._levels.move_to_end(session)
        if len(self._levels) > MAX_SESSIONS:
            gone, _ = self._levels.popitem(last=False)
            self._sunk.discard(gone)

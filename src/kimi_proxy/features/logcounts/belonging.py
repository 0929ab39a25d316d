"""Which conversation of ours a count in somebody's log is about."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from kimi_proxy.features.logcounts.count import LogCount, is_fresh
from kimi_proxy.features.metering import Metric
from kimi_proxy.features.sessions import named

Value = TypeVar("Value")

MAX_SESSIONS = 1_000  # remembered; who talked last stays
LATELY_S = 30.0  # who has not talked since is not meant by a log that names nobody


@dataclass(frozen=True, slots=True)
class Seen:
    """A count, and when it came."""

    count: LogCount
    at: float


class Belonging:
    """A log that names a conversation means that one. One that names none means the only one that talks, if any."""

    def __init__(self) -> None:
        self._talked: OrderedDict[str, float] = OrderedDict()
        self._names: OrderedDict[str, str] = OrderedDict()  # what an agent calls a conversation → our session
        self._counts: OrderedDict[str, Seen] = OrderedDict()

    def talked(self, session: str, at: float, name: str = "") -> None:
        _put(self._talked, session, at)
        if name:
            _put(self._names, name, session)

    def take(self, count: LogCount, at: float) -> str | None:
        """The session that `count` is about; None if nobody can tell."""
        session = self._session(count, at)
        if session is not None:
            _put(self._counts, session, Seen(count, at))
        return session

    def beats(self, newest: Metric | None, session: str, now: float) -> LogCount | None:
        """The log's count of a session, where it is worth more than our own."""
        seen = self._counts.get(session)
        if seen is None or not is_fresh(seen.at, now):
            return None
        is_newer = newest is None or seen.at >= newest.at + (newest.duration_ms or 0) / 1000
        return seen.count if is_newer else None

    def _session(self, count: LogCount, at: float) -> str | None:
        if count.conversation:
            known = self._names.get(count.conversation) or named(count.conversation).id
            return known if known in self._talked else None
        lately = [session for session, when in self._talked.items() if at - when <= LATELY_S]
        return lately[0] if len(lately) == 1 else None


def _put(kept: OrderedDict[str, Value], key: str, value: Value) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > MAX_SESSIONS:
        kept.popitem(last=False)

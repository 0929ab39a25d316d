"""What we put at the beginning of a session's requests, and when that changes."""

from collections import OrderedDict

MAX_SESSIONS = 10_000  # remembered; who talked last stays


class Prefixes:
    """A provider's cache knows a beginning, and a model; whenever we change either, it has to read anew."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()

    def changes(self, session: str, prefix: str) -> bool:
        """Whether a session's requests begin otherwise than before; of one that nobody knows, nobody can tell."""
        before = self._known.pop(session, prefix)
        self._known[session] = prefix
        if len(self._known) > MAX_SESSIONS:
            self._known.popitem(last=False)
        return before != prefix

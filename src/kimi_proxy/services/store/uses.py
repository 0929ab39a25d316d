"""Which originals were used since the last commit: written lazily, so that a read costs no fsync."""

import threading
from collections.abc import Mapping

from kimi_proxy.services.store.records import Handle


class Uses:
    """Touched by readers, emptied by the writer."""

    def __init__(self) -> None:
        self._last: dict[Handle, float] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._last)

    def add(self, handle: Handle, when: float) -> None:
        with self._lock:
            self._last[handle] = max(when, self._last.get(handle, when))

    def last(self, handle: Handle, written: float) -> float:
        """The last use of an original whose last written use was `written`."""
        with self._lock:
            return max(written, self._last.get(handle, written))

    def pending(self) -> dict[Handle, float]:
        with self._lock:
            return dict(self._last)

    def written(self, uses: Mapping[Handle, float]) -> None:
        """Forget those of `uses` that nobody has renewed since."""
        with self._lock:
            for handle, when in uses.items():
                if self._last.get(handle) == when:
                    del self._last[handle]

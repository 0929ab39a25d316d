"""The messages of recent requests: those of a conversation begin its next request, and need not be read again."""

import threading
from collections.abc import Callable, Sequence

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.chat.read import Content

MAX_MESSAGES = 20_000
MAX_BYTES = 24 * 1024**2  # of messages with their decoded text
OVERHEAD_BYTES = 1_500  # of a message as Python objects, with what is derived from it

Key = tuple[str, bytes]  # the API, and the bytes of the message


class RememberedMessages:
    """What messages say, by their bytes; in memory only, because it is people's text."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._known: LruCache[Key, Content] = LruCache(MAX_MESSAGES, max_bytes=max_bytes)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()  # long requests are read in threads

    def contents(self, keys: Sequence[Key], read: Callable[[int], Content]) -> list[Content]:
        """Return what each message says; `read` reads the one at a place if it is not remembered."""
        with self._lock:
            known = [self._known.get(key) for key in keys]
        found = [content or read(place) for place, content in enumerate(known)]
        if sum(len(data) for _, data in keys) > self._max_bytes // 4:
            return found  # of such requests the next one would find nothing
        with self._lock:
            for key, content, old in zip(keys, found, known, strict=True):
                if old is None:
                    self._known.put(key, content, 2 * len(key[1]) + OVERHEAD_BYTES)
        return found

    def forget(self) -> None:
        """Forget all of them: whose they are is not known, and they can be read again."""
        with self._lock:
            self._known.forget_matching(lambda key: True)

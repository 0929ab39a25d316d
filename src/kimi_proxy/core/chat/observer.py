"""Looks on while an answer passes by, and stops looking before that takes too much room."""

import zlib
from collections.abc import Callable

from kimi_proxy.core.chat import seen
from kimi_proxy.core.chat.seen import Seen
from kimi_proxy.core.chat.wire import Wire
from kimi_proxy.core.sse import Events

MAX_BYTES = 16 * 1024**2

_PLAIN = ("", "identity")
_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class Observer:
    """Fed the bytes of an answer in slices of any size; `seen` is what is known so far."""

    def __init__(self, wire: Wire, is_stream: bool, encoding: str = "", max_bytes: int = MAX_BYTES) -> None:
        self._wire = wire
        self._events = Events() if is_stream else None
        self._body = bytearray()
        self._max_bytes = max_bytes
        self._is_blind = encoding not in _PLAIN and encoding not in _WINDOWS
        self._plain = _inflate(_WINDOWS[encoding], max_bytes) if encoding in _WINDOWS else _as_it_is
        self._seen = Seen()

    def feed(self, piece: bytes) -> None:
        if self._is_blind:
            return
        try:
            self._is_blind = self._look(self._plain(piece)) > self._max_bytes
        except zlib.error:  # it says gzip, and is not
            self._is_blind = True

    @property
    def seen(self) -> Seen:
        if self._events is None and not self._is_blind:
            return seen.of_body(self._wire, bytes(self._body))
        return self._seen

    def _look(self, plain: bytes) -> int:
        """Take in some more; gives how much waits to be understood."""
        if self._events is None:
            self._body += plain
            return len(self._body)
        for event in self._events.feed(plain):
            if event.data:
                self._seen = seen.after_event(self._wire, self._seen, event.data)
        return self._events.waiting_bytes


def _as_it_is(piece: bytes) -> bytes:
    return piece


def _inflate(window: int, max_bytes: int) -> Callable[[bytes], bytes]:
    inflater = zlib.decompressobj(window)

    def plain(piece: bytes) -> bytes:
        inflated = inflater.decompress(piece, max_bytes)
        if inflater.unconsumed_tail:
            raise zlib.error("a little that becomes a lot")
        return inflated

    return plain

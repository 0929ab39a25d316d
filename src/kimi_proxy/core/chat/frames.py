"""A stream of events, cut only where one ends: what breaks off inside of an event can be followed by another."""

import re

from kimi_proxy.core.chat.seen import is_usage_alone
from kimi_proxy.core.sse import Events

# A longer event passes in pieces; it may be an image, and it is no usage.
MAX_HELD_BYTES = 64 * 1024

_BLANK = (b"\n\n", b"\n\r", b"\r\r")  # how the end of a line and an empty line may begin
_BETWEEN = re.compile(rb"(?:(?::[^\r\n]*)?(?:\r\n|\n|\r))*")  # comments and empty lines belong to no event
_FRAME = re.compile(rb".+?(?:\n\n|\n\r\n?|\r\r\n?|\Z)", re.DOTALL)
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')


class Frames:
    """Fed slices of any size; gives what may be sent on, and holds what is not whole yet."""

    def __init__(self, hides_usage: bool = False) -> None:
        self._hides_usage = hides_usage
        self._held: list[bytes] = []
        self._size = 0
        self._torn = b""  # the last bytes of an event that was sent in part

    def feed(self, piece: bytes) -> bytes:
        if self._torn:
            return self._rest_of_torn(piece)
        self._held.append(piece)
        self._size += len(piece)
        if b"\n" not in piece and b"\r" not in piece:
            return self._tear() if self._size > MAX_HELD_BYTES else b""
        held = b"".join(self._held)
        cut = _end_of_events(held)
        self._held, self._size = [held[cut:]], len(held) - cut
        torn = self._tear() if self._size > MAX_HELD_BYTES else b""
        return self._shown(held[:cut]) + torn

    def end(self) -> bytes:
        """What is held when the stream ends as it should."""
        return self._shown(b"".join(self._held))

    def followed_by(self, event: bytes) -> bytes:
        """An event of ours after the stream broke off."""
        return b"\n\n" + event if self._torn else event

    def _tear(self) -> bytes:
        sent = b"".join(self._held)
        self._held, self._size, self._torn = [], 0, sent[-2:]
        return sent

    def _rest_of_torn(self, piece: bytes) -> bytes:
        seam = len(self._torn)
        cut = _first_end(self._torn + piece) - seam
        if cut < 0:
            self._torn = (self._torn + piece)[-2:]
            return piece
        self._torn = b""
        return piece[:cut] + self.feed(piece[cut:])

    def _shown(self, whole: bytes) -> bytes:
        if not self._hides_usage or not _NO_CHOICES.search(whole):
            return whole
        return b"".join(frame for frame in _FRAME.findall(whole) if not _is_usage(frame))


def _end_of_events(held: bytes) -> int:
    """Where the last whole event ends, with the comments that follow it."""
    last = max(held.rfind(blank) for blank in _BLANK)
    found = _BETWEEN.match(held, 0 if last < 0 else last + 2)
    return found.end() if found else 0


def _first_end(held: bytes) -> int:
    """Where the first event ends; -1 if none does."""
    places = [at for at in map(held.find, _BLANK) if at >= 0]
    return min(places) + 2 if places else -1


def _is_usage(frame: bytes) -> bool:
    return any(is_usage_alone(event.data) for event in Events().feed(frame + b"\n\n"))

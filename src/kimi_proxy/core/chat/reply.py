"""A response in transit: the boundaries of its events, and the facts in them."""

import re
import zlib
from collections.abc import Callable, Iterator

from kimi_proxy.core.chat.wires import Wire
from kimi_proxy.core.chat.wires.protocol import ReplyFacts, Usage
from kimi_proxy.core.sse import SseParser

__all__ = ["MAX_BYTES", "MAX_HELD_BYTES", "EventBuffer", "EventSplitter", "ReplyFacts", "ReplyReader", "Usage"]

MAX_HELD_BYTES = 64 * 1024  # a longer event passes in pieces; it may be an image, and it is no usage
MAX_BYTES = 16 * 1024**2  # an answer, or an event, that is longer is not read to its end

# The end of a line and an empty line. A CR at the end of a slice waits for a possible LF.
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n|\Z))(?:\r\n|\n|\r(?!\Z))")
_BLANK = (b"\n\n", b"\n\r", b"\r\r")  # how the end of a line and an empty line may begin
_BETWEEN = re.compile(rb"(?:(?::[^\r\n]*)?(?:\r\n|\n|\r))*")  # comments and empty lines belong to no event
_PLAIN = ("", "identity")
INFLATED_MAX_BYTES = 4 * 1024**2  # of one piece: about 10 ms
_ZLIB_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class EventSplitter:
    """Is fed slices of any size; returns the bytes of each event once it is complete."""

    def __init__(self) -> None:
        self._held = bytearray()

    @property
    def waiting_bytes(self) -> int:
        return len(self._held)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self._held += piece
        at = 0
        # An end that was looked for before may begin at most three bytes before the piece.
        look = max(0, len(self._held) - len(piece) - 3)
        while found := _END.search(self._held, max(at, look)):
            yield bytes(self._held[at : found.end()])
            at = found.end()
        del self._held[:at]

    def rest(self) -> bytes:
        """Return the remainder when the stream ends."""
        rest = bytes(self._held)
        self._held.clear()
        return rest


class EventBuffer:
    """Accepts slices of any size; returns the parts that may be sent on, and buffers incomplete ones.

    `shown` returns the client's view of complete events.
    """

    def __init__(self, shown: Callable[[bytes], bytes] = bytes) -> None:
        self._shown = shown
        self._held: list[bytes] = []
        self._size = 0
        self._torn = b""  # the last bytes of an event that was sent in part

    def feed(self, piece: bytes) -> bytes:
        if self._torn:
            return self._rest_of_torn(piece)
        if not self._size and piece[-2:] == b"\n\n":  # whole events, as most pieces are
            return self._shown(piece)
        self._held.append(piece)
        self._size += len(piece)
        if b"\n" not in piece and b"\r" not in piece:
            return self._tear() if self._size > MAX_HELD_BYTES else b""
        held = b"".join(self._held)
        cut = _end_of_events(held)
        self._held = [held[cut:]]
        self._size = len(held) - cut
        torn = self._tear() if self._size > MAX_HELD_BYTES else b""
        return self._shown(held[:cut]) + torn

    def end(self) -> bytes:
        """Return the buffered rest when the stream ends normally."""
        return self._shown(b"".join(self._held))

    def followed_by(self, event: bytes) -> bytes:
        """Return one of our events, to be sent after the stream broke off."""
        return b"\n\n" + event if self._torn else event

    def _tear(self) -> bytes:
        sent = b"".join(self._held)
        self._held = []
        self._size = 0
        self._torn = sent[-2:]
        return sent

    def _rest_of_torn(self, piece: bytes) -> bytes:
        seam = len(self._torn)
        cut = _first_end(self._torn + piece) - seam
        if cut < 0:
            self._torn = (self._torn + piece)[-2:]
            return piece
        self._torn = b""
        return piece[:cut] + self.feed(piece[cut:])


class ReplyReader:
    """Receives the bytes of a response in slices of any size; `facts` are those known so far."""

    def __init__(self, wire: Wire, is_stream: bool, encoding: str = "", max_bytes: int = MAX_BYTES) -> None:
        self._format = wire.format
        self._events = SseParser() if is_stream else None
        self._body = bytearray()
        self._max_bytes = max_bytes
        self._gave_up = encoding not in _PLAIN and encoding not in _ZLIB_WINDOWS
        self._inflater = zlib.decompressobj(_ZLIB_WINDOWS[encoding]) if encoding in _ZLIB_WINDOWS else None
        self._facts = ReplyFacts()
        self.events = 0  # with data, so far; in a stream of text about one a token

    def feed(self, piece: bytes) -> None:
        if self._gave_up:
            return
        try:
            plain = piece if self._inflater is None else self._inflate(piece, self._inflater)
        except zlib.error:  # its header claims gzip, but it is not
            self._gave_up = True
        else:
            self._gave_up = self._read(plain) > self._max_bytes

    @property
    def facts(self) -> ReplyFacts:
        if self._events is None and not self._gave_up:
            return self._format.facts_of(bytes(self._body))
        return self._facts

    def _read(self, plain: bytes) -> int:
        """Return how many bytes wait to be understood after these."""
        if self._events is None:
            self._body += plain
            return len(self._body)
        for event in self._events.feed(plain):
            if event.data:
                self.events += 1
                self._facts = self._format.facts_after(self._facts, event.data)
        return self._events.waiting_bytes

    def _inflate(self, piece: bytes, inflater: "zlib._Decompress") -> bytes:
        inflated = inflater.decompress(piece, min(self._max_bytes, INFLATED_MAX_BYTES))
        if inflater.unconsumed_tail:
            raise zlib.error("decompressed size exceeds the limit")
        return inflated


def _end_of_events(held: bytes) -> int:
    """Return where the last complete event ends, with the comments that follow it."""
    last = max(held.rfind(blank) for blank in _BLANK)
    found = _BETWEEN.match(held, 0 if last < 0 else last + 2)
    return found.end() if found else 0


def _first_end(held: bytes) -> int:
    """Return where the first event ends; -1 if none does."""
    places = [at for at in map(held.find, _BLANK) if at >= 0]
    return min(places) + 2 if places else -1

"""Server-sent events, read from slices of any size."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SseEvent:
    data: bytes
    name: str = ""
    id: str | None = None
    retry_ms: int | None = None


class SseParser:
    """Feed it slices, get events; it buffers incomplete ones. Only CR and LF end a line, not U+2028."""

    _data: list[bytes]
    _name: str
    _id: str | None
    _retry_ms: int | None

    def __init__(self) -> None:
        self._partial: list[bytes] = []  # of a line that has not ended
        self._partial_bytes = 0
        self._after_cr = False
        self._started = False
        self._clear()

    @property
    def waiting_bytes(self) -> int:
        """Return the size of the buffered part of an incomplete event."""
        return self._read_bytes + self._partial_bytes

    def feed(self, piece: bytes) -> Iterable[SseEvent]:
        """Return the events that `piece` completes."""
        return (SseEvent(piece[6:-2]),) if self._is_one_event(piece) else self._events(piece)

    def _events(self, piece: bytes) -> Iterator[SseEvent]:
        for line in self._lines(piece):
            if line:
                self._read_bytes += len(line)
                self._field(line)
            elif (event := self._take_event()) is not None:
                yield event

    def _is_one_event(self, piece: bytes) -> bool:
        """Return whether `piece` is exactly one event, as most are: then nothing needs to be parsed."""
        return (
            piece[:6] == b"data: "
            and piece[-2:] == b"\n\n"
            and not self._read_bytes
            and not self._partial_bytes
            and self._started
            and not self._after_cr
            and piece.count(b"\n") == 2
            and b"\r" not in piece
        )

    def _lines(self, piece: bytes) -> Iterator[bytes]:
        if self._after_cr and piece.startswith(b"\n"):
            piece = piece[1:]
            self._after_cr = False
        if piece:
            self._after_cr = piece.endswith(b"\r")
        if b"\n" not in piece and b"\r" not in piece:
            self._partial.append(piece)
            self._partial_bytes += len(piece)
            return
        *lines, rest = _LINE_END.split(b"".join((*self._partial, piece)))
        self._partial = [rest]
        self._partial_bytes = len(rest)
        if not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(_BOM)
        yield from lines

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._name = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit():
                self._retry_ms = int(value[:9])

    def _take_event(self) -> SseEvent | None:
        """Return the event that an empty line ends; a name or a comment alone is not one."""
        has_fields = self._data or self._id is not None or self._retry_ms is not None
        event = SseEvent(b"\n".join(self._data), self._name, self._id, self._retry_ms) if has_fields else None
        self._clear()
        return event

    def _clear(self) -> None:
        self._read_bytes = 0
        self._data = []
        self._name = ""
        self._id = None
        self._retry_ms = None

"""A stream of events, taken apart into whole ones with their own bytes."""

import re
from collections.abc import Iterator

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.sse import Event, Events
from kimi_proxy.core.types import JsonObject, JsonValue

# The end of a line and an empty line. What may be half of a CRLF waits for its other half.
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n|\Z))(?:\r\n|\n|\r(?!\Z))")


class WholeEvents:
    """Fed slices of any size; gives the bytes of each event once it is complete."""

    def __init__(self) -> None:
        self._held = b""

    @property
    def waiting_bytes(self) -> int:
        return len(self._held)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self._held += piece
        at = 0
        # An end that was looked for before may begin at most three bytes before the piece.
        look = max(0, len(self._held) - len(piece) - 3)
        while found := _END.search(self._held, max(at, look)):
            yield self._held[at : found.end()]
            at = found.end()
        self._held = self._held[at:]

    def rest(self) -> bytes:
        """What is left when the stream ends."""
        rest, self._held = self._held, b""
        return rest


def event_of(raw: bytes) -> Event | None:
    """The event that these bytes are; None for comments."""
    return next(Events().feed(raw + b"\n\n"), None)


def object_in(event: Event) -> JsonObject | None:
    """The JSON object that an event carries, if it does."""
    try:
        value = jsontext.decode(event.data)
    except ParseError:
        return None
    return dict(value) if isinstance(value, dict) else None


def bytes_of(event: Event, value: JsonValue) -> bytes:
    """The same event with other data."""
    name = f"event: {event.name}\n".encode() if event.name else b""
    return name + b"data: " + jsontext.encode(value) + b"\n\n"

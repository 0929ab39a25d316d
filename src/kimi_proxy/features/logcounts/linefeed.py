"""A file's bytes as they are added, cut into lines within a bound."""

MAX_LINE_BYTES = 64 * 1024


class LineFeed:
    """Holds a line until its end has come; one that is too long is let go, all of it."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._begun = bytearray()
        self._is_skipping = False

    def feed(self, piece: bytes) -> list[str]:
        """The lines that are complete now. What is no UTF-8 is shown as such and hurts nobody."""
        *ended, rest = piece.split(b"\n")
        lines = [line for end in ended if (line := self._ended(end)) is not None]
        self._begin(rest)
        return lines

    def skip_line(self) -> None:
        """The next bytes come from the middle of a line."""
        self._begun.clear()
        self._is_skipping = True

    def restart(self) -> None:
        self._begun.clear()
        self._is_skipping = False

    def _ended(self, end: bytes) -> str | None:
        line = None
        if not self._is_skipping and len(self._begun) + len(end) <= self._max:
            line = (bytes(self._begun) + end).decode("utf-8", "replace").rstrip("\r")
        self.restart()
        return line

    def _begin(self, rest: bytes) -> None:
        if self._is_skipping or len(self._begun) + len(rest) > self._max:
            self.skip_line()
        else:
            self._begun += rest

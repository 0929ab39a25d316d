"""What a command wrote: in memory while it is small, then in a file without a name that only we can read."""

import tempfile

MEMORY_BYTES = 1024 * 1024
TAIL_BYTES = 256 * 1024


class Spool:
    """Keeps the first `max_bytes`, and of what comes after them the end."""

    def __init__(self, max_bytes: int, directory: str | None = None) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES, dir=directory)  # noqa: SIM115 - close() closes it
        self._max_bytes = max_bytes
        self._tail = bytearray()
        self.size = 0  # all that was written
        self.kept = 0  # of it, from the start
        self.full = False

    def write(self, piece: bytes) -> None:
        self.size += len(piece)
        room = 0 if self.full else self._max_bytes - self.kept
        taken = self._take(piece[:room])
        self._tail += piece[taken:]
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def _take(self, piece: bytes) -> int:
        if not piece:
            return 0
        try:
            self._file.write(piece)
        except OSError:  # the disk is full: what is there stays, the rest is counted
            self.full = True
            return 0
        self.kept += len(piece)
        return len(piece)

    @property
    def lost(self) -> int:
        """Bytes between what is kept from the start and what is kept from the end."""
        return self.size - self.kept - min(len(self._tail), TAIL_BYTES)

    def read(self, start: int, size: int) -> bytes:
        """Up to `size` of the bytes kept from the start."""
        self._file.seek(start)
        return self._file.read(min(size, max(0, self.kept - start)))

    def end(self, size: int) -> bytes:
        """The last bytes, at most `size` of them, as far as they are kept."""
        tail = bytes(self._tail[-TAIL_BYTES:])
        if len(tail) >= size or self.lost:
            return tail[-size:] if size else b""
        missing = min(size - len(tail), self.kept)
        return self.read(self.kept - missing, missing) + tail

    def close(self) -> None:
        self._file.close()

"""What a command wrote: in memory while it is small, then in a file without a name that only we can read."""

import tempfile
from io import FileIO

MEMORY_BYTES = 1024 * 1024
TAIL_BYTES = 256 * 1024


class Spool:
    """Keeps the first `max_bytes`, and of what comes after them the end."""

    def __init__(self, max_bytes: int, directory: str | None = None) -> None:
        self._max_bytes = max_bytes
        self._directory = directory
        self._memory = bytearray()
        self._file: FileIO | None = None
        self._tail = bytearray()
        self.size = 0  # all that was written
        self.kept = 0  # of it, from the start
        self.full = False  # the disk would take no more

    def write(self, piece: bytes) -> None:
        self.size += len(piece)
        room = 0 if self.full else self._max_bytes - self.kept
        taken = self._keep(piece[:room]) if room > 0 else 0
        self.kept += taken
        self._tail += piece[taken:]
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    @property
    def lost(self) -> int:
        """Bytes between what is kept from the start and what is kept from the end."""
        return self.size - self.kept - min(len(self._tail), TAIL_BYTES)

    def read(self, start: int, size: int) -> bytes:
        """Up to `size` of the bytes kept from the start."""
        wanted = min(size, max(0, self.kept - start))
        if self._file is None:
            return bytes(self._memory[start : start + wanted])
        self._file.seek(start)
        return self._file.read(wanted)

    def end(self, size: int) -> bytes:
        """The last bytes, at most `size` of them, as far as they are kept."""
        tail = bytes(self._tail[-TAIL_BYTES:])
        if len(tail) >= size or self.lost:
            return tail[len(tail) - min(size, len(tail)) :]
        missing = min(size - len(tail), self.kept)
        return self.read(self.kept - missing, missing) + tail

    def _keep(self, piece: bytes) -> int:
        """How much of `piece` found room."""
        if self._file is None and len(self._memory) + len(piece) <= MEMORY_BYTES:
            self._memory += piece
            return len(piece)
        try:
            self._spill()
            return self._append(piece)
        except OSError:
            self.full = True
            return 0

    def _spill(self) -> None:
        """Move from memory to a file; if that fails, memory keeps what it has."""
        if self._file is not None:
            return
        file = tempfile.TemporaryFile(buffering=0, dir=self._directory)  # noqa: SIM115 - closed on leaving
        try:
            if file.write(self._memory) != len(self._memory):
                raise OSError("no room for the file")
        except OSError:
            file.close()
            raise
        self._file = file
        self._memory.clear()

    def _append(self, piece: bytes) -> int:
        assert self._file is not None  # noqa: S101 - _spill made it
        done = 0
        while done < len(piece):
            try:
                done += self._file.write(memoryview(piece)[done:])
            except OSError:
                self.full = True
                return done
        return done

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *_: object) -> None:
        self.full = True  # a command that was given up may still write for a moment
        if self._file is not None:
            self._file.close()

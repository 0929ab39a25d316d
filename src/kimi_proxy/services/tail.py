"""What is added to a file that belongs to somebody else, who may cut it, replace it or take it away."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from kimi_proxy.features.logcounts.linefeed import LineFeed

READ_AT_ONCE = 1024**2
# Whoever adds more than this between two looks has said too much to hear all of it: the newest is what counts.
SKIP_ABOVE = 8 * 1024**2
KNOWN_BYTES = 64  # before the place where we are, by which a file is known again


class Tail:
    """Lines that are added from now on. A file that appears later is read from its beginning."""

    def __init__(self, path: Path, from_start: bool = False) -> None:
        self._path = path
        self._from_start = from_start
        self._file: int | None = None
        self._at = 0
        self._before = b""
        self._feed = LineFeed()

    def lines(self) -> list[str]:
        """Those that are complete since the last look; OSError is nobody's business but the next look's."""
        lines: list[str] = []
        with suppress(OSError):
            if self._was_replaced():
                lines += self._added()  # what came to the old file before it was moved away
                self.close()
            if self._file is None:
                self._open()
            lines += self._added()
        self._from_start = True  # whatever is there at the second look has come since the first
        return lines

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file, self._at, self._before = None, 0, b""
        self._feed.restart()

    def _open(self) -> None:
        # A pipe or a device would keep us waiting: opened so, it does not, and then it is let go.
        file = os.open(self._path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            os.close(file)
            raise OSError(f"{self._path} is no file")
        self._file = file
        if not self._from_start:
            self._go_to(found.st_size)

    def _was_replaced(self) -> bool:
        if self._file is None:
            return False
        mine = os.fstat(self._file)
        try:
            theirs = self._path.stat()
        except OSError:
            return True
        return (mine.st_dev, mine.st_ino) != (theirs.st_dev, theirs.st_ino)

    def _added(self) -> list[str]:
        if self._file is None:
            return []
        size = os.fstat(self._file).st_size
        if size < self._at or not self._is_as_it_was():
            self._at, self._before = 0, b""
            self._feed.restart()
        if size - self._at > SKIP_ABOVE:
            self._go_to(size - READ_AT_ONCE)
        lines: list[str] = []
        while self._at < size and (piece := self._read(min(READ_AT_ONCE, size - self._at))):
            lines += self._feed.feed(piece)
        return lines

    def _read(self, length: int) -> bytes:
        piece = self._bytes(self._at, length)
        self._at += len(piece)
        self._before = (self._before + piece)[-KNOWN_BYTES:]
        return piece

    def _is_as_it_was(self) -> bool:
        """A file that was cut and has grown again past our place is another one."""
        return self._bytes(self._at - len(self._before), len(self._before)) == self._before

    def _go_to(self, place: int) -> None:
        known = min(KNOWN_BYTES, place)
        self._at, self._before = place, self._bytes(place - known, known)
        self._feed.restart()
        if self._before and not self._before.endswith(b"\n"):
            self._feed.skip_line()

    def _bytes(self, start: int, length: int) -> bytes:
        if self._file is None or length <= 0:
            return b""
        os.lseek(self._file, start, os.SEEK_SET)
        return os.read(self._file, length)

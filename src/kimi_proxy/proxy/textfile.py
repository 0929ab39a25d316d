"""Lines of a text file, found by a scan that holds one block in memory, however large the file is."""

import codecs
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kimi_proxy.core import charset
from kimi_proxy.core.errors import ToolFailed

BLOCK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The lines `first` to `last` of a file."""

    text: str
    first: int
    last: int
    more: bool  # the limit on bytes cut them short
    ended: bool  # the file ends with them
    split: bool = False  # the last of them is longer than the limit, and cut in the middle


def excerpt(fd: int, start: int, end: int | None, max_bytes: int, check: Callable[[], None] = lambda: None) -> Excerpt:
    """Lines `start` to `end` (None: the last), 1-based and inclusive; `check` may raise to stop the scan."""
    first_bytes = head(fd)
    if charset.is_binary(first_bytes):
        raise _binary(fd)
    scan = _Scan(start, end, max_bytes)
    for block in _blocks(fd, charset.wide(first_bytes)):
        check()
        if scan.feed(block):
            break
    return scan.excerpt()


class _Scan:
    """Counts newlines until the first wanted line, then collects until the last."""

    def __init__(self, start: int, end: int | None, max_bytes: int) -> None:
        self._start, self._end, self._max_bytes = start, end, max_bytes
        self._line = 1
        self._taken = bytearray()
        self._more = False
        self._stopped = False

    def feed(self, block: bytes) -> bool:
        """Whether nothing more is wanted after `block`."""
        wanted = self._skip(block)
        if wanted is None:
            return False
        stop = None if self._end is None else _nth_newline(wanted, self._end - self._line + 1)
        self._taken += wanted if stop is None else wanted[:stop]
        self._line += wanted.count(b"\n") if stop is None else wanted.count(b"\n", 0, stop)
        self._more = len(self._taken) > self._max_bytes
        self._stopped = stop is not None or self._more
        return self._stopped

    def _skip(self, block: bytes) -> bytes | None:
        if self._line >= self._start:
            return block
        newlines = block.count(b"\n")
        if self._line + newlines < self._start:
            self._line += newlines
            return None
        cut = _nth_newline(block, self._start - self._line)
        self._line = self._start
        return block[cut + 1 :] if cut is not None else None

    def excerpt(self) -> Excerpt:
        if self._line < self._start:
            raise ToolFailed("invalid_range", f"line {self._start} is past the end: there are {self._line} lines")
        raw, split = bytes(self._taken), False
        if self._more:
            raw, split = _whole_lines(raw, self._max_bytes)
        last = self._start + raw.count(b"\n")
        return Excerpt(charset.decode(raw), self._start, last, self._more, not self._stopped, split)


def _whole_lines(raw: bytes, size: int) -> tuple[bytes, bool]:
    """At most `size` bytes, cut at the end of a line if there is one, and whether there was none."""
    end = raw.rfind(b"\n", 0, size)
    return (raw[:end], False) if end > 0 else (charset.clip(raw, size), True)


def _nth_newline(block: bytes, n: int) -> int | None:
    at = -1
    for _ in range(n):
        at = block.find(b"\n", at + 1)
        if at < 0:
            return None
    return at


def _blocks(fd: int, encoding: str | None) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass") if encoding else None
    while block := os.read(fd, BLOCK_BYTES):
        try:
            yield decoder.decode(block).encode("utf-8", "replace") if decoder else block
        except UnicodeDecodeError as e:  # what looked like a mark of byte order was none
            raise _binary(fd) from e


def _binary(fd: int) -> ToolFailed:
    size = os.fstat(fd).st_size
    return ToolFailed("binary_file", f"a binary file of {size} bytes, not text: it is not shown")


def head(fd: int) -> bytes:
    """The first bytes, which tell a text from what is none."""
    first = os.read(fd, charset.SAMPLE_BYTES)
    os.lseek(fd, 0, os.SEEK_SET)
    return first

"""Files below the allowed roots, opened so that no link, no race and no special file leads elsewhere."""

import codecs
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kimi_proxy.core import lines
from kimi_proxy.core.errors import ToolFailed

# A path is resolved once, then walked without following links. If another process swaps a directory for a
# link in between, the walk fails and the path is resolved again, this many times at most.
ATTEMPTS = 3

# Files in name only: reading them shows processes and kernels, or changes something.
PSEUDO_ROOTS = (Path("/proc"), Path("/sys"))

_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
_GUARDS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# A FIFO would make open() wait for a writer, a terminal would become ours.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_CHANGED = (errno.ELOOP, errno.ENOTDIR)

_REASONS = {
    errno.ENOENT: ("not_found", "does not exist"),
    errno.EACCES: ("permission_denied", "may not be read by this user"),
    errno.EPERM: ("permission_denied", "may not be read by this user"),
    errno.ENOTDIR: ("not_found", "goes through something that is not a directory"),
    errno.ELOOP: ("symlink_loop", "goes round in a loop of symbolic links, or changed while it was opened"),
    errno.ENAMETOOLONG: ("invalid_path", "has a name that is too long"),
}
_KINDS = (
    (stat.S_ISDIR, "is a directory: grep searches directories"),
    (stat.S_ISFIFO, "is a FIFO, not a file"),
    (stat.S_ISSOCK, "is a socket, not a file"),
    (stat.S_ISCHR, "is a device, not a file"),
    (stat.S_ISBLK, "is a device, not a file"),
)

Identity = tuple[int, int]  # a device and an inode: the same file under any name


WIDER = (
    'A server sees the folder in which it was started: to let it see more, the user writes roots = ["/the/folder"] '
    "below [tools] in config.toml, or lets the agent start `kimi-proxy tools --stdio` itself"
)


@dataclass(frozen=True, slots=True)
class Workspace:
    """The files that the tools may see. `cwd`, `roots` and `private` are real paths, as `workspace()` makes them."""

    cwd: Path
    roots: tuple[Path, ...]
    private: tuple[Path, ...] = ()
    denied_names: frozenset[str] = frozenset()
    is_chosen: bool = False  # the settings name the folders; else they are where the server happens to run
    hint: str = ""  # how more is seen, for clients whose own folder is unknown

    @contextmanager
    def open_file(self, path: str) -> Iterator[int]:
        """Yield a descriptor of the regular file at `path`."""
        fd = self._open_path(path)
        try:
            yield fd
        finally:
            os.close(fd)

    def real(self, path: str) -> Path:
        """Return where `path` leads now, if that is below a root. Good for messages and children, not for opening."""
        if not path or "\0" in path:
            raise ToolFailed("invalid_path", "a path must not be empty or contain NUL")
        try:
            real = Path(os.path.realpath(self.cwd / path))
        except UnicodeEncodeError as e:
            raise ToolFailed("invalid_path", f"{path!r:.200} is not a valid file name") from e
        except OSError as e:
            raise self.refusal_of(path, e) from e
        self._allow(path, real)
        return real

    def directory(self, path: str) -> Path:
        """Return the real path of a directory."""
        real = self.real(path)
        try:
            found = real.lstat()
        except OSError as e:
            raise self.refusal_of(path, e) from e
        if not stat.S_ISDIR(found.st_mode):
            raise ToolFailed("not_a_directory", f"{path} is not a directory")
        return real

    def _open_path(self, path: str) -> int:
        for attempt in range(1, ATTEMPTS + 1):
            real = self.real(path)
            try:
                return _open_file(path, real, self._private_identities())
            except OSError as e:
                if e.errno not in _CHANGED or attempt == ATTEMPTS:
                    raise self.refusal_of(path, e) from e
        raise AssertionError("the last attempt returns or raises")

    def refusal_of(self, path: str, e: OSError) -> ToolFailed:
        """Return why `path` cannot be used; an agent in another folder than the server's has to see it."""
        code, what = _REASONS.get(e.errno or 0, ("io_error", f"cannot be read: {e.strerror}"))
        is_relative = code == "not_found" and not Path(path).is_absolute()
        begins = f" in {self.cwd}, where paths begin" if is_relative else ""
        return ToolFailed(code, f"{path} {what}{begins}{f'.{self.hint}' if begins and self.hint else ''}")

    def _allow(self, path: str, real: Path) -> None:
        # Paths are compared part by part: /a/root-evil is not in /a/root.
        if not any(real.is_relative_to(root) for root in self.roots):
            allowed = ", ".join(map(str, self.roots))
            raise ToolFailed("outside_roots", f"{path} is outside the allowed directories ({allowed}). {WIDER}")
        if any(real.is_relative_to(root) for root in PSEUDO_ROOTS):
            raise ToolFailed("not_a_file", f"{path} is a system file, not one of yours")
        if any(real.is_relative_to(place) for place in self.private):
            raise _kept_private(path)
        if denied := self.denied_names.intersection(real.parts):
            raise ToolFailed("denied", f"{path}: {min(denied)} is in tools.denied_names")

    def _private_identities(self) -> frozenset[Identity]:
        """A private place may be spelt in another case, or mounted elsewhere: its inode stays."""
        return frozenset(_identity(place.stat()) for place in self.private if place.exists())


def workspace(
    cwd: Path,
    roots: tuple[str, ...] = (),
    private: tuple[Path, ...] = (),
    denied_names: tuple[str, ...] = (),
    is_chosen: bool = False,
) -> Workspace:
    """Return a workspace whose own paths are followed once, now: they are the user's choice."""
    here = Path(os.path.realpath(cwd))
    real_roots = tuple(Path(os.path.realpath(here / Path(root).expanduser())) for root in roots)
    hidden = tuple(Path(os.path.realpath(place)) for place in private)
    return Workspace(here, real_roots or (here,), hidden, frozenset(denied_names), is_chosen)


def _open_file(path: str, real: Path, private: frozenset[Identity]) -> int:
    if os.open not in os.supports_dir_fd:
        return _open_checked(path, real)
    parent = _walk(path, real.parent, private)
    try:
        found = os.stat(real.name or ".", dir_fd=parent, follow_symlinks=False)
        _must_be_regular(path, found)
        fd = os.open(real.name, _READ | _GUARDS, dir_fd=parent)
    finally:
        os.close(parent)
    return _check_regular(path, fd)


def _walk(path: str, directory: Path, private: frozenset[Identity]) -> int:
    """Return a descriptor of `directory`, reached from `/` through real directories alone."""
    fd = os.open(directory.anchor, _DIRECTORY | _GUARDS)
    for name in directory.parts[1:]:
        try:
            below = os.open(name, _DIRECTORY | _GUARDS, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
        if _identity(os.fstat(fd)) in private:
            os.close(fd)
            raise _kept_private(path)
    return fd


def _open_checked(path: str, real: Path) -> int:
    """Without directory descriptors, ask the opened file for its own path."""
    _must_be_regular(path, real.lstat())
    fd = os.open(real, _READ)
    if os.path.normcase(_place(fd, real)) != os.path.normcase(real):
        os.close(fd)
        raise ToolFailed("symlink_loop", f"{path} changed while it was being opened")
    return _check_regular(path, fd)


if sys.platform == "win32":

    def _place(fd: int, real: Path) -> str:
        import ctypes
        import msvcrt

        buffer = ctypes.create_unicode_buffer(32_768)
        ctypes.windll.kernel32.GetFinalPathNameByHandleW(msvcrt.get_osfhandle(fd), buffer, 32_768, 0)
        return buffer.value.removeprefix("\\\\?\\")

else:

    def _place(fd: int, real: Path) -> str:
        same = _identity(os.fstat(fd)) == _identity(real.lstat())
        return os.path.realpath(real) if same else ""


def _check_regular(path: str, fd: int) -> int:
    try:
        _must_be_regular(path, os.fstat(fd))
    except ToolFailed:
        os.close(fd)
        raise
    return fd


def _must_be_regular(path: str, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "a link where there was none")
    if not stat.S_ISREG(found.st_mode):
        what = next((what for is_kind, what in _KINDS if is_kind(found.st_mode)), "is not a file")
        raise ToolFailed("not_a_file", f"{path} {what}")


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def _kept_private(path: str) -> ToolFailed:
    return ToolFailed("denied", f"{path}: kimi-proxy stores its own state there")


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
    if lines.is_binary(first_bytes):
        raise _binary(fd)
    scan = _Scan(start, end, max_bytes)
    for block in _blocks(fd, lines.wide_encoding(first_bytes)):
        check()
        if scan.feed(block):
            break
    return scan.excerpt()


class _Scan:
    """Counts newlines until the first wanted line, then collects until the last."""

    def __init__(self, start: int, end: int | None, max_bytes: int) -> None:
        self._start = start
        self._end = end
        self._max_bytes = max_bytes
        self._line = 1
        self._taken = bytearray()
        self._more = False
        self._stopped = False

    def feed(self, block: bytes) -> bool:
        """Return whether nothing more is wanted after `block`."""
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
            raise ToolFailed("invalid_range", f"line {self._start} is past the end: the file has {self._line} lines")
        raw = bytes(self._taken)
        split = False
        if self._more:
            raw, split = _whole_lines(raw, self._max_bytes)
        last = self._start + raw.count(b"\n")
        return Excerpt(lines.decode(raw), self._start, last, self._more, not self._stopped, split)


def _whole_lines(raw: bytes, size: int) -> tuple[bytes, bool]:
    """Return at most `size` bytes, cut at the end of a line if there is one, and whether there was none."""
    end = raw.rfind(b"\n", 0, size)
    return (raw[:end], False) if end > 0 else (lines.clip_utf8(raw, size), True)


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
    return ToolFailed("binary_file", f"a binary file of {size} bytes; only text is shown")


def head(fd: int) -> bytes:
    """Return the first bytes, by which a binary file is recognised."""
    first = os.read(fd, lines.SAMPLE_BYTES)
    os.lseek(fd, 0, os.SEEK_SET)
    return first


MEMORY_BYTES = 1024 * 1024
TAIL_BYTES = 256 * 1024


class Spool:
    """Keeps the first `max_bytes` of an output, and the end of the rest."""

    def __init__(self, max_bytes: int, directory: str | None = None) -> None:
        self._max_bytes = max_bytes
        self._directory = directory
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
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
        """Bytes lost between the kept start and the kept end."""
        return self.size - self.kept - min(len(self._tail), TAIL_BYTES)

    def read(self, start: int, size: int) -> bytes:
        """Return up to `size` of the bytes kept from the start."""
        wanted = min(size, max(0, self.kept - start))
        if self._file is None:
            return bytes(self._memory[start : start + wanted])
        self._file.seek(start)
        return self._file.read(wanted)

    def end(self, size: int) -> bytes:
        """Return the last bytes, at most `size`, as far as they were kept."""
        tail = bytes(self._tail[-TAIL_BYTES:])
        if len(tail) >= size or self.lost:
            return tail[len(tail) - min(size, len(tail)) :]
        missing = min(size - len(tail), self.kept)
        return self.read(self.kept - missing, missing) + tail

    def _keep(self, piece: bytes) -> int:
        """Return how many bytes of `piece` found room."""
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
        """Move from memory to a file; if that fails, keep the data in memory."""
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
        self.full = True  # a command that was ended may still write for a moment
        if self._file is not None:
            self._file.close()

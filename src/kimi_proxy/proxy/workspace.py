"""Files below the allowed roots, opened so that no link, no race and no special file leads elsewhere."""

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kimi_proxy.core.errors import ToolFailed

# A path is resolved once, then walked without following links. If somebody swaps a directory for a
# link in between, the walk fails and the path is resolved again, this many times at most.
ATTEMPTS = 3

# Files in name only: reading them tells about processes and kernels, or changes something.
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


@dataclass(frozen=True, slots=True)
class Workspace:
    """What the tools may see. `cwd`, `roots` and `private` are real paths, as `workspace()` makes them."""

    cwd: Path
    roots: tuple[Path, ...]
    private: tuple[Path, ...] = ()
    denied_names: frozenset[str] = frozenset()

    @contextmanager
    def opened(self, path: str) -> Iterator[int]:
        """A descriptor of the regular file at `path`."""
        fd = self._opened(path)
        try:
            yield fd
        finally:
            os.close(fd)

    def real(self, path: str) -> Path:
        """Where `path` leads now, if that is below a root. Good for messages and children, not for opening."""
        if not path or "\0" in path:
            raise ToolFailed("invalid_path", "a path needs at least one character, and no NUL")
        try:
            real = Path(os.path.realpath(self.cwd / path))
        except UnicodeEncodeError as e:
            raise ToolFailed("invalid_path", f"{path!r:.200} cannot be the name of a file") from e
        except OSError as e:
            raise _refused(path, e) from e
        self._allow(path, real)
        return real

    def directory(self, path: str) -> Path:
        """The real path of a directory."""
        real = self.real(path)
        try:
            found = real.lstat()
        except OSError as e:
            raise _refused(path, e) from e
        if not stat.S_ISDIR(found.st_mode):
            raise ToolFailed("not_a_directory", f"{path} is not a directory")
        return real

    def _opened(self, path: str) -> int:
        for attempt in range(1, ATTEMPTS + 1):
            real = self.real(path)
            try:
                return _open_file(path, real, self._private_identities())
            except OSError as e:
                if e.errno not in _CHANGED or attempt == ATTEMPTS:
                    raise _refused(path, e) from e
        raise AssertionError("the last attempt returns or raises")

    def _allow(self, path: str, real: Path) -> None:
        # Paths are compared part by part: /a/root-evil is not in /a/root.
        if not any(real.is_relative_to(root) for root in self.roots):
            allowed = ", ".join(map(str, self.roots))
            raise ToolFailed("outside_roots", f"{path} is outside the allowed directories ({allowed})")
        if any(real.is_relative_to(root) for root in PSEUDO_ROOTS):
            raise ToolFailed("not_a_file", f"{path} belongs to the system, it is not a file of yours")
        if any(real.is_relative_to(place) for place in self.private):
            raise _kept_private(path)
        if denied := self.denied_names.intersection(real.parts):
            raise ToolFailed("denied", f"{path}: {min(denied)} is on the list tools.denied_names")

    def _private_identities(self) -> frozenset[Identity]:
        """A private place may be spelt in another case, or mounted elsewhere: its inode stays."""
        return frozenset(_identity(place.stat()) for place in self.private if place.exists())


def workspace(
    cwd: Path, roots: tuple[str, ...] = (), private: tuple[Path, ...] = (), denied_names: tuple[str, ...] = ()
) -> Workspace:
    """A workspace whose own paths are followed once, now: they are the user's choice."""
    here = Path(os.path.realpath(cwd))
    real_roots = tuple(Path(os.path.realpath(here / Path(root).expanduser())) for root in roots)
    hidden = tuple(Path(os.path.realpath(place)) for place in private)
    return Workspace(here, real_roots or (here,), hidden, frozenset(denied_names))


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
    return _checked(path, fd)


def _walk(path: str, directory: Path, private: frozenset[Identity]) -> int:
    """A descriptor of `directory`, reached from `/` through real directories alone."""
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
    """Without directory descriptors, the opened file itself is asked where it is."""
    _must_be_regular(path, real.lstat())
    fd = os.open(real, _READ)
    if os.path.normcase(_place(fd, real)) != os.path.normcase(real):
        os.close(fd)
        raise ToolFailed("symlink_loop", f"{path} changed while it was opened")
    return _checked(path, fd)


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


def _checked(path: str, fd: int) -> int:
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
    return ToolFailed("denied", f"{path}: kimi-proxy keeps its own state there")


def _refused(path: str, e: OSError) -> ToolFailed:
    code, what = _REASONS.get(e.errno or 0, ("io_error", f"cannot be read: {e.strerror}"))
    return ToolFailed(code, f"{path} {what}")

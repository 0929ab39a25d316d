"""Files that only their user can read, and files of other programs that are replaced as a whole or not at all."""

import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kimi_proxy.core.errors import FileRefused

if sys.platform == "win32":
    from kimi_proxy.proxy import windows

DIRECTORY = 0o700
FILE = 0o600
LOCK_WAIT_S = 3.0
TEMPORARY = ".kimi-proxy-"
FORGOTTEN_S = 60.0
STALE_S = 10.0  # after this time other programs, too, take a lock for forgotten

# Which file a path led to: device and inode. While a process holds it open, no other file can have the same pair.
Identity = tuple[int, int]

MAX_READ_BYTES = 16 * 1024**2  # of a settings file; a longer one is a mistake, and takes minutes to parse


def private_file(path: Path) -> Identity:
    """Create `path` if it is missing, take all rights from other users, and return which file it is."""
    if not path.parent.exists():
        for missing in missing_directories(path):
            missing.mkdir(DIRECTORY, exist_ok=True)
            missing.chmod(DIRECTORY)
            sync_directory(missing.parent)
        if sys.platform == "win32":  # modes say nothing there
            windows.restrict(path.parent)
    elif stat.S_IMODE(path.parent.stat().st_mode) != DIRECTORY:
        path.parent.chmod(DIRECTORY)
    try:
        found = path.stat()
    except FileNotFoundError:
        _create(path)
        found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise IsADirectoryError(f"{path} is not a file")
    if stat.S_IMODE(found.st_mode) != FILE:
        path.chmod(FILE)
    return found.st_dev, found.st_ino


def identity(path: Path) -> Identity | None:
    """Return which file `path` leads to; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def sync_directory(directory: Path) -> None:
    """Make names durable: a file that was just created or renamed is found again after a power cut."""
    if os.name == "nt":  # directories can't be opened there, and need not be
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _create(path: Path) -> None:
    # With O_EXCL we never open a file that SQLite may have open in this process:
    # closing any handle to it would drop SQLite's POSIX locks.
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE)
    except FileExistsError:
        return
    os.close(handle)
    path.chmod(FILE)
    sync_directory(path.parent)


def resolve(path: Path) -> Path:
    """Return a path with its links followed; raise FileRefused if they lead in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as e:
        raise FileRefused(f"{path} cannot be found, because its links lead in a circle: remove one of them") from e


def read(path: Path) -> bytes | None:
    """Return the file's contents, None if it does not exist; raise FileRefused if it cannot be read, or is too long."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise FileRefused(f"{path} is not a file")
        if found.st_size > MAX_READ_BYTES:
            raise FileRefused(f"{path} has {found.st_size} bytes: a settings file has at most {MAX_READ_BYTES}")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as e:
        raise FileRefused(f"{path} cannot be read: {e.strerror}") from e


def missing_directories(path: Path) -> list[Path]:
    """Return those that have to be made for `path`, the outermost first."""
    return [each for each in path.parents if not each.exists()][::-1]


def replace(path: Path, content: bytes, new_mode: int = 0o644) -> None:
    """Write `content` to `path` with its mode and owner, through symbolic links; raise FileRefused if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        found = path.stat() if path.exists() else None
        if found is not None:
            _refuse_unsafe(path, found)
        _remove_forgotten(path.parent)
        handle, name = tempfile.mkstemp(prefix=TEMPORARY, suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                _set_mode(file.fileno(), found, new_mode)
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_directory(path.parent)
    except OSError as e:
        raise FileRefused(f"{path} cannot be written: {e.strerror}") from e


def _remove_forgotten(directory: Path) -> None:
    """Remove temporary files of a process that was killed during a write."""
    for left in directory.glob(f"{TEMPORARY}*.tmp"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > FORGOTTEN_S:
                left.unlink()


def remove(path: Path, made: Sequence[Path]) -> None:
    """Remove a file, and the directories that were made for it if they are empty."""
    try:
        path.unlink(missing_ok=True)
    except OSError as e:
        raise FileRefused(f"{path} cannot be removed: {e.strerror}") from e
    with suppress(OSError):
        for directory in reversed(made):
            directory.rmdir()


@contextmanager
def hold_lock(lock: Path | None) -> Iterator[None]:
    """Hold a lock that is a directory, as Claude Code does while it writes its own file; FileRefused after 3 s."""
    if lock is None or not lock.parent.is_dir():
        yield
        return
    deadline = time.monotonic() + LOCK_WAIT_S
    while not _take(lock):
        if time.monotonic() > deadline:
            raise FileRefused(f"{lock} is locked by another program: try again")
        time.sleep(0.05)
    try:
        yield
    finally:
        with suppress(OSError):
            lock.rmdir()


def _take(lock: Path) -> bool:
    try:
        lock.mkdir()
    except FileExistsError:
        with suppress(OSError):
            if time.time() - lock.stat().st_mtime > STALE_S:
                lock.rmdir()
        return False
    except OSError as e:
        raise FileRefused(f"{lock} cannot be created: {e.strerror}") from e
    return True


def _refuse_unsafe(path: Path, found: os.stat_result) -> None:
    if found.st_nlink > 1:
        raise FileRefused(f"{path} has hard links that would keep the old text: edit it by hand")
    if not os.access(path, os.W_OK):
        raise FileRefused(f"{path} is not writable")


def _set_mode(handle: int, found: os.stat_result | None, new_mode: int) -> None:
    if sys.platform == "win32":  # the access list is inherited from the folder
        return
    if found is None:
        umask = os.umask(0)
        os.umask(umask)
        os.fchmod(handle, new_mode & ~umask)
        return
    if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(handle, found.st_uid, found.st_gid)
    os.fchmod(handle, stat.S_IMODE(found.st_mode))

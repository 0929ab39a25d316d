"""A file is replaced as a whole or not at all: same mode, same owner, through its symbolic links."""

import os
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.services.store.private import sync_directory

LOCK_WAIT_S = 3.0
STALE_S = 10.0  # after which whoever locks this way takes a lock for forgotten


def read(path: Path) -> bytes | None:
    """What the file holds; None if there is none."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileRefused(f"{path} is not a file")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as e:
        raise FileRefused(f"{path} cannot be read: {e.strerror}") from e


def missing_directories(path: Path) -> list[Path]:
    """Those that have to be made for `path`, the outermost first."""
    return [each for each in path.parents if not each.exists()][::-1]


def replace(path: Path, content: bytes, new_mode: int = 0o644) -> None:
    """Write `content` to `path`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        found = path.stat() if path.exists() else None
        if found is not None:
            _refuse_strange(path, found)
        handle, name = tempfile.mkstemp(prefix=".kimi-proxy-", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                _dress(file.fileno(), found, new_mode)
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_directory(path.parent)
    except OSError as e:
        raise FileRefused(f"{path} cannot be written: {e.strerror}") from e


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
def locked(lock: Path | None) -> Iterator[None]:
    """Hold a lock that is a directory, as Claude Code does while it writes its own file."""
    if lock is None or not lock.parent.is_dir():
        yield
        return
    deadline = time.monotonic() + LOCK_WAIT_S
    while not _taken(lock):
        if time.monotonic() > deadline:
            raise FileRefused(f"{lock} is held by another program: try again")
        time.sleep(0.05)
    try:
        yield
    finally:
        with suppress(OSError):
            lock.rmdir()


def _taken(lock: Path) -> bool:
    try:
        lock.mkdir()
    except FileExistsError:
        with suppress(OSError):
            if time.time() - lock.stat().st_mtime > STALE_S:
                lock.rmdir()
        return False
    except OSError as e:
        raise FileRefused(f"{lock} cannot be made: {e.strerror}") from e
    return True


def _refuse_strange(path: Path, found: os.stat_result) -> None:
    if found.st_nlink > 1:
        raise FileRefused(f"{path} has other names (hard links) that would keep the old text: change it by hand")
    if not os.access(path, os.W_OK):
        raise FileRefused(f"{path} may not be written")


def _dress(handle: int, found: os.stat_result | None, new_mode: int) -> None:
    if found is None:
        umask = os.umask(0)
        os.umask(umask)
        os.fchmod(handle, new_mode & ~umask)
        return
    if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(handle, found.st_uid, found.st_gid)
    os.fchmod(handle, stat.S_IMODE(found.st_mode))

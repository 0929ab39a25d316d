"""A file that only its owner can read, in a directory that only its owner can enter, whatever the umask."""

import os
import stat
from pathlib import Path

DIRECTORY = 0o700
FILE = 0o600

# Which file a path led to. While someone holds it open, no other file can have the same pair.
Identity = tuple[int, int]


def private_file(path: Path) -> Identity:
    """Create `path` if it is missing, close it to others if it is open to them, and say which file it is."""
    _private_directory(path.parent)
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


def _private_directory(directory: Path) -> None:
    try:
        found = directory.stat()
    except FileNotFoundError:
        _make(directory)
        return
    if stat.S_IMODE(found.st_mode) != DIRECTORY:
        directory.chmod(DIRECTORY)


def _make(directory: Path) -> None:
    missing = [d for d in (directory, *directory.parents) if not d.exists()]
    for each in reversed(missing):
        each.mkdir(DIRECTORY, exist_ok=True)
        each.chmod(DIRECTORY)
        sync_directory(each.parent)

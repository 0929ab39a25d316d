"""Damaged files are renamed, never deleted: a person may still want what is in them."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from kimi_proxy.services.store.private import Identity, identity, sync_directory

if sys.platform != "win32":
    import fcntl

log = logging.getLogger(__name__)


def set_aside(path: Path, seen: Identity) -> None:
    """Rename the damaged file `seen` at `path`, unless another process already has."""
    with _alone_in(path.parent):
        if identity(path) != seen:
            return
        damaged = path.with_name(f"{path.name}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        journal = _journal(path)
        # The journal first: left behind, it would be played back into the fresh file.
        if journal.exists():
            journal.rename(_journal(damaged))
        path.rename(damaged)
        sync_directory(path.parent)
    lost = {"path": str(path), "set_aside_as": str(damaged), "lost": "originals kept before now"}
    log.error("store_damaged", extra=lost)


def set_aside_files(path: Path) -> tuple[str, ...]:
    found = path.parent.glob(f"{path.name}.corrupt-*")
    return tuple(sorted(str(f) for f in found if not f.name.endswith("-journal")))


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Two processes that find the same damage must not rename each other's fresh file."""
    if sys.platform == "win32":  # a file that is open elsewhere can't be renamed there
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

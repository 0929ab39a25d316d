"""The folders in which a client over HTTP works, as far as its user may see them: the tools' paths begin there."""

import os
import stat
import sys
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kimi_proxy.proxy.files import WIDER, Workspace

MAX_ROOTS, MAX_URI_CHARS = 16, 4096

# None where the client is our parent process: it chose the folder when it started us.
_named: ContextVar[tuple[str, ...] | None] = ContextVar("named", default=None)


def begin_in(uris: tuple[str, ...]) -> None:
    """Let paths begin in these folders, for the request of the current context; () if its client names none."""
    _named.set(uris[:MAX_ROOTS])


def seen_by_client(space: Workspace) -> Workspace:
    """Return the folders that the current request's client may read: its own roots too, if it has any."""
    uris = _named.get()
    if uris is None:
        return space
    folders = tuple(dict.fromkeys(folder for uri in uris if (folder := _folder(uri, space)) is not None))
    if not folders:
        return replace(space, hint=f" {WIDER}")
    return replace(space, cwd=folders[0], roots=(*folders, *space.roots))


def _folder(uri: str, space: Workspace) -> Path | None:
    """Return the real directory that a `file:` URI names, if it may be seen. Files below it are checked one by one."""
    try:
        parts = urlsplit(uri[:MAX_URI_CHARS])
        path = unquote(parts.path, errors="strict")
        if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not Path(path).is_absolute():
            return None
        real = Path(os.path.realpath(path))
        found = real.lstat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISDIR(found.st_mode) or not os.access(real, os.R_OK | os.X_OK):
        return None
    if any(real.is_relative_to(place) for place in space.private):
        return None
    if space.is_chosen:  # by the user, in the settings: a client moves within it, and not out of it
        return real if any(real.is_relative_to(root) for root in space.roots) else None
    return real if _is_theirs(real, found.st_uid) else None


def _is_theirs(real: Path, owner: int) -> bool:
    """Return whether a folder is in the user's home or belongs to them; what holds the home itself is too much."""
    try:
        home = Path(os.path.realpath(Path.home()))
    except RuntimeError:  # an account without one
        return _is_own_id(owner) and real != real.parent
    if real == real.parent or (home.is_relative_to(real) and home != real):
        return False
    return (home != home.parent and real.is_relative_to(home)) or _is_own_id(owner)


def _is_own_id(owner: int) -> bool:
    return sys.platform != "win32" and owner == os.geteuid()  # there every file has the same number

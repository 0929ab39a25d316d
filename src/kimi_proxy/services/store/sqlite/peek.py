"""A look at a store file from outside, read-only and without loading the store: for `kimi-proxy status` and `audit`."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from os.path import exists  # pathlib takes longer to load than this to run

TIMEOUT_S = 1.0
# What only a process with an open store has.
_UNKNOWN = {
    "commits": 0,
    "set_aside": [],
    "pool": {"size": 0, "idle": 0, "waiting": 0},
}


def usage(path: str, max_bytes: int) -> dict[str, object]:
    """Return the usage of a store at `path`, in the format of StoreUsage; empty if there is none yet.

    Raise OSError if the file cannot be read.
    """
    nothing = {"path": path, "state": "ok", "originals": 0, "bytes_on_disk": 0, "max_bytes": max_bytes}
    if not exists(path):  # noqa: PTH110
        return {**nothing, "oldest": None, **_UNKNOWN}
    with _open(path) as connection:
        originals, size, oldest = counts(connection)
    held = {**nothing, "originals": originals, "bytes_on_disk": size, "oldest": oldest}
    return {**held, **_UNKNOWN}


def shortened_sessions(path: str) -> frozenset[str]:
    """Return what clients call the sessions of which requests were shortened; none if there is no file yet.

    Raise OSError if the file cannot be read.
    """
    if not exists(path):  # noqa: PTH110
        return frozenset()
    with _open(path) as connection:
        rows = connection.execute("SELECT name FROM sessions WHERE name <> '' AND tokens_saved > 0")
        return frozenset(str(name) for (name,) in rows)


@contextmanager
def _open(path: str) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=TIMEOUT_S)) as connection:
            yield connection
    except sqlite3.Error as e:
        raise OSError(f"{path} cannot be read: {e}") from e


def counts(connection: sqlite3.Connection) -> tuple[int, int, float | None]:
    """Return how many originals there are, the size of the file, and when the oldest was kept."""
    (originals,) = connection.execute("SELECT count(*) FROM record").fetchone()
    oldest = connection.execute("SELECT created FROM record ORDER BY seq LIMIT 1").fetchone()
    (size,) = connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()
    return int(originals), int(size), float(oldest[0]) if oldest else None

"""Processes, as the kernel sees them."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Children = Callable[[], list[int]]


def children_of(pid: int) -> list[int]:
    """The living and the unburied."""
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and parent_of(int(p.name)) == pid]


def is_there(pid: int) -> bool:
    """Whether a process runs; a zombie does not, but it has not been waited for either."""
    return Path(f"/proc/{pid}").exists()


def runs(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def scripted(script: str, *args: object) -> Iterator[None]:
    """Another Python that runs `script` meanwhile; it is awaited until it has printed a line."""
    command = [sys.executable, "-S", "-c", script, *map(str, args)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


async def until(condition: Callable[[], bool], within_s: float = 60) -> None:
    """Wait for the thing itself, with a bound."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "this never became true"
        await asyncio.sleep(0.01)


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """The same where there is no event loop; False if it did not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def with_variable(variable: str) -> set[int]:
    """The processes whose environment holds `NAME=value`, wherever they are in the tree."""
    found = set()
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable.encode() in place.read_bytes().split(b"\0"):
                found.add(int(place.parent.name))
        except OSError:
            continue
    return found


def is_guard(pid: int) -> bool:
    """Whether a process is the guard of another one, on which it waits."""
    try:
        return b"process_group.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def runs_in(folder: Path) -> bool:
    """Whether any process has `folder` as its working directory."""
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if cwd.readlink() == folder:
                return True
        except OSError:
            continue
    return False


def parent_of(pid: int) -> int | None:
    """The parent of a process; None if there is no such process."""
    try:
        # The name in the second field may hold spaces and brackets.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return None

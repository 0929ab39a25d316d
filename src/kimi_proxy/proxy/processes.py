"""Processes that are not our children: told apart by when they began, left to themselves, or ended."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kimi_proxy.core.errors import UpstreamUnreachable

LOOK_EVERY_S = 0.05
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Pid:
    """A process. Its number alone would also fit the next one that gets it."""

    number: int
    born: str

    @property
    def runs(self) -> bool:
        return bool(self.born) and born(self.number) == self.born


def born(number: int) -> str:
    """When a process began, in the system's own words; empty if there is none."""
    try:
        # The name in the second field may hold spaces and brackets.
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return "" if Path("/proc/self").exists() else _told_by_ps(number)
    except (ProcessLookupError, PermissionError):
        return ""
    return "" if fields[0] in "ZX" else f"{fields[19]} {_boot()}"


def _boot() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _told_by_ps(number: int) -> str:
    asked = ["ps", "-o", "lstart=", "-p", str(number)]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603 - our own words


def ourselves() -> Pid:
    return Pid(os.getpid(), born(os.getpid()))


def detach(argv: Sequence[str], env: Mapping[str, str], log: Path) -> Pid:
    """Start a process that outlives us and belongs to no terminal; what it says goes to `log`."""
    if not hasattr(os, "posix_spawn"):
        raise UpstreamUnreachable(f"{argv[0]} cannot be started in the background on this system")
    streams = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    try:
        number = os.posix_spawn(argv[0], list(argv), dict(env), file_actions=streams, setsid=True)
    except OSError as e:
        raise UpstreamUnreachable(f"{argv[0]} cannot be started: {e.strerror}") from e
    return Pid(number, born(number))


def exit_code(process: Pid) -> int | None:
    """How a process that we detached has ended; None while it runs, or if it is no child of ours."""
    try:
        number, status = os.waitpid(process.number, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if number else None


def end(process: Pid, patience_s: float) -> Literal["gone", "ended", "killed"]:
    """Ask a process to end, then make it."""
    for number, ending in ((signal.SIGTERM, "ended"), (signal.SIGKILL, "killed")):
        if not process.runs:
            return "gone"
        with suppress(ProcessLookupError):
            os.kill(process.number, number)
        if _gone_within(process, patience_s):
            return "ended" if ending == "ended" else "killed"
    return "killed"


def _gone_within(process: Pid, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while process.runs:
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_EVERY_S)
    return True

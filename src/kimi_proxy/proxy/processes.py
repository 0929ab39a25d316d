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


def detach(argv: Sequence[str], env: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
    """Start a process that outlives us and belongs to no terminal; what it says goes to `log`."""
    with log.open("wb") as said:
        return subprocess.Popen(  # noqa: S603 - the caller knows what it runs
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


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

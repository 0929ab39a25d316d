"""Windows' counterparts of process groups, /proc and file modes: job objects, process times, access lists.

Written from its documentation and tested with a scripted kernel; docs/platforms.md lists what was never run for real.
"""

import ctypes
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from ctypes import Structure, byref, c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof
from pathlib import Path
from typing import Protocol, cast

DETACHED = 0x8 | 0x200  # DETACHED_PROCESS, without a console, and CREATE_NEW_PROCESS_GROUP

_KILL_ON_CLOSE = 0x2000
_EXTENDED_LIMITS = 9
_TERMINATE_AND_SET_QUOTA = 0x1 | 0x100
_QUERY_LIMITED = 0x1000
_STILL_ACTIVE = 259
_KILLED = 1  # the exit code of processes that we end
_SYSTEM = "*S-1-5-18"  # the account of the system itself, whatever its name is in this language

log = logging.getLogger(__name__)


class _BasicLimits(Structure):
    _fields_ = (
        ("per_process_user_time", c_int64),
        ("per_job_user_time", c_int64),
        ("flags", c_uint32),
        ("minimum_working_set", c_size_t),
        ("maximum_working_set", c_size_t),
        ("active_processes", c_uint32),
        ("affinity", c_size_t),
        ("priority_class", c_uint32),
        ("scheduling_class", c_uint32),
    )


class ExtendedLimits(Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("basic", _BasicLimits),
        ("io", c_uint64 * 6),
        ("process_memory", c_size_t),
        ("job_memory", c_size_t),
        ("peak_process_memory", c_size_t),
        ("peak_job_memory", c_size_t),
    )


class Kernel(Protocol):
    """The functions of kernel32.dll that are called here; each returns 0 if it fails."""

    def CreateJobObjectW(self, security: None, name: None) -> int | None: ...
    def SetInformationJobObject(self, job: c_void_p, kind: int, limits: object, size: int) -> int: ...
    def AssignProcessToJobObject(self, job: c_void_p, process: c_void_p) -> int: ...
    def TerminateJobObject(self, job: c_void_p, code: int) -> int: ...
    def OpenProcess(self, access: int, inherit: int, pid: int) -> int | None: ...
    def GetExitCodeProcess(self, process: c_void_p, code: object) -> int: ...
    def GetProcessTimes(
        self, process: c_void_p, created: object, exited: object, kernel: object, user: object
    ) -> int: ...
    def CloseHandle(self, handle: c_void_p) -> int: ...


def kernel32() -> Kernel:
    """Return the kernel's functions. Raise OSError on another system."""
    if sys.platform == "win32":
        library = ctypes.WinDLL("kernel32", use_last_error=True)
        # A handle is as long as a pointer; without this ctypes would take it for an int.
        library.CreateJobObjectW.restype = library.OpenProcess.restype = c_void_p
        return cast(Kernel, library)
    raise OSError("there is no kernel32 on this system")


class Job:
    """A process and all that it starts from now on, which can be ended together.

    When the last handle is closed, the system ends them, even if we were killed. Processes started before it joined are
    not in the job.
    """

    def __init__(self, pid: int, kernel: Kernel | None = None) -> None:
        self._kernel = kernel or kernel32()
        self._handle = self._kernel.CreateJobObjectW(None, None)
        if not self._handle:
            raise OSError("the system makes no job object")
        limits = ExtendedLimits()
        limits.basic.flags = _KILL_ON_CLOSE
        if not (self._limit(limits) and self._assign(pid)):
            self.close()
            raise OSError(f"process {pid} cannot join a job object")

    def terminate(self) -> None:
        """End all that is in it at once."""
        if self._handle:
            self._kernel.TerminateJobObject(c_void_p(self._handle), _KILLED)

    def close(self) -> None:
        if self._handle:
            self._kernel.CloseHandle(c_void_p(self._handle))
            self._handle = None

    def _limit(self, limits: ExtendedLimits) -> bool:
        job = c_void_p(self._handle)
        return bool(self._kernel.SetInformationJobObject(job, _EXTENDED_LIMITS, byref(limits), sizeof(limits)))

    def _assign(self, pid: int) -> bool:
        process = self._kernel.OpenProcess(_TERMINATE_AND_SET_QUOTA, 0, pid)
        if not process:
            return False
        try:
            return bool(self._kernel.AssignProcessToJobObject(c_void_p(self._handle), c_void_p(process)))
        finally:
            self._kernel.CloseHandle(c_void_p(process))


def born(pid: int, kernel: Kernel | None = None) -> str:
    """Return when a process began, in 100 ns since 1601; empty if there is none, or it has ended."""
    kernel = kernel or kernel32()
    process = kernel.OpenProcess(_QUERY_LIMITED, 0, pid)
    if not process:
        return ""
    try:
        code = c_uint32()
        created = c_uint64()
        unused = c_uint64()
        if not kernel.GetExitCodeProcess(c_void_p(process), byref(code)) or code.value != _STILL_ACTIVE:
            return ""
        times = (byref(created), byref(unused), byref(unused), byref(unused))
        return str(created.value) if kernel.GetProcessTimes(c_void_p(process), *times) else ""
    finally:
        kernel.CloseHandle(c_void_p(process))


Run = Callable[[Sequence[str]], int]


def restrict(directory: Path, env: Mapping[str, str] = os.environ, run: Run | None = None) -> bool:
    """Let only the user and the system into a directory and what will be in it; return whether that was done."""
    user = "\\".join(filter(None, (env.get("USERDOMAIN"), env.get("USERNAME"))))
    if not user:
        log.warning("a folder keeps its access list: USERNAME is not set", extra={"folder": str(directory)})
        return False
    whole = "(OI)(CI)F"  # files and folders below inherit it
    command = ["icacls", str(directory), "/inheritance:r", "/grant:r", f"{user}:{whole}", f"{_SYSTEM}:{whole}", "/q"]
    try:
        is_done = (run or _run)(command) == 0
    except OSError:
        is_done = False
    if not is_done:
        log.warning("a folder keeps its access list: icacls failed", extra={"folder": str(directory)})
    return is_done


def _run(command: Sequence[str]) -> int:
    return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode  # noqa: S603 - our own words

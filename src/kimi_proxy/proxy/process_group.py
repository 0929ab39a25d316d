"""Runs one command, and ensures that no process it started outlives it.

This is a separate script, so that it can adopt orphans and outlive them as their parent:

    python -I -S process_group.py STATUS_FD TIMEOUT_S MAX_PROCESSES -- PROGRAM ARGUMENT…
    python -I -S process_group.py STATUS_FD CONTROL_FD -- PROGRAM ARGUMENT…

In the first form standard input is a pipe: when its other end closes, the caller has exited or wants to stop. Standard
output becomes both outputs of the command, so that they keep their order. At the end, one line of JSON goes to
STATUS_FD.

The second form is for servers, which keep our standard streams and have no time limit. STATUS_FD gets the server's
process id, or `!` and the number of the error that kept it from starting. SIGTERM is passed on to all of the family.
When CONTROL_FD closes, the family is ended, at once if a byte came before. We exit as the server did. Between us and
the server there is a second guard: if one of the two is killed, the other one ends the family."""

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

if sys.platform != "win32":  # where it is never started
    import resource

POLITE_S: Final = 1.0  # between SIGTERM and SIGKILL
LINGER_S: Final = 0.25  # time for the `> >(tee log)` of a finished shell to see the end of its input
FORCE_S: Final = 2.0  # killing and reaping, fork bombs included
LOOK_EVERY_S: Final = 0.1

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform.startswith("linux")


def main(arguments: list[str]) -> None:
    if arguments[2] == "--":
        _serve(arguments[3:], int(arguments[0]), int(arguments[1]))
    status = int(arguments[0])
    timeout_s = float(arguments[1])
    max_processes = int(arguments[2])
    os.set_inheritable(status, False)
    wake = _wake_on_signals()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # we adopt orphans
    pid = _start(arguments[4:], status, wake, max_processes)
    family = Family(pid)
    why = _watch(family, wake, timeout_s, max_processes)
    ended = _end(family, why)
    report = {"why": why, "status": family.status, "ended": ended, "alive": family.alive()}
    os.write(status, json.dumps(report).encode() + b"\n")


class Family:
    """The command and everything that descends from it, however often it forked or changed session."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None

    def alive(self) -> bool:
        """Reap ended children, and return whether any is alive: we adopt orphans, so no children means no processes."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self.pid:
                    self.status = status
        except ChildProcessError:
            return False

    def members(self) -> list[int]:
        """Return the process ids of all that live, as far as one look at /proc shows."""
        children = defaultdict(list)
        for pid, parent, _, _ in _processes():
            children[parent].append(pid)
        found = []
        queue = [os.getpid()]
        while queue:
            below = children.pop(queue.pop(), [])
            found += below
            queue += below
        return found

    def send(self, number: signal.Signals) -> None:
        # The group first: one call reaches all of a fork bomb at once.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def wait_until_ended(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True


def _watch(family: Family, wake: int, timeout_s: float, max_processes: int) -> str:
    """Return why the watch ended: exited, timeout, processes or stopped."""
    deadline = time.monotonic() + timeout_s
    pause = LOOK_EVERY_S
    while True:
        family.alive()
        if family.status is not None:
            return "exited"
        left = deadline - time.monotonic()
        if left <= 0:
            return "timeout"
        ready, _, _ = select.select([0, wake], [], [], min(left, pause))
        if 0 in ready or (wake in ready and _asked_to_stop(wake)):
            return "stopped"
        if not ready:
            started = time.monotonic()
            if len(family.members()) > max_processes:
                return "processes"
            # On a crowded machine a look is costly; it may take a twentieth of one core.
            pause = max(LOOK_EVERY_S, 20 * (time.monotonic() - started))


def _end(family: Family, why: str) -> int:
    """End the rest of the family, and return the number of its processes."""
    if why == "exited" and family.wait_until_ended(LINGER_S):
        return 0
    left = len(family.members())
    if why != "processes":
        family.send(signal.SIGTERM)
        family.send(signal.SIGCONT)
        if family.wait_until_ended(POLITE_S):
            return left
    _kill(family)
    return left


def _kill(family: Family) -> None:
    deadline = time.monotonic() + FORCE_S
    while family.alive() and time.monotonic() < deadline:
        family.send(signal.SIGKILL)
        family.wait_until_ended(0.02)


def _serve(argv: list[str], status: int, control: int) -> NoReturn:
    """Run a server until it ends, or is to end; then end all that descends from it."""
    os.set_inheritable(status, False)
    os.set_inheritable(control, False)
    alive, held = os.pipe()  # the second guard detects our exit by the end of this pipe
    second = os.fork()
    if second == 0:
        os.close(control)
        os.close(held)
        _serve_below(argv, status, alive)
    os.close(status)
    os.close(alive)
    wake = _wake_on_signals()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    family = Family(second)
    _leave_streams()
    if _watch_server(family, wake, control):
        _end(family, "stopped")
    _kill(family)
    _exit_like(family.status)


def _serve_below(argv: list[str], status: int, first: int) -> NoReturn:
    """Run a server and exit as it does; if the first guard is killed in the meantime, end all of the family."""
    os.setsid()  # one signal to a group cannot reach both guards
    wake = _wake_on_signals()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    family = Family(_start_server(argv, status))
    _leave_streams()
    while True:
        family.alive()
        if family.status is not None:
            _exit_like(family.status)  # processes that it left behind are adopted by the first guard
        ready, _, _ = select.select([first, wake], [], [])
        if first in ready:
            _end(family, "stopped")
            _kill(family)
            _exit_like(family.status)
        os.read(wake, 4096)  # the first guard sends termination signals to all of them


def _start_server(argv: list[str], status: int) -> int:
    """Return the server's process id once it runs; say so to the caller, or why it cannot."""
    guard = os.getpid()
    (reading, writing) = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _take_own_session(guard)
            # Python may have added a locale to its environment; the server gets the chosen environment.
            chosen = Path("/proc/self/environ").read_bytes().split(b"\0")
            env = dict(pair.split(b"=", 1) for pair in chosen if b"=" in pair)
            os.execvpe(argv[0], argv, env)  # noqa: S606 - the command is what we are asked to run
        except OSError as e:
            os.write(writing, str(e.errno).encode())
        os._exit(127)
    os.close(writing)
    error = os.read(reading, 16).decode()  # nothing, if the pipe was closed by the start of the program
    with contextlib.suppress(BrokenPipeError):
        os.write(status, f"!{error}\n".encode() if error else f"{pid}\n".encode())
    os.close(status)
    return pid


def _leave_streams() -> None:
    """Close the server's streams here, so that the caller notices when the server closes one or exits."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)


def _watch_server(family: Family, wake: int, control: int) -> bool:
    """Return whether the family may be asked to end first, once the server has ended or is to end."""
    while True:
        family.alive()
        if family.status is not None:
            return False
        ready, _, _ = select.select([control, wake], [], [])
        if control in ready:
            return not os.read(control, 1)
        if _asked_to_stop(wake):
            family.send(signal.SIGTERM)


def _exit_like(status: int | None) -> NoReturn:
    code = 1 if status is None else os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # there is no default to go back to for SIGKILL
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _start(argv: list[str], status: int, wake: int, max_processes: int) -> int:
    limit = _process_limit(max_processes)
    guard = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        _become(argv, guard, limit)
    except OSError as e:
        os.write(status, json.dumps({"why": "exec", "error": f"{argv[0]}: {e.strerror}"}).encode() + b"\n")
    os._exit(127)


def _become(argv: list[str], guard: int, process_limit: int | None) -> NoReturn:
    _take_own_session(guard)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if process_limit is not None:
        resource.setrlimit(resource.RLIMIT_NPROC, (process_limit, process_limit))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(1, 2)
    os.execvp(argv[0], argv)  # noqa: S606 - the command is what we are asked to run


def _take_own_session(guard: int) -> None:
    """Lead a session that ends with the guard, and take signals as programs do."""
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(127)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _process_limit(max_processes: int) -> int | None:
    """Return a limit for the user's threads, which the kernel does not apply to root.

    It is twice the allowed number, so that a crowd is detected and ended before single forks fail.
    """
    if not _LINUX or os.getuid() == 0:
        return None
    now = sum(threads for _, _, threads, owner in _processes() if owner == os.getuid())
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    wanted = now + 2 * max_processes
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _processes() -> Iterator[tuple[int, int, int, int]]:
    """Yield process id, parent, threads and owner of all that live; nothing where there is no /proc."""
    with contextlib.suppress(FileNotFoundError), os.scandir("/proc") as entries:
        for name in [entry.name for entry in entries if entry.name.isdigit()]:
            with contextlib.suppress(OSError):
                about, owner = _stat(f"/proc/{name}/stat")
                # The name in brackets may hold anything, brackets too.
                fields = about.rpartition(b")")[2].split()
                if fields and fields[0] not in (b"Z", b"X"):
                    yield int(name), int(fields[1]), int(fields[17]), owner


def _stat(path: str) -> tuple[bytes, int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 4096), os.fstat(fd).st_uid
    finally:
        os.close(fd)


def _wake_on_signals() -> int:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    os.set_blocking(reading, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return reading


def _asked_to_stop(wake: int) -> bool:
    return any(number != signal.SIGCHLD for number in os.read(wake, 4096))


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1:])

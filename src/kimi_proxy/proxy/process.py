"""Processes: children in their own process group, which end together with all descendants, and detached ones.

All other code that starts programs uses this module: MCP servers, workers, the tools of a run, commands. Only
commands (`proxy/commands.py`) read their output in a thread, because writing it to disk would block the event loop."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar, Literal, cast

from kimi_proxy.core.errors import UpstreamUnreachable

if TYPE_CHECKING or sys.platform == "win32":
    from kimi_proxy.proxy import windows

STDIN, STDOUT, STDERR = 0, 1, 2
NEW_GROUP = 0x200 if sys.platform == "win32" else 0  # CREATE_NEW_PROCESS_GROUP, as start_new_session elsewhere
GRACE_S = 1.0  # for each of SIGTERM and SIGKILL
if sys.platform == "win32":
    # The first as Ctrl-Break, the second ends a process at once.
    POLITE = signal.SIGBREAK
    SIGKILL = signal.SIGTERM
else:
    POLITE = signal.SIGTERM
    SIGKILL = signal.SIGKILL

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Command:
    argv: Sequence[str] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    cwd: Path | str | None = None
    secrets: Sequence[str] = field(default=(), repr=False)  # among the arguments and variables; hidden in the output


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group, on systems that have them; do nothing if it has exited, or is not ours."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(group, signal.CTRL_BREAK_EVENT if number == POLITE else number)
        else:
            os.killpg(group, number)


class Process(asyncio.SubprocessProtocol):
    """A program in its own process group. Subclasses handle its output, which is dropped here.

    A guarded one runs below a guard, which also ends descendants that left the group.
    """

    guarded: ClassVar[bool] = False

    def __init__(self, orphans: "OrphanCleanup | None" = None) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = loop.create_future()  # its exit code; negative for a signal
        self.is_alive = True  # until it ends, or we begin to end it
        self._closed: asyncio.Future[None] = loop.create_future()  # it has exited, and its output was read to the end
        self._orphans = orphans
        self._transport: asyncio.SubprocessTransport | None = None
        self._job: windows.Job | None = None  # Windows: processes that it started end with it
        self._guard = FamilyGuard() if self.guarded and sys.executable else None

    async def launch(
        self, command: Command, stdin: int = PIPE, stdout: int = PIPE, stderr: int | IO[bytes] = PIPE
    ) -> None:
        """Start `command`; raise OSError or ValueError if that cannot be done."""
        guard = self._guard
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: self,
                *(guard.argv(command.argv) if guard else command.argv),
                env=dict(command.env),
                cwd=command.cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                # Ctrl-C in the terminal is not for it, and its group can be signalled as one.
                start_new_session=True,
                creationflags=NEW_GROUP,
                pass_fds=guard.passed if guard else (),
            )
            if guard:
                await guard.wait_started()
        except (asyncio.CancelledError, OSError, ValueError):
            if self._transport is not None:
                await self.end(grace_s=0)
            elif guard:
                guard.close()
            raise

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its process group."""
        return (self._guard and self._guard.leader) or self._require_transport.get_pid()

    async def wait_closed(self) -> None:
        """Wait until it has exited on its own or was ended by us."""
        await asyncio.shield(self._closed)

    async def end(self, leave_s: float = 0.0, grace_s: float = GRACE_S) -> bool:
        """End it with its group, or with all descendants if guarded; return False if it had to be killed.

        Its input is closed; SIGTERM follows after `leave_s`, and SIGKILL after another `grace_s`. With no grace it is
        killed at once.
        """
        self.is_alive = False
        if self._require_transport.get_pipe_transport(STDIN) is not None:
            self._pipe(STDIN).close()
        await asyncio.wait({self._closed}, timeout=leave_s)
        if grace_s > 0:
            self._signal(POLITE)
            await asyncio.wait({self._closed}, timeout=grace_s)
        in_time = self.exited.done()
        self._signal(SIGKILL)
        await asyncio.wait({self._closed}, timeout=GRACE_S)
        self._require_transport.close()
        await asyncio.shield(self._closed)
        return in_time

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        if sys.platform == "win32":
            with suppress(OSError):  # it has ended already
                self._job = windows.Job(self.pid)
        elif self._orphans is not None and self._guard is None:
            self._orphans.watch(self.pid)

    def process_exited(self) -> None:
        """End the processes that it left behind; the pipes close once they are read to the end."""
        self.is_alive = False
        self._signal(SIGKILL)
        asyncio.get_running_loop().call_later(GRACE_S, self._require_transport.close)
        self.exited.set_result(self._require_transport.get_returncode() or 0)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._job is not None:
            self._job.close()
        if self._guard is not None:
            self._guard.close()
        elif self._orphans is not None:
            self._orphans.forget(self.pid)
        self._closed.set_result(None)
        self._require_transport.close()

    @property
    def _require_transport(self) -> asyncio.SubprocessTransport:
        assert self._transport is not None  # noqa: S101 - it was launched
        return self._transport

    def _signal(self, number: signal.Signals) -> None:
        if self._closed.done():  # the number may belong to another process from then on
            return
        if self._job is not None and number == SIGKILL:
            self._job.terminate()
        elif self._guard is None or self._require_transport.get_returncode() is not None:
            signal_group(self.pid, number)
        elif number == SIGKILL:
            self._guard.kill()
        else:
            with suppress(ProcessLookupError):
                os.kill(self._require_transport.get_pid(), number)  # the guard passes it on

    def _pipe(self, fd: int) -> asyncio.WriteTransport:  # standard output's is closed, never written
        return cast(asyncio.WriteTransport, self._require_transport.get_pipe_transport(fd))


GUARD = Path(__file__).with_name("process_group.py")


class FamilyGuard:
    """Our end of a guard (`process_group.py`): the parent of one program, which adopts its orphans.

    A pipe shows the guard that we have exited, even if we were killed; it then ends all descendants of the program, in
    any session. Linux only, because other systems cannot adopt orphans.
    """

    def __init__(self) -> None:
        self.leader: int | None = None  # the program's own number, once it runs
        self._status, status = os.pipe()
        control, self._control = os.pipe()
        self.passed: tuple[int, ...] = (status, control)
        self._open = {self._status, self._control, status, control}
        self._is_read = False

    def argv(self, program: Sequence[str]) -> tuple[str, ...]:
        return (sys.executable, "-I", "-S", str(GUARD), *map(str, self.passed), "--", *program)

    async def wait_started(self) -> None:
        """Wait until the program runs; raise OSError if it cannot be started."""
        self._close(*self.passed)
        self._is_read = True
        try:
            line = await _line_of(self._status)
        finally:
            self._is_read = False
            if self._control not in self._open:  # it was closed in the meantime
                self._close(self._status)
        if line.startswith(b"!"):
            error = int(line[1:])
            raise OSError(error, os.strerror(error))
        self.leader = int(line) if line else None  # nothing: the guard itself was ended

    def kill(self) -> None:
        """Have the whole family killed at once."""
        if self._control in self._open:
            with suppress(BrokenPipeError):
                os.write(self._control, b"k")
            self._close(self._control)

    def close(self) -> None:
        """Close our ends; the one that is being read stays until it has been, since libuv aborts where it is not."""
        self._close(*(self._open - {self._status} if self._is_read else self._open))

    def _close(self, *fds: int) -> None:
        for fd in self._open.intersection(fds):
            self._open.discard(fd)
            os.close(fd)


async def _line_of(pipe: int) -> bytes:
    loop = asyncio.get_running_loop()
    line = bytearray()
    done: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        piece = os.read(pipe, 64)
        line.extend(piece)
        if (not piece or b"\n" in piece) and not done.done():
            done.set_result(None)

    loop.add_reader(pipe, read)
    try:
        await done
    finally:
        loop.remove_reader(pipe)
    return bytes(line)


_CLEANUP_SCRIPT = f"""
trap '' HUP INT TERM
groups=' '
while read -r change group; do
  case $change in
    +) groups="$groups$group " ;;
    -) case $groups in *" $group "*) groups="${{groups%% $group *}} ${{groups#* $group }}" ;; esac ;;
  esac
done
for group in $groups; do kill -s TERM -- "-$group" 2>/dev/null; done
[ "$groups" = ' ' ] || sleep {GRACE_S:.0f}
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
"""


class OrphanCleanup:
    """A shell that outlives us by a second, so that the servers we started do not.

    When we are killed, none of our code runs any more; but the kernel closes the pipe to this shell, which then ends
    every process group that it knows. It is started with the first group to watch.
    """

    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        if self._shell is None:
            try:
                self._shell = _cleanup_shell()
            except OSError as e:
                log.warning("no orphan cleanup: servers may outlive a crash", extra={"problem": str(e)})
        self._write(f"+ {group}\n")

    def forget(self, group: int) -> None:
        self._write(f"- {group}\n")

    def close(self) -> None:
        """End the shell and everything that it still watches."""
        if self._shell is not None and self._shell.stdin is not None:
            with suppress(BrokenPipeError):
                self._shell.stdin.close()
            self._shell.wait()
        self._shell = None

    def _write(self, line: str) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            try:
                self._shell.stdin.write(line.encode())
            except BrokenPipeError:
                log.warning("the orphan cleanup is gone: servers may outlive a crash")


def _cleanup_shell() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own script, and no argument
        ["/bin/sh", "-c", _CLEANUP_SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        start_new_session=True,
    )


EXIT_NOT_FOUND = 127
EXIT_SIGNAL = 128  # plus its number, as shells say it
SETTLE_S = 0.1

# Python ignores these in itself, and a program that inherited that would, too.
_IGNORED_BY_PYTHON = [number for number in signal.Signals if number.name in ("SIGPIPE", "SIGXFSZ")]
# The terminal sends these to all programs in its foreground, so that ours has them already.
_OF_THE_TERMINAL = ("SIGINT", "SIGQUIT")
_FORWARDED_NAMES = (*_OF_THE_TERMINAL, "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
FORWARDED = [number for number in signal.Signals if number.name in _FORWARDED_NAMES]


class Foreground:
    """A program that shares our terminal and our process group, as an agent does that we run for its user.

    Unix only: `kimi-proxy run` is refused elsewhere.
    """

    _pid: int

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        if sys.platform == "win32":
            raise UpstreamUnreachable(f"{argv[0]} cannot share a terminal here: it needs the job control of Unix")
        try:
            self._pid = os.posix_spawnp(argv[0], list(argv), env, setsigdef=_IGNORED_BY_PYTHON)
        except OSError as e:
            raise UpstreamUnreachable(f"{argv[0]} cannot be started: {e.strerror}") from e

    async def exit_code(self) -> int:
        return await asyncio.to_thread(self._wait)

    def pass_on(self, number: signal.Signals) -> None:
        if number.name not in _OF_THE_TERMINAL or not _in_the_foreground():
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def _wait(self) -> int:
        if sys.platform == "win32":
            return EXIT_NOT_FOUND  # none was started
        status = self._next_status()
        while status is None or os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
            if status is None:
                self._suspend_with_it()
            elif os.WIFSTOPPED(status):
                # Ctrl-Z suspends us as well. By the end of this pause that has happened, and has passed.
                time.sleep(SETTLE_S)
                status = self._next_status(os.WNOHANG)
                continue
            status = self._next_status()
        code = os.waitstatus_to_exitcode(status)
        return EXIT_SIGNAL - code if code < 0 else code

    def _next_status(self, more: int = 0) -> int | None:
        if sys.platform == "win32":
            return None
        pid, status = os.waitpid(self._pid, os.WUNTRACED | os.WCONTINUED | more)
        return status if pid else None

    def _suspend_with_it(self) -> None:
        """Suspend us, too: only then does a shell give its prompt back."""
        if sys.platform != "win32" and _in_the_foreground():
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(self._pid, signal.SIGCONT)


def _in_the_foreground() -> bool:
    if sys.platform == "win32":
        return False
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)


LOOK_EVERY_S = 0.05
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Pid:
    """A process that may be no child of ours. Its number alone would also fit the next one that gets it."""

    number: int
    born: str

    @property
    def runs(self) -> bool:
        return bool(self.born) and born(self.number) == self.born


def born(number: int) -> str:
    """Return when a process began, in the system's own words; empty if there is none."""
    if sys.platform == "win32":
        return windows.born(number)
    try:
        # The name in the second field may hold spaces and brackets.
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return "" if Path("/proc/self").exists() else _born_by_ps(number)
    except (ProcessLookupError, PermissionError):
        return ""
    try:
        boot = BOOT_ID.read_text().strip()
    except OSError:
        boot = ""
    return "" if fields[0] in "ZX" else f"{fields[19]} {boot}"


def _born_by_ps(number: int) -> str:
    command = ["ps", "-o", "lstart=", "-p", str(number)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603 - a number


def ourselves() -> Pid:
    return Pid(os.getpid(), born(os.getpid()))


def detach(argv: Sequence[str], env: Mapping[str, str], log: Path) -> Pid:
    """Start a process that outlives us and has no terminal; its output goes to `log`."""
    if sys.platform == "win32":
        return _start_detached(argv, env, log)
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


# Windows: an ended process is forgotten with its last handle, so that its exit code could not be asked for.
_children: dict[int, subprocess.Popen[bytes]] = {}


def _start_detached(argv: Sequence[str], env: Mapping[str, str], log: Path) -> Pid:
    try:
        with log.open("wb") as out:
            child = subprocess.Popen(  # noqa: S603 - our own program
                argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, creationflags=windows.DETACHED
            )
    except OSError as e:
        raise UpstreamUnreachable(f"{argv[0]} cannot be started: {e.strerror}") from e
    _children[child.pid] = child
    return Pid(child.pid, born(child.pid))


def exit_code(process: Pid) -> int | None:
    """Return how a process that we detached has ended; None while it runs, or if it is no child of ours."""
    if sys.platform == "win32":
        child = _children.get(process.number)
        return child.poll() if child else None
    try:
        number, status = os.waitpid(process.number, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if number else None


def end(process: Pid, grace_s: float) -> Literal["gone", "ended", "killed"]:
    """Send SIGTERM and, `grace_s` later, SIGKILL; return the one that was needed."""
    if not process.runs:
        return "gone"
    if _wait_until_gone(process, signal.SIGTERM, grace_s):
        return "ended"
    _wait_until_gone(process, SIGKILL, grace_s)
    return "killed"


def _wait_until_gone(process: Pid, number: signal.Signals, within_s: float) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process.number, number)
    deadline = time.monotonic() + within_s
    while process.runs:
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_EVERY_S)
    return True

"""Child processes: run in a thread that reads their output as it comes, ended whole when their time is up."""

import asyncio
import contextlib
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from kimi_proxy.core import json
from kimi_proxy.core.errors import ToolFailed, UpstreamUnreachable
from kimi_proxy.core.json import JsonObject

WARDEN = Path(__file__).with_name("process_group.py")
READ_BYTES = 256 * 1024
LOOK_EVERY_S = 0.05
KILL_WITHIN_S = 3.0
ERRORS_MAX_BYTES = 16 * 1024
TAG = "KIMI_PROXY_COMMAND_ID"

# What a shell needs to find its way. A key or a token is none of its business, unless the user lists it.
PASSED_NAMES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LANGUAGE", "TERM", "COLORTERM", "NO_COLOR"),
    *("TZ", "CI", "HOSTNAME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "NODE_PATH", "JAVA_HOME", "GOPATH", "GOROOT"),
    *("CARGO_HOME", "RUSTUP_HOME", "GEM_HOME", "SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE"),
)
NEVER_PASSED = ("KIMI_PROXY_TOKEN", "DEEPINFRA_API_KEY")

Value = TypeVar("Value")
Ending = Literal["exited", "timeout", "processes", "stopped", "enough", "lost"]


@dataclass(frozen=True, slots=True)
class Command:
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended. `exit_code` is negative for a signal, None if it had no end of its own."""

    ending: Ending
    exit_code: int | None
    duration_ms: int
    leftovers: int = 0  # processes that would have outlived the command, and were ended with it
    errors: str = ""


def child_env(env: Mapping[str, str], extra: tuple[str, ...] = ()) -> dict[str, str]:
    """The part of our environment that a child may see."""
    wanted = frozenset((*PASSED_NAMES, *extra)) - frozenset(NEVER_PASSED)
    return {name: value for name, value in env.items() if name in wanted or name.startswith("LC_")}


async def in_thread(work: Callable[[threading.Event], Value], threads: Executor | None = None) -> Value:
    """Do blocking `work`. If we are cancelled, it is told to stop, and ends on its own."""
    stop = threading.Event()
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, work, stop)
    finally:
        stop.set()


def run_plain(command: Command, write: Callable[[bytes], bool], stop: threading.Event) -> Outcome:
    """Run a program that leaves no others behind. `write` says whether it wants more of its output."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as errors, _started(command.argv, command, errors.fileno()) as process:
        with _killed(process, started + command.timeout_s, stop) as endings:
            while piece := os.read(_output(process), READ_BYTES):
                if not write(piece):
                    endings.append("enough")
                    break
        code = process.wait()
        errors.seek(0)
        said = errors.read(ERRORS_MAX_BYTES).decode("utf-8", "replace")
    return Outcome(endings[0] if endings else "exited", code, _ms_since(started), errors=said)


def run_guarded(command: Command, max_processes: int, write: Callable[[bytes], None], stop: threading.Event) -> Outcome:
    """Run a command below a warden: whatever it starts is gone within `timeout_s` + 3 seconds."""
    started = time.monotonic()
    tag = secrets.token_hex(8)
    reading, writing = os.pipe()
    try:
        warden = _start_warden(command, writing, max_processes, tag)
        with warden:
            said = _follow(warden, reading, command.timeout_s, write, stop)
    finally:
        os.close(reading)
    # A command may kill its own warden. Its processes still carry the tag.
    report = _report(said)
    if report is None:
        return Outcome("lost", None, _ms_since(started), _sweep(tag))
    return _outcome(report, started)


def _start_warden(command: Command, status: int, max_processes: int, tag: str) -> subprocess.Popen[bytes]:
    script = (sys.executable, "-I", "-S", str(WARDEN))
    arguments = (str(status), str(command.timeout_s), str(max_processes), "--")
    tagged = Command(command.argv, command.cwd, {**command.env, TAG: tag}, command.timeout_s)
    try:
        return _started((*script, *arguments, *command.argv), tagged, subprocess.DEVNULL, (status,))
    finally:
        os.close(status)


def _started(
    argv: tuple[str, ...], command: Command, errors: int, pass_fds: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - without a shell; the warden's command is the user's own
            argv,
            cwd=command.cwd,
            env=dict(command.env),
            stdin=subprocess.PIPE if pass_fds else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except OSError as e:
        raise ToolFailed("exec_failed", f"{command.argv[0]} cannot be started: {e.strerror}") from e


def _follow(
    warden: subprocess.Popen[bytes],
    status: int,
    timeout_s: float,
    write: Callable[[bytes], None],
    stop: threading.Event,
) -> bytes:
    """Pass on the output until the warden has reported and the pipe is empty; the report."""
    said = bytearray()
    sinks: dict[int, Callable[[bytes], None]] = {_output(warden): write, status: said.extend}
    deadline = time.monotonic() + timeout_s + KILL_WITHIN_S + 1
    while sinks:
        for fd in _readable(sinks):
            piece = os.read(fd, READ_BYTES)
            sinks[fd](piece) if piece else sinks.pop(fd)
        if stop.is_set() and warden.stdin and not warden.stdin.closed:
            warden.stdin.close()
        if status not in sinks:
            # Nobody should hold the pipe any more; whoever does is not waited for.
            deadline = min(deadline, time.monotonic() + 1)
        if time.monotonic() > deadline:
            break
    warden.kill()
    return bytes(said)


def _readable(sinks: Mapping[int, object]) -> list[int]:
    poll = select.poll()
    for fd in sinks:
        poll.register(fd, select.POLLIN | select.POLLHUP)
    return [fd for fd, _ in poll.poll(LOOK_EVERY_S * 1000)]


def _report(said: bytes) -> JsonObject | None:
    line = said.partition(b"\n")[0]
    report = json.decode(line) if line else None
    return dict(report) if isinstance(report, dict) else None


def _outcome(report: JsonObject, started: float) -> Outcome:
    match report:
        case {"why": "exec", "error": str(problem)}:
            raise ToolFailed("exec_failed", f"{problem}: the command could not be started")
        case {"why": ("exited" | "timeout" | "processes" | "stopped") as why, **rest}:
            status, leftovers = rest.get("status"), rest.get("ended")
            code = os.waitstatus_to_exitcode(status) if isinstance(status, int) else None
            return Outcome(why, code, _ms_since(started), leftovers if isinstance(leftovers, int) else 0)
    raise ToolFailed("exec_failed", "the command's warden ended without a report")


@contextlib.contextmanager
def _killed(process: subprocess.Popen[bytes], deadline: float, stop: threading.Event) -> Iterator[list[Ending]]:
    """The process ends with the block at the latest, earlier at the deadline or when asked to stop."""
    endings: list[Ending] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(LOOK_EVERY_S):
            if stop.is_set() or time.monotonic() > deadline:
                endings.append("stopped" if stop.is_set() else "timeout")
                _kill_group(process)
                return

    watchdog = threading.Thread(target=watch, daemon=True)
    watchdog.start()
    try:
        yield endings
    finally:
        done.set()
        watchdog.join()
        if endings:
            _kill_group(process)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def _sweep(tag: str) -> int:
    """Kill what carries the tag of a command in its environment; how many processes that were."""
    mark = f"{TAG}={tag}".encode()
    killed: set[int] = set()
    deadline = time.monotonic() + KILL_WITHIN_S
    while (found := _tagged(mark)) and time.monotonic() < deadline:
        killed.update(found)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return len(killed)


def _tagged(mark: bytes) -> list[int]:
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
    return found


def _output(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None  # noqa: S101 - it was started with a pipe
    return process.stdout.fileno()


def _ms_since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


EXIT_NOT_FOUND = 127
EXIT_SIGNAL = 128  # plus its number, as shells say it
SETTLE_S = 0.1

# Python ignores these in itself, and a program that inherited that would, too.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
# The terminal sends these to all programs in its foreground, so that ours has them already.
_OF_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
FORWARDED = (*_OF_THE_TERMINAL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Foreground:
    """A started program."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        try:
            self._pid = os.posix_spawnp(argv[0], list(argv), env, setsigdef=_IGNORED_BY_PYTHON)
        except OSError as e:
            raise UpstreamUnreachable(f"{argv[0]} cannot be started: {e.strerror}") from e

    async def exit_code(self) -> int:
        return await asyncio.to_thread(self._wait)

    def pass_on(self, number: signal.Signals) -> None:
        if number not in _OF_THE_TERMINAL or not _in_the_foreground():
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def _wait(self) -> int:
        status = self._news()
        while status is None or os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
            if status is None:
                self._suspend_with_it()
            elif os.WIFSTOPPED(status):
                # Ctrl-Z suspends us as well. By the end of this pause that has happened, and has passed.
                time.sleep(SETTLE_S)
                status = self._news(os.WNOHANG)
                continue
            status = self._news()
        code = os.waitstatus_to_exitcode(status)
        return EXIT_SIGNAL - code if code < 0 else code

    def _news(self, more: int = 0) -> int | None:
        pid, status = os.waitpid(self._pid, os.WUNTRACED | os.WCONTINUED | more)
        return status if pid else None

    def _suspend_with_it(self) -> None:
        """A shell gives its prompt back only when we are suspended, too."""
        if _in_the_foreground():
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(self._pid, signal.SIGCONT)


def _in_the_foreground() -> bool:
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)

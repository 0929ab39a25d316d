"""Commands: run in a thread that reads their output as it comes, ended whole when their time is up."""

import asyncio
import contextlib
import os
import secrets
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from kimi_proxy.core import json
from kimi_proxy.core.errors import ToolFailed
from kimi_proxy.core.json import JsonValue
from kimi_proxy.proxy.process import GUARD, NEW_GROUP, SIGKILL, Command, signal_group

READ_BYTES = 256 * 1024
LOOK_EVERY_S = 0.05
KILL_WITHIN_S = 3.0
ERRORS_MAX_BYTES = 16 * 1024
TAG = "KIMI_PROXY_COMMAND_ID"

# Variables that a shell needs. Keys and tokens are excluded unless the user lists them.
PASSED_NAMES = tuple(
    """
    PATH HOME USER LOGNAME SHELL TMPDIR LANG LANGUAGE TERM COLORTERM NO_COLOR TZ CI HOSTNAME XDG_CACHE_HOME
    XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR VIRTUAL_ENV CONDA_PREFIX PYENV_ROOT NVM_DIR NODE_PATH JAVA_HOME
    GOPATH GOROOT CARGO_HOME RUSTUP_HOME GEM_HOME SYSTEMROOT COMSPEC PATHEXT TEMP TMP USERPROFILE
    """.split()
)
NEVER_PASSED = ("KIMI_PROXY_TOKEN", "DEEPINFRA_API_KEY")

Value = TypeVar("Value")
Ending = Literal["exited", "timeout", "processes", "stopped", "enough", "lost"]


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """The end of a command. `exit_code` is negative for a signal, None if the command did not exit on its own."""

    ending: Ending
    exit_code: int | None
    duration_ms: int
    leftovers: int = 0  # processes that would have outlived the command, and were ended with it
    errors: str = ""


def child_env(env: Mapping[str, str], extra: tuple[str, ...] = ()) -> dict[str, str]:
    """The part of our environment that a child may see."""
    wanted = frozenset((*PASSED_NAMES, *extra)) - frozenset(NEVER_PASSED)
    return {name: value for name, value in env.items() if name in wanted or name.startswith("LC_")}


async def in_thread(work: Callable[[threading.Event], Value], threads: Executor) -> Value:
    """Return what blocking `work` returns. If we are cancelled, its event is set, and it ends on its own."""
    stop = threading.Event()
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, work, stop)
    finally:
        stop.set()


def run_plain(
    command: Command, timeout_s: float, write: Callable[[bytes], bool], stop: threading.Event
) -> CommandOutcome:
    """Run a program that leaves no processes behind. `write` returns whether it wants more output."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as errors, _popen(command, command.argv, errors.fileno()) as process:
        with _kill_at(process, started + timeout_s, stop) as endings:
            while piece := os.read(_output(process), READ_BYTES):
                if not write(piece):
                    endings.append("enough")
                    break
        code = process.wait()
        errors.seek(0)
        problems = errors.read(ERRORS_MAX_BYTES).decode("utf-8", "replace")
    return CommandOutcome(endings[0] if endings else "exited", code, _ms_since(started), errors=problems)


def run_guarded(
    command: Command, timeout_s: float, max_processes: int, write: Callable[[bytes], None], stop: threading.Event
) -> CommandOutcome:
    """Run a command below a guard (`process_group.py`): all its processes end within `timeout_s` + 3 seconds.

    Raise ToolFailed on Windows, which has no such guard.
    """
    if sys.platform == "win32":
        raise ToolFailed("exec_failed", "bash is not available on this system")
    started = time.monotonic()
    tag = secrets.token_hex(8)
    tagged = Command(command.argv, {**command.env, TAG: tag}, command.cwd)
    reading, writing = os.pipe()
    try:
        script = (sys.executable, "-I", "-S", str(GUARD), str(writing), str(timeout_s), str(max_processes), "--")
        try:
            guard = _popen(tagged, (*script, *command.argv), subprocess.DEVNULL, (writing,))
        finally:
            os.close(writing)
        with guard:
            line = _follow(guard, reading, timeout_s, write, stop).partition(b"\n")[0]
    finally:
        os.close(reading)
    # A command may kill its own guard. Its processes still carry the tag.
    return (
        _outcome(json.decode(line), started) if line else CommandOutcome("lost", None, _ms_since(started), _sweep(tag))
    )


def _popen(
    command: Command, argv: Sequence[str], errors: int, pass_fds: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - without a shell; the guard's command is the user's own
            argv,
            cwd=command.cwd,
            env=dict(command.env),
            stdin=subprocess.PIPE if pass_fds else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            pass_fds=pass_fds,
            start_new_session=True,
            creationflags=NEW_GROUP,
        )
    except OSError as e:
        raise ToolFailed("exec_failed", f"{command.argv[0]} cannot be started: {e.strerror}") from e


def _follow(
    guard: subprocess.Popen[bytes],
    status: int,
    timeout_s: float,
    write: Callable[[bytes], None],
    stop: threading.Event,
) -> bytes:
    """Write the output until the guard has reported and the pipe is empty; return the report."""
    if sys.platform == "win32":
        return b""
    report = bytearray()
    sinks: dict[int, Callable[[bytes], None]] = {_output(guard): write, status: report.extend}
    deadline = time.monotonic() + timeout_s + KILL_WITHIN_S + 1
    while sinks:
        poll = select.poll()
        for fd in sinks:
            poll.register(fd, select.POLLIN | select.POLLHUP)
        for fd, _ in poll.poll(LOOK_EVERY_S * 1000):
            piece = os.read(fd, READ_BYTES)
            sinks[fd](piece) if piece else sinks.pop(fd)
        if stop.is_set() and guard.stdin and not guard.stdin.closed:
            guard.stdin.close()
        if status not in sinks:
            # No process should hold the pipe any more; one that does is not waited for.
            deadline = min(deadline, time.monotonic() + 1)
        if time.monotonic() > deadline:
            break
    guard.kill()
    return bytes(report)


def _outcome(report: JsonValue, started: float) -> CommandOutcome:
    match report:
        case {"why": "exec", "error": str(problem)}:
            raise ToolFailed("exec_failed", f"{problem}: the command could not be started")
        case {"why": ("exited" | "timeout" | "processes" | "stopped") as why, **rest}:
            status = rest.get("status")
            leftovers = rest.get("ended")
            code = os.waitstatus_to_exitcode(status) if isinstance(status, int) else None
            return CommandOutcome(why, code, _ms_since(started), leftovers if isinstance(leftovers, int) else 0)
    raise ToolFailed("exec_failed", "the process that supervises the command exited unexpectedly")


@contextlib.contextmanager
def _kill_at(process: subprocess.Popen[bytes], deadline: float, stop: threading.Event) -> Iterator[list[Ending]]:
    """End the process with the block at the latest, earlier at the deadline or when asked to stop."""
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
    if process.poll() is None:
        signal_group(process.pid, SIGKILL)


def _sweep(tag: str) -> int:
    """Kill what carries the tag of a command in its environment; return how many processes that were."""
    mark = f"{TAG}={tag}".encode()
    killed: set[int] = set()
    deadline = time.monotonic() + KILL_WITHIN_S
    while (found := _marked_processes(mark)) and time.monotonic() < deadline:
        killed.update(found)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, SIGKILL)
        time.sleep(0.02)
    return len(killed)


def _marked_processes(mark: bytes) -> list[int]:
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

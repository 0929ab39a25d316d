"""MCP servers that are programs of ours: started when they are needed, and again after they ended."""

import asyncio
import re
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Literal, TypeVar

from kimi_proxy.core.addresses import hide_secrets
from kimi_proxy.core.errors import KimiProxyError, UpstreamUnreachable
from kimi_proxy.proxy.mcp.protocol import within
from kimi_proxy.proxy.process import Command, OrphanCleanup, Process

FIRST_S = 0.5
LONGEST_S = 30.0
STEADY_S = 60.0  # a program that lived this long did not crash for the old reason
HOPELESS = 5  # number of crashes in a row after which calls no longer wait
LAST_LINES = 40  # of its output, among which the cause of its end is looked for
_TROUBLE = re.compile(
    r"error|exception|fatal|panic|cannot|could not|can't|failed|denied|refused|not found", re.IGNORECASE
)
_INFO = re.compile(
    r"\b(?:INFO|DEBUG|NOTICE|TRACE)\b|\[info\]|\blisten(?:s|ing)\b|\bready\b|\bstart(?:ed|ing)\b|\brunning on\b"
)
_NPM = re.compile(r"npm (?:error|ERR!) ?(.*)")
_NPM_ADVICE = {
    "E404": "there is no such npm package: check its name in args",
    "ENOTFOUND": "npm cannot reach its registry (offline?): it downloads the server at its first start",
    "EAI_AGAIN": "npm cannot reach its registry (offline?): it downloads the server at its first start",
    "ETARGET": "npm has no such version of the package: check it in args",
    "EACCES": "npm may not write to its folder: check who owns ~/.npm",
    "ENOSPC": "npm found no room on the disk",
}
OUTPUT_BYTES = 64 * 1024  # the amount of a program's output to keep


class Backoff:
    """The first restart comes at once, the next after 0.5 s, then twice as long each time, up to 30 s."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.crashes = 0
        self._not_before = 0.0

    @property
    def is_hopeless(self) -> bool:
        return self.crashes >= HOPELESS

    @property
    def wait_s(self) -> float:
        return max(0.0, self._not_before - self._now())

    def on_crash(self, lived_s: float) -> None:
        self.crashes = 1 if lived_s >= STEADY_S else self.crashes + 1
        pause = 0.0 if self.crashes == 1 else min(FIRST_S * 2.0 ** (self.crashes - 2), LONGEST_S)
        self._not_before = self._now() + pause


class ServerProcess(Process):
    """One run of a program. All of its output is for people; its input is a pipe that closes when we are gone."""

    guarded = sys.platform.startswith("linux")
    leave_s: ClassVar[float] = 0.0  # seconds it needs to exit on its own once its input is closed

    def __init__(self, server: str, orphans: OrphanCleanup | None = None, secrets: Sequence[str] = ()) -> None:
        super().__init__(orphans)
        self._server = server
        self._secrets = secrets
        self._output = bytearray()

    @property
    def output(self) -> str:
        """The end of its output, without the secrets that it was given."""
        return hide_secrets(self._output.decode("utf-8", "replace"), self._secrets)

    @property
    def ending(self) -> UpstreamUnreachable:
        """Return how it ended, in words."""
        lines = [line.strip() for line in reversed(self.output.strip().splitlines()[-LAST_LINES:]) if line.strip()]
        # Its last output may only be that it listens, which does not explain why it exited.
        telling = [line for line in lines if not _INFO.search(line)]
        said = next((line for line in telling if _TROUBLE.search(line)), telling[0] if telling else "")
        said = _npm_cause(lines) or said
        why = f" after saying: {said[:300]}" if said else "; its log names no error" if lines else ""
        status = self._require_transport.get_returncode()
        return UpstreamUnreachable(f"{self._server} ended with status {status}", detail=why)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._output += data
        del self._output[:-OUTPUT_BYTES]


def _npm_cause(newest_first: Sequence[str]) -> str:
    """Return why npx could not start a server, "" if it could: npm says it first, and last where its log is."""
    said = [found[1] for line in reversed(newest_first) if (found := _NPM.match(line))]
    code = next((each.removeprefix("code ").strip() for each in said if each.startswith("code ")), "")
    cause = next((each for each in said if each.strip() and not each.startswith(("code ", "A complete log"))), code)
    advice = f" ({_NPM_ADVICE[code]})" if code in _NPM_ADVICE else ""
    return f"npm error {cause}{advice}" if cause else ""


P = TypeVar("P", bound=ServerProcess)
T = TypeVar("T")

ProgramState = Literal["idle", "starting", "ready", "down", "degraded", "stopped"]


@dataclass(frozen=True, slots=True)
class RunningServer(Generic[P, T]):
    """A running program, and its client."""

    process: P
    connection: T
    since: float


@dataclass(frozen=True, slots=True)
class ProgramStatus:
    """The state of a program. `down` is restarted in `wait_s`, and so is `degraded`, which keeps crashing."""

    state: ProgramState
    pid: int | None
    up_s: float
    starts: int
    wait_s: float
    problem: KimiProxyError | None


class ServerProgram(Generic[P, T]):
    def __init__(
        self,
        server: str,
        command: Command,
        kind: type[P],
        connect: Callable[[P], Awaitable[T]],
        start_timeout_s: float,
        orphans: OrphanCleanup,
        now: Callable[[], float] = time.monotonic,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`before` may refuse a start; `connect` returns once the program is known to be the right one, and ready."""
        self._server = server
        self._command = command
        self._kind = kind
        self._connect = connect
        self._start_timeout_s = start_timeout_s
        self._orphans = orphans
        self._now = now
        self._before = before
        self._backoff = Backoff(now)
        self._process: P | None = None
        self._running: RunningServer[P, T] | None = None
        self._starting: asyncio.Task[RunningServer[P, T]] | None = None
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._past = ""
        self._problem: KimiProxyError | None = None
        self._starts = 0

    @property
    def output(self) -> str:
        """The end of the program's output, in this run and earlier ones."""
        return self._past + (self._process.output if self._process else "")

    @property
    def wait_s(self) -> float:
        """The seconds until the program may be started again."""
        return self._backoff.wait_s

    def status(self) -> ProgramStatus:
        up_s = self._now() - self._running.since if self._running else 0.0
        pid = self._process.pid if self._process and self._process.is_alive else None
        wait_s = self.wait_s if self._wanted.is_set() else 0.0
        return ProgramStatus(self._state, pid, up_s, self._starts, wait_s, self._problem)

    @property
    def _state(self) -> ProgramState:
        if not self._wanted.is_set():
            return "stopped"
        if self._running is not None and self._running.process.is_alive:
            return "ready"
        if self._backoff.is_hopeless:
            return "degraded"
        if self._starting is not None and not self._starting.done() and self.wait_s == 0:
            return "starting"
        return "down" if self._starts else "idle"

    def refuse_if_stopped(self) -> None:
        """Raise UpstreamUnreachable if the program was stopped on purpose."""
        if not self._wanted.is_set():
            raise self._stopped_error()

    async def running(self) -> RunningServer[P, T]:
        """Return the program's present run, or start the next one; raise UpstreamUnreachable if it was stopped."""
        self.refuse_if_stopped()
        if self._running is not None:
            if self._running.process.is_alive:
                return self._running
            await self._clear(self._running)
            if not self._wanted.is_set():  # it was stopped in the meantime
                raise self._stopped_error()
        if self._starting is None or self._starting.done():
            # The first caller may give up; the others still wait for the same start.
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(_seen)
        try:
            return await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._wanted.is_set() or (task is not None and task.cancelling()):
                raise
            raise self._stopped_error() from None

    def _stopped_error(self) -> UpstreamUnreachable:
        return UpstreamUnreachable(f"{self._server} was stopped: kimi-proxy mcp up {self._server} starts it")

    async def wait_ended(self) -> None:
        """Wait for the end of the present run."""
        if self._running is not None:
            await self._running.process.wait_closed()

    async def wait_wanted(self) -> None:
        """Wait until the program is not stopped on purpose."""
        await self._wanted.wait()

    async def stop(self) -> None:
        """End the program, and do not start it again until `resume`."""
        self._wanted.clear()
        await self.close()

    def resume(self) -> None:
        """Allow starts again, and forget earlier crashes: their cause may have been fixed."""
        self._wanted.set()
        self._backoff = Backoff(self._now)

    async def close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._running is not None:
            running, self._running = self._running, None
            await self._wait_process(running.process)

    async def _clear(self, running: RunningServer[P, T]) -> None:
        if self._running is running:
            self._running = None
            self._backoff.on_crash(self._now() - running.since)
            self._problem = running.process.ending
            await self._wait_process(running.process)

    async def _start(self) -> RunningServer[P, T]:
        await self._pause()
        self._starts += 1
        try:
            process = await self._launch()
            connection = await self._connect_client(process)
        except BaseException as e:
            if isinstance(e, KimiProxyError):
                self._problem = e
            self._backoff.on_crash(0)
            raise
        self._problem = None
        self._running = RunningServer(process, connection, self._now())
        return self._running

    async def _launch(self) -> P:
        if self._before is not None:
            await self._before()
        process = self._kind(self._server, self._orphans, self._command.secrets)
        try:
            await process.launch(self._command)
        except (OSError, ValueError) as e:
            raise UpstreamUnreachable(f"{self._server} cannot be started", detail=f": {self._why(e)}") from e
        self._process = process
        return process

    def _why(self, error: Exception) -> str:
        """Describe the problem with the configured program, and where it is set."""
        program = self._command.argv[0]
        where = f"command in [mcp.servers.{self._server}]"
        if self._command.cwd is not None and not Path(self._command.cwd).is_dir():
            return f"the folder {str(self._command.cwd)!r} does not exist: correct root in [mcp.servers.{self._server}]"
        if isinstance(error, FileNotFoundError):
            node = ", or Node, which it comes with" if program == "npx" else ""
            return f"program {program!r} not found: install it{node}, or correct {where}"
        return f"{program!r}: {getattr(error, 'strerror', None) or error}: correct {where}"

    async def _connect_client(self, process: P) -> T:
        try:
            async with within(self._server, self._start_timeout_s):
                return await self._connect(process)
        except UpstreamUnreachable as e:
            await self._wait_process(process)
            raise process.ending from e
        except BaseException:
            await self._wait_process(process)
            raise

    async def _pause(self) -> None:
        wait_s = self._backoff.wait_s
        if self._backoff.is_hopeless and wait_s > 0:
            raise UpstreamUnreachable(
                f"{self._server} crashed {self._backoff.crashes} times in a row: "
                f"it restarts in {wait_s:.1f} s at the earliest",
                retry_after_s=wait_s,
            )
        await asyncio.sleep(wait_s)

    async def _wait_process(self, process: P) -> None:
        await process.end(process.leave_s)
        self._past = f"{self._past}{process.output}[{process.ending.full}]\n"[-OUTPUT_BYTES:]
        if self._process is process:
            self._process = None


def _seen(task: asyncio.Task[RunningServer[P, T]]) -> None:
    """Retrieve the exception of a start that no caller waits for any more, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()

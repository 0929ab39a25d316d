"""One life of a program that we run: what it says is remembered, and it is ended with all that it started."""

import asyncio
import os
import signal
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, Self, TypeVar, cast

from kimi_proxy.core.errors import KimiProxyError, UpstreamUnreachable
from kimi_proxy.proxy.mcp.protocol import within
from kimi_proxy.proxy.orphan_cleanup import Reaper

FIRST_S = 0.5
LONGEST_S = 30.0
STEADY_S = 60.0  # whatever lived this long did not crash for the old reason
HOPELESS = 5  # crashes in a row after which nobody is kept waiting


class Backoff:
    """The first restart comes at once, the next after 0.5 s, then twice as long each time, up to 30 s."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._crashes = 0
        self._not_before = 0.0

    @property
    def crashes(self) -> int:
        return self._crashes

    @property
    def is_hopeless(self) -> bool:
        return self._crashes >= HOPELESS

    @property
    def wait_s(self) -> float:
        return max(0.0, self._not_before - self._now())

    def crashed(self, lived_s: float) -> None:
        self._crashes = 1 if lived_s >= STEADY_S else self._crashes + 1
        pause = 0.0 if self._crashes == 1 else min(FIRST_S * 2.0 ** (self._crashes - 2), LONGEST_S)
        self._not_before = self._now() + pause


STDIN, STDOUT, STDERR = 0, 1, 2
SAID_BYTES = 64 * 1024  # what we remember of what it says
GOODBYE_S = 1.0  # for each of SIGTERM and SIGKILL


@dataclass(frozen=True, slots=True)
class Command:
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None


class Process(asyncio.SubprocessProtocol):
    """All output is for people. The input is a pipe that closes when we are gone."""

    goodbye_s: ClassVar[float] = 0.0  # what it takes to leave by itself once its input is closed

    def __init__(self, server: str, watch: Callable[[int], None]) -> None:
        self._server = server
        self._watch = watch
        self._said = bytearray()
        self._ending = False
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(cls, server: str, command: Command, watch: Callable[[int], None] = lambda group: None) -> Self:
        """Run `command`; `watch` is told its process group before anything else happens."""
        loop = asyncio.get_running_loop()
        try:
            _, process = await loop.subprocess_exec(
                lambda: cls(server, watch),
                *command.argv,
                env=dict(command.env),
                cwd=command.cwd,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as e:
            raise UpstreamUnreachable(f"{server} cannot be started: {e}") from e
        return process

    @property
    def group(self) -> int:
        """The process group of the program and of what it starts."""
        return self._transport.get_pid()

    @property
    def alive(self) -> bool:
        return not self._ending

    @property
    def said(self) -> str:
        """The end of what it said."""
        return self._said.decode("utf-8", "replace")

    @property
    def ending(self) -> UpstreamUnreachable:
        """How it ended, in words."""
        words = self.said.strip().splitlines()[-1:]
        why = f" after saying: {words[0][:300]}" if words else ""
        return UpstreamUnreachable(f"{self._server} ended with status {self._transport.get_returncode()}{why}")

    async def gone(self) -> None:
        """Wait until it has ended by itself, or by us."""
        await asyncio.shield(self._gone)

    async def end(self) -> None:
        """Ask it to leave, then make it: input closed, SIGTERM, SIGKILL to the whole group."""
        self._ending = True
        self._pipe(STDIN).close()
        for wait_s, number in (
            (self.goodbye_s, signal.SIGTERM),
            (GOODBYE_S, signal.SIGKILL),
            (GOODBYE_S, None),
        ):
            await asyncio.wait({self._gone}, timeout=wait_s)
            if not self._gone.done() and number is not None:
                self._signal(number)
        self._transport.close()
        await asyncio.shield(self._gone)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._watch(self.group)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._said += data
        del self._said[:-SAID_BYTES]

    def process_exited(self) -> None:
        """What it left behind goes too; the pipes close then, once they are read to the end."""
        self._ending = True
        self._signal(signal.SIGKILL)
        asyncio.get_running_loop().call_later(GOODBYE_S, self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set_result(None)
        self._transport.close()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, number)

    def _pipe(self, fd: int) -> asyncio.WriteTransport:  # standard output's is closed, never written
        return cast(asyncio.WriteTransport, self._transport.get_pipe_transport(fd))


P = TypeVar("P", bound=Process)
T = TypeVar("T")

State = Literal["idle", "starting", "ready", "down", "degraded", "stopped"]


@dataclass(frozen=True, slots=True)
class Life(Generic[P, T]):
    """A program that answers, and what we learned when we met it."""

    process: P
    met: T
    since: float


@dataclass(frozen=True, slots=True)
class Vitals:
    """How a program is doing. `down` is started again in `wait_s`, and so is `degraded`, which crashes all the time."""

    state: State
    pid: int | None
    up_s: float
    starts: int
    wait_s: float
    problem: KimiProxyError | None


class Child(Generic[P, T]):
    def __init__(
        self,
        server: str,
        command: Command,
        kind: type[P],
        meet: Callable[[P], Awaitable[T]],
        start_timeout_s: float,
        reaper: Reaper,
        now: Callable[[], float] = time.monotonic,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`before` may refuse a start; `meet` returns once the program is known to be the right one, and ready."""
        self._server = server
        self._command = command
        self._kind = kind
        self._meet = meet
        self._start_timeout_s = start_timeout_s
        self._reaper = reaper
        self._now = now
        self._before = before
        self._backoff = Backoff(now)
        self._process: P | None = None
        self._life: Life[P, T] | None = None
        self._starting: asyncio.Task[Life[P, T]] | None = None
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._past = ""
        self._problem: KimiProxyError | None = None
        self._starts = 0

    @property
    def said(self) -> str:
        """The end of what the program said, in this life and in those before."""
        return self._past + (self._process.said if self._process else "")

    @property
    def wait_s(self) -> float:
        """How long it takes at least until the program is started again."""
        return self._backoff.wait_s

    def vitals(self) -> Vitals:
        up_s = self._now() - self._life.since if self._life else 0.0
        pid = self._process.group if self._process and self._process.alive else None
        wait_s = self.wait_s if self._wanted.is_set() else 0.0
        return Vitals(self._state, pid, up_s, self._starts, wait_s, self._problem)

    @property
    def _state(self) -> State:
        if not self._wanted.is_set():
            return "stopped"
        if self._life is not None and self._life.process.alive:
            return "ready"
        if self._backoff.is_hopeless:
            return "degraded"
        if self._starting is not None and not self._starting.done() and self.wait_s == 0:
            return "starting"
        return "down" if self._starts else "idle"

    async def running(self) -> Life[P, T]:
        """The program's present life, or the next one."""
        if not self._wanted.is_set():
            raise self._stopped()
        if self._life is not None:
            if self._life.process.alive:
                return self._life
            await self._bury(self._life)
            if not self._wanted.is_set():  # somebody has stopped it meanwhile
                raise self._stopped()
        if self._starting is None or self._starting.done():
            # Whoever asked first may give up; the others still wait for the same start.
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(_seen)
        try:
            return await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._wanted.is_set() or (task is not None and task.cancelling()):
                raise
            raise self._stopped() from None

    def _stopped(self) -> UpstreamUnreachable:
        return UpstreamUnreachable(f"{self._server} was stopped: kimi-proxy mcp up {self._server} starts it")

    async def ended(self) -> None:
        """Wait for the end of the present life."""
        if self._life is not None:
            await self._life.process.gone()

    async def wanted(self) -> None:
        """Wait until nobody wants the program stopped."""
        await self._wanted.wait()

    async def stop(self) -> None:
        """End the program, and do not start it again until `resume`."""
        self._wanted.clear()
        await self.close()

    def resume(self) -> None:
        """Forget earlier crashes: somebody may have mended what was wrong."""
        self._wanted.set()
        self._backoff = Backoff(self._now)

    async def close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._life is not None:
            life, self._life = self._life, None
            await self._ended(life.process)

    async def _bury(self, life: Life[P, T]) -> None:
        if self._life is life:
            self._life = None
            self._backoff.crashed(self._now() - life.since)
            self._problem = life.process.ending
            await self._ended(life.process)

    async def _start(self) -> Life[P, T]:
        await self._pause()
        self._starts += 1
        try:
            process = await self._launched()
            met = await self._introduced(process)
        except BaseException as e:
            if isinstance(e, KimiProxyError):
                self._problem = e
            self._backoff.crashed(0)
            raise
        self._problem = None
        self._life = Life(process, met, self._now())
        return self._life

    async def _launched(self) -> P:
        if self._before is not None:
            await self._before()
        self._process = await self._kind.start(self._server, self._command, self._reaper.watch)
        return self._process

    async def _introduced(self, process: P) -> T:
        try:
            async with within(self._server, self._start_timeout_s):
                return await self._meet(process)
        except UpstreamUnreachable as e:
            await self._ended(process)
            raise process.ending from e
        except BaseException:
            await self._ended(process)
            raise

    async def _pause(self) -> None:
        wait_s = self._backoff.wait_s
        if self._backoff.is_hopeless and wait_s > 0:
            raise UpstreamUnreachable(
                f"{self._server} crashed {self._backoff.crashes} times in a row: "
                f"it is started again in {wait_s:.1f} s at the earliest",
                retry_after_s=wait_s,
            )
        await asyncio.sleep(wait_s)

    async def _ended(self, process: P) -> None:
        await process.end()
        self._reaper.forget(process.group)
        self._past = f"{self._past}{process.said}[{process.ending}]\n"[-SAID_BYTES:]
        if self._process is process:
            self._process = None


def _seen(task: asyncio.Task[Life[P, T]]) -> None:
    """A start that failed after everybody gave up is no loose end."""
    if not task.cancelled():
        task.exception()

"""A program that we run: started when it is first needed, and again when it dies."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from kimi_proxy.core.errors import KimiProxyError, UpstreamUnreachable
from kimi_proxy.proxy.mcp.backoff import Backoff
from kimi_proxy.proxy.mcp.deadline import within
from kimi_proxy.proxy.mcp.process import SAID_BYTES, Command, Process
from kimi_proxy.proxy.mcp.reaper import Reaper

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

"""A server that we run ourselves: started when first needed, and again when it dies."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kimi_proxy.core.errors import UpstreamError, UpstreamUnreachable, UpstreamUnreadable
from kimi_proxy.core.types import JsonObject
from kimi_proxy.proxy.mcp import hello
from kimi_proxy.proxy.mcp.backoff import Backoff
from kimi_proxy.proxy.mcp.deadline import within
from kimi_proxy.proxy.mcp.hello import Hello
from kimi_proxy.proxy.mcp.program import Program
from kimi_proxy.proxy.mcp.reaper import Reaper


@dataclass(frozen=True, slots=True)
class Command:
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class Met:
    """A program that has introduced itself."""

    program: Program
    hello: Hello
    since: float


class Stdio:
    def __init__(
        self,
        server: str,
        command: Command,
        start_timeout_s: float,
        reaper: Reaper,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._command = command
        self._start_timeout_s = start_timeout_s
        self._reaper = reaper
        self._now = now
        self._backoff = Backoff(now)
        self._met: Met | None = None
        self._starting: asyncio.Task[Met] | None = None

    @property
    def said(self) -> str:
        """The end of what the program wrote on standard error."""
        return self._met.program.said if self._met else ""

    async def forward(self, message: JsonObject, timeout_s: float) -> JsonObject | None:
        met = await self._running()
        async with within(self._server, timeout_s):
            return await hello.through(met.hello, message, met.program.send)

    async def close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._met is not None:
            await self._ended(self._met.program)
            self._met = None

    async def _running(self) -> Met:
        if self._met is not None:
            if self._met.program.alive:
                return self._met
            await self._bury(self._met)
        if self._starting is None or self._starting.done():
            # Whoever asked first may give up; the others still wait for the same start.
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(_seen)
        return await asyncio.shield(self._starting)

    async def _bury(self, met: Met) -> None:
        if self._met is met:
            self._met = None
            self._backoff.crashed(self._now() - met.since)
            await self._ended(met.program)

    async def _start(self) -> Met:
        await self._pause()
        program = await self._launched()
        self._reaper.watch(program.group)
        try:
            async with within(self._server, self._start_timeout_s):
                introduction = await self._meet(program)
        except BaseException:
            self._backoff.crashed(0)
            await self._ended(program)
            raise
        self._met = Met(program, introduction, self._now())
        return self._met

    async def _launched(self) -> Program:
        try:
            return await Program.start(self._server, self._command.argv, self._command.env, self._command.cwd)
        except UpstreamUnreachable:
            self._backoff.crashed(0)
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

    async def _meet(self, program: Program) -> Hello:
        """Ask the old way first: a program of that era may be silent about what it does not know."""
        match await program.send(hello.INITIALIZE):
            case {"result": dict(about)}:
                await program.send(hello.INITIALIZED)
                return Hello(False, about)
        match await program.send(hello.DISCOVER):
            case {"result": dict(about)}:
                return Hello(True, about)
            case {"error": {"message": problem}}:
                raise UpstreamError(f"{self._server} refused to begin: {str(problem)[:200]}")
        raise UpstreamUnreadable(f"{self._server} did not introduce itself")

    async def _ended(self, program: Program) -> None:
        await program.end()
        self._reaper.forget(program.group)


def _seen(task: asyncio.Task[Met]) -> None:
    """A start that failed after everybody gave up is no loose end."""
    if not task.cancelled():
        task.exception()

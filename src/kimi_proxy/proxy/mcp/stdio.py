"""A server that we run ourselves and speak to on its standard input and output."""

import time
from collections.abc import Callable

from kimi_proxy.core.errors import UpstreamError, UpstreamUnreadable
from kimi_proxy.core.types import JsonObject
from kimi_proxy.proxy.mcp import hello
from kimi_proxy.proxy.mcp.child import Child
from kimi_proxy.proxy.mcp.deadline import within
from kimi_proxy.proxy.mcp.hello import Hello
from kimi_proxy.proxy.mcp.process import Command
from kimi_proxy.proxy.mcp.program import Program
from kimi_proxy.proxy.mcp.reaper import Reaper


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
        self.child = Child(server, command, Program, self._meet, start_timeout_s, reaper, now)

    async def forward(self, message: JsonObject, timeout_s: float) -> JsonObject | None:
        life = await self.child.running()
        async with within(self._server, timeout_s):
            return await hello.through(life.met, message, life.process.send)

    async def close(self) -> None:
        await self.child.close()

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

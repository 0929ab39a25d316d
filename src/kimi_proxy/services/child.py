"""A worker process as its parent holds it: asked one job at a time, and killed without regret."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping, Sequence
from typing import Self, TypeAlias, cast

from kimi_proxy.services import jobs

# -P: the current directory is the user's, and a numpy.py in it is not ours.
COMMAND = (sys.executable, "-P", "-m", "kimi_proxy.services.worker")

DYING_S = 1.0

Answer: TypeAlias = tuple[bool, bytes]  # whether the job went well; what came of it, or what went wrong
_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")


class Child(asyncio.SubprocessProtocol):
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._answer: asyncio.Future[Answer | None] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()
        self.is_alive = True
        self._retirement: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, command: Sequence[str] = COMMAND) -> Self:
        """A process that is on its way. Not to be cancelled: asyncio would lose sight of it."""
        spawn = asyncio.get_running_loop().subprocess_exec
        _, child = await spawn(cls, *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=without_secrets(os.environ))
        return child

    async def ready(self) -> None:
        """Wait for the first thing that it says, which is that it is ready for jobs."""
        await self._answered()

    async def ask(self, message: bytes) -> Answer:
        self._answer = asyncio.get_running_loop().create_future()
        pipe = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        pipe.write(jobs.HEADER.pack(jobs.DONE, len(message)) + message)
        return await self._answered()

    def retire_after(self, idle_s: float, retire: Callable[[Self], object]) -> None:
        self._retirement = asyncio.get_running_loop().call_later(idle_s, retire, self)

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a job, or else for its retirement."""
        return self.is_alive and self._retirement is not None and not self._retirement.cancelled()

    def cancel_retirement(self) -> None:
        if self._retirement:
            self._retirement.cancel()

    async def end(self) -> None:
        """Kill it, close its pipes and wait until nothing of it is left."""
        self.cancel_retirement()
        if not self.is_alive:
            # It dies by itself. asyncio complains if it isn't the one who finds out.
            await asyncio.wait([self._gone], timeout=DYING_S)
        self._transport.close()
        await asyncio.shield(self._gone)

    async def _answered(self) -> Answer:
        answer = await self._answer
        if answer is None:
            raise ChildProcessError("a worker ended in the middle of a job")
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._received += data
        if len(self._received) < jobs.HEADER.size:
            return
        status, size = jobs.HEADER.unpack_from(self._received)
        if len(self._received) < jobs.HEADER.size + size or self._answer.done():
            return
        message = bytes(self._received[jobs.HEADER.size :])
        self._received.clear()
        self._answer.set_result((status == jobs.DONE, message))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self.is_alive = False
        if not self._answer.done():
            self._answer.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set_result(None)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.upper().endswith(_SECRETS)}

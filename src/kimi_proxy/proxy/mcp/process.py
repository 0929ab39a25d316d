"""One life of a program that we run: what it says is remembered, and it is ended with all that it started."""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Self, cast

from kimi_proxy.core.errors import UpstreamUnreachable

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

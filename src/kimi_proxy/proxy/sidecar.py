"""A server of ours in a process of its own, which serves us and does not outlive us."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self, cast

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import ParseError, UpstreamUnreachable
from kimi_proxy.proxy.mcp.reaper import Reaper

MAX_LINE_BYTES = 64 * 1024


class Sidecar(asyncio.SubprocessProtocol):
    """`address` is where the server says that it listens, `ended` its exit code; negative for a signal."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.address: asyncio.Future[tuple[str, int]] = loop.create_future()
        self.ended: asyncio.Future[int] = loop.create_future()
        self._said = b""
        self._reaper: Reaper | None = None

    @classmethod
    async def start(cls, argv: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path) -> Self:
        """What the server says on standard error goes to `log`."""
        sidecar = cls()
        try:
            with log.open("ab") as errors:
                await asyncio.get_running_loop().subprocess_exec(
                    lambda: sidecar,
                    *argv,
                    env=dict(env),
                    cwd=cwd,
                    stdin=DEVNULL,
                    stdout=PIPE,
                    stderr=errors,
                    # Ctrl-C in the terminal is for the agent.
                    start_new_session=True,
                )
        except (OSError, ValueError) as e:
            raise UpstreamUnreachable(f"{argv[0]} cannot be started: {e}") from e
        except asyncio.CancelledError:
            await sidecar.kill()
            raise
        return sidecar

    @property
    def pid(self) -> int:
        return self._transport.get_pid()

    async def stop(self, patience_s: float) -> bool:
        """Ask it to end, then make it; False if it had to be made."""
        with suppress(ProcessLookupError):
            self._transport.send_signal(signal.SIGTERM)
        await asyncio.wait({self.ended}, timeout=patience_s)
        in_time = self.ended.done()
        await self.kill()
        return in_time

    async def kill(self) -> None:
        """End it at once, and all that it left in its group."""
        if self._reaper is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        await asyncio.wait({self.ended})
        self._transport.close()
        self._reaper.forget(self.pid)
        self._reaper.close()
        self._reaper = None  # the number may belong to somebody else from now on

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._reaper = Reaper()
        self._reaper.watch(self.pid)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self.address.done():
            return
        *lines, rest = (self._said + data).split(b"\n")
        self._said = rest[-MAX_LINE_BYTES:]
        for line in lines:
            found = _address(line)
            if found is not None and not self.address.done():
                self.address.set_result(found)

    def process_exited(self) -> None:
        self.ended.set_result(self._transport.get_returncode() or 0)


def _address(line: bytes) -> tuple[str, int] | None:
    try:
        match jsontext.decode(line):
            case {"url": str(url)}:
                host, _, port = url.removeprefix("http://").rpartition(":")
                return host, int(port)
    except (ParseError, ValueError):
        pass
    return None

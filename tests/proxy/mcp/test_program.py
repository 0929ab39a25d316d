"""When a program of ours is started, and when it is not."""

import asyncio
import os
import sys

import pytest
from tests.processes import until

from kimi_proxy.core.errors import UpstreamUnreachable
from kimi_proxy.proxy.mcp.program import ServerProcess, ServerProgram
from kimi_proxy.proxy.process import Command, OrphanCleanup


class SlowToEnd(ServerProcess):
    """A program that takes its time to be cleared away, until `cleared` is set."""

    cleared = asyncio.Event()

    async def end(self, leave_s: float = 0.0, grace_s: float = 1.0) -> bool:
        await self.cleared.wait()
        return await super().end(leave_s, grace_s)


async def met(process: ServerProcess) -> str:
    return "hello"


async def test_a_program_that_is_stopped_while_it_is_being_cleared_is_not_started_again():
    SlowToEnd.cleared = asyncio.Event()
    orphans = OrphanCleanup()
    command = Command((sys.executable, "-c", "import time; time.sleep(600)"), {"PATH": os.environ["PATH"]})
    program = ServerProgram("script", command, SlowToEnd, met, 20, orphans)
    try:
        running = await program.running()
        os.kill(running.process.pid, 9)
        await running.process.closed()
        again = asyncio.create_task(program.running())
        await asyncio.sleep(0)  # it clears the first one away

        await program.stop()
        SlowToEnd.cleared.set()

        with pytest.raises(UpstreamUnreachable, match="script was stopped"):
            await again
        assert program.status().pid is None
    finally:
        SlowToEnd.cleared.set()
        await program.close()
        await until(lambda: program.status().pid is None)
        orphans.close()


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (b"", ""),
        (b"INFO server listening on port 3000\n", "; its log names no error"),
        (b"INFO starting\nError: EADDRINUSE\n    at listen\nINFO bye\n", " after saying: Error: EADDRINUSE"),
        (b"cannot open x\nmy configuration is nowhere\n", " after saying: cannot open x"),
        (b"my configuration is nowhere\n", " after saying: my configuration is nowhere"),
    ],
)
async def test_the_cause_of_an_end_is_what_was_said_of_trouble_and_no_other_line(output: bytes, why: str):
    command = Command((sys.executable, "-c", f"import os; os.write(2, {output!r}); os._exit(7)"), dict(os.environ))
    process = ServerProcess("s")
    await process.launch(command)
    await process.closed()

    assert str(process.ending) == f"s ended with status 7{why}"

"""When a program of ours is started, and when it is not."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from tests.support.processes import until

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
        await running.process.wait_closed()
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
        (
            b"npm error code E404\nnpm error 404 Not Found - GET https://registry.npmjs.org/nope - Not found\n"
            b"npm error 404\nnpm error A complete log of this run can be found in: /x/_logs/debug-0.log\n",
            " after saying: npm error 404 Not Found - GET https://registry.npmjs.org/nope - Not found"
            " (there is no such npm package: check its name in args)",
        ),
        (
            b"npm ERR! code EAI_AGAIN\nnpm ERR! request to https://registry.npmjs.org/x failed\n\n"
            b"npm ERR! A complete log of this run can be found in:\nnpm ERR!     /x/_logs/debug-0.log\n",
            " after saying: npm error request to https://registry.npmjs.org/x failed"
            " (npm cannot reach its registry (offline?): it downloads the server at its first start)",
        ),
        (b"my configuration is nowhere\n", " after saying: my configuration is nowhere"),
    ],
)
async def test_the_cause_of_an_end_is_what_was_said_of_trouble_and_no_other_line(output: bytes, why: str):
    command = Command((sys.executable, "-c", f"import os; os.write(2, {output!r}); os._exit(7)"), dict(os.environ))
    process = ServerProcess("s")
    await process.launch(command)
    await process.wait_closed()

    assert process.ending.full == f"s ended with status 7{why}"


EARLY_ENDS = """
import asyncio, json, os, time
import uvloop
from kimi_proxy.proxy.mcp.program import ServerProcess
from kimi_proxy.proxy.process import Command

PROGRAM = Command(("/bin/sh", "-c", "echo x >&2; exit 3"), {"PATH": "/usr/bin:/bin"})

async def run():
    process = ServerProcess("s")
    await process.launch(PROGRAM)
    await process.wait_closed()
    return await process.exited, process.output

async def hold_the_loop():
    while True:  # so that a program's start and its end are seen in the same turn of the loop
        time.sleep(0.2)
        await asyncio.sleep(0)

async def main():
    before = len(os.listdir("/proc/self/fd"))
    busy = asyncio.create_task(hold_the_loop())
    ended = await asyncio.gather(*(run() for _ in range(6)))
    busy.cancel()
    print(json.dumps([ended, len(os.listdir("/proc/self/fd")) - before]))

uvloop.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there are no guards elsewhere")
def test_programs_that_end_while_their_start_is_still_being_read_do_not_abort_the_server():
    done = subprocess.run([sys.executable, "-c", EARLY_ENDS], capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr  # libuv aborts the process where a watched descriptor is closed
    ended, left_open = json.loads(done.stdout)
    assert ended == 6 * [[3, "x\n"]]
    assert left_open <= 2  # what uvloop keeps for signals; a guard has two pipes

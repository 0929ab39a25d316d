"""When a program of ours is started, and when it is not."""

import asyncio
import os
import sys

import pytest
from tests.processes import until

from kimi_proxy.core.errors import UpstreamUnreachable
from kimi_proxy.proxy.mcp.process import Child, Command, Process
from kimi_proxy.proxy.orphan_cleanup import Reaper


class SlowToBury(Process):
    """A program that takes its time to be cleared away, until `buried` is set."""

    buried = asyncio.Event()

    async def end(self) -> None:
        await self.buried.wait()
        await super().end()


async def met(process: Process) -> str:
    return "hello"


async def test_a_program_that_is_stopped_while_it_is_being_buried_is_not_started_again():
    SlowToBury.buried = asyncio.Event()
    reaper = Reaper()
    command = Command((sys.executable, "-c", "import time; time.sleep(600)"), {"PATH": os.environ["PATH"]})
    child = Child("script", command, SlowToBury, met, 20, reaper)
    try:
        life = await child.running()
        os.kill(life.process.group, 9)
        await life.process.gone()
        again = asyncio.create_task(child.running())
        await asyncio.sleep(0)  # it buries

        await child.stop()
        SlowToBury.buried.set()

        with pytest.raises(UpstreamUnreachable, match="script was stopped"):
            await again
        assert child.vitals().pid is None
    finally:
        SlowToBury.buried.set()
        await child.close()
        await until(lambda: child.vitals().pid is None)
        reaper.close()

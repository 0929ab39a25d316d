"""The engine and the store without a server: what the commands work on.

Imports wait until a command needs them, so that `--help` answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kimi_proxy.services.runtime import Runtime

T = TypeVar("T")


def with_runtime(job: Callable[[Runtime], Awaitable[T]]) -> T:
    """Do `job` with everything open that it may need, and close it again."""
    import asyncio

    from kimi_proxy.cli.settings import load
    from kimi_proxy.core.config import Log
    from kimi_proxy.core.logs import write_to_stderr
    from kimi_proxy.services.runtime import running

    write_to_stderr(Log(level="error"))  # what a person should know, the command tells in its own words

    async def opened() -> T:
        async with running(load().config) as runtime:
            return await job(runtime)

    return asyncio.run(opened())

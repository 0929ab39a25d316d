"""What the tests of supervisor share with others."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.fakes import MemoryOriginals

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import parse
from kimi_proxy.core.json import JsonObject
from kimi_proxy.services.gateway import Gateway
from kimi_proxy.services.gateway.supervisor import Supervisor
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.pruner import Pruner
from kimi_proxy.services.workers.pool import Workers


@asynccontextmanager
async def supervised(toml: str, home: Path, keep: bool = True) -> AsyncIterator[tuple[Supervisor, Gateway]]:
    config = parse(toml, {}, home)
    store, workers, metrics = MemoryOriginals(), Workers(thread_max_chars=10**9), Metrics()
    pruner = Pruner(config.mcp_pruner, store, workers, metrics=metrics)
    gateway = Gateway(config, store, pruner, metrics, {"PATH": os.environ["PATH"]})
    supervisor = Supervisor(gateway)
    if keep:
        supervisor.start()
    try:
        yield supervisor, gateway
    finally:
        await supervisor.close()
        await gateway.close()
        await workers.close()


async def status_of(supervisor: Supervisor, name: str) -> JsonObject:
    return next(status for status in await supervisor.status(LOCAL) if status["name"] == name)


async def in_state(supervisor: Supervisor, name: str, *states: str, within_s: float = 60) -> JsonObject:
    deadline = time.monotonic() + within_s
    while (status := await status_of(supervisor, name))["state"] not in states:
        assert time.monotonic() < deadline, status
        await asyncio.sleep(0.02)
    return status

"""What the tests of workers share with others."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.texts import a_log, a_question

from kimi_proxy.core.prune import Origin
from kimi_proxy.features.sanitizer.shorten import Task
from kimi_proxy.services.workers.pool import Workers

ID = "prn_0123456789abcdef"

LONG = a_log(2_000)  # long enough for a child

# A worker as it is, but for the engine in it.
SCRIPTED = """
import os, time
from kimi_proxy.features.pruning import engine
prune = engine.prune
def scripted(question, *rest):
    {script}
engine.prune = scripted
from kimi_proxy.services.workers import worker
worker.main()
"""


def scripted(script: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-c", SCRIPTED.format(script=script))


@asynccontextmanager
async def open_workers(**settings: object) -> AsyncIterator[Workers]:
    workers = Workers(**{"hurried_s": 60.0, **settings})  # type: ignore[arg-type]
    try:
        yield workers
    finally:
        await workers.close()


def a_task(text: str) -> Task:
    return Task(text, "why was the payment refused?", Origin("bash"), True, 1000, 200, b"seed")


async def started(workers: Workers) -> None:
    """Have a child ready, by work that no script changes."""
    await workers.local_scores(a_question(a_log(1000)), 60)


# What freezes a parser: clean code, so that a look at the beginning finds nothing, then what it recovers from in
# quadratic time (17 s for these 46 KB).
CLEAN = ("fn add(a: i32, b: i32) -> i32 {\n" + "    let x = a + b;\n" * 12 + "    x * 2\n}\n") * 55

FREEZING = CLEAN + "%w[\n" * 8_000

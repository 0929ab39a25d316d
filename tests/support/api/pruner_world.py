"""The pruner itself, with its store and its workers, on a real port."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.api.world import in_thread

from kimi_proxy.api.server import serve
from kimi_proxy.assembly.apps import pruner_app
from kimi_proxy.assembly.runtime import running
from kimi_proxy.core.config import parse


@contextmanager
def pruner(home: Path, toml: str = "", **environment: str) -> Iterator[int]:
    """Run the pruner from a thread of its own; gives the port."""
    config = parse(toml, {"KIMI_PROXY_HOME": str(home), **environment}, home)

    async def main(stop: asyncio.Event, on_ready: Callable[[str, int], None]) -> None:
        async with running(config, thread_max_chars=32 * 1024) as runtime:
            await serve(pruner_app(runtime), "127.0.0.1", 0, stop=stop, token=True, on_ready=on_ready)

    with in_thread(main) as port:
        yield port

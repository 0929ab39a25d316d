"""The pruner itself, with its store and its workers, on a real port."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kimi_proxy.api.apps import pruner_app
from kimi_proxy.api.server import serve
from kimi_proxy.core.config import parse
from kimi_proxy.services.runtime import running


@contextmanager
def pruner(home: Path, toml: str = "", **environment: str) -> Iterator[int]:
    """Run the pruner from a thread of its own; gives the port."""
    config = parse(toml, {"KIMI_PROXY_HOME": str(home), **environment}, home)
    ready, ports = threading.Event(), list[int]()
    stops = list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()

    def on_ready(host: str, port: int) -> None:
        ports.append(port)
        ready.set()

    async def main() -> None:
        stop = asyncio.Event()
        stops.append((asyncio.get_running_loop(), stop))
        async with running(config, thread_max_chars=32 * 1024) as runtime:
            await serve(pruner_app(runtime), "127.0.0.1", 0, stop=stop, token=True, on_ready=on_ready)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield ports[0]
    finally:
        loop, stop = stops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        assert not thread.is_alive()

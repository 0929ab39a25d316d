"""One server as a program that tests kill: the proxy with its real store, which needs no worker processes.

light_server.py HOME SETTINGS_FILE DATABASE_URL CLOCK_FILE: prints its port once it answers; its clock is as many
seconds ahead as the file says. A fork of a process that has loaded all of this serves after a tenth of a second of CPU;
what `kimi-proxy start` starts beside it takes ten times that.
"""

import asyncio
import sys
import time
from pathlib import Path

from kimi_proxy.api.server import run, serve
from kimi_proxy.assembly.apps import proxy_app
from kimi_proxy.assembly.runtime import running
from kimi_proxy.core.config import Config, parse

IN_THREAD_CHARS = 1_000_000


async def main(config: Config, clock: Path) -> None:
    def now() -> float:
        return time.time() + float(clock.read_text())

    async with running(config, thread_max_chars=IN_THREAD_CHARS, now=now) as runtime:
        await serve(
            *(proxy_app(runtime), "127.0.0.1", 0),
            stop=asyncio.Event(),
            on_ready=lambda _, port: print(port, flush=True),
        )


if __name__ == "__main__":
    home, settings, url, clock = sys.argv[1:]
    run(main(parse(Path(settings).read_text(), {"KIMI_PROXY_DATABASE_URL": url}, Path(home)), Path(clock)))

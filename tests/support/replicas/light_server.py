"""One server as a program that tests kill: the proxy with its real store, which needs no worker processes.

light_server.py HOME SETTINGS_FILE DATABASE_URL: prints its port once it answers. A fork of a process that has loaded
all of this serves after a tenth of a second of CPU; what `kimi-proxy start` starts beside it takes ten times that.
"""

import asyncio
import sys
from pathlib import Path

from kimi_proxy.api.apps import proxy_app
from kimi_proxy.api.server import run, serve
from kimi_proxy.core.config import Config, parse
from kimi_proxy.services.runtime import running

IN_THREAD_CHARS = 1_000_000


async def main(config: Config) -> None:
    async with running(config, thread_max_chars=IN_THREAD_CHARS) as runtime:
        await serve(
            *(proxy_app(runtime), "127.0.0.1", 0),
            stop=asyncio.Event(),
            on_ready=lambda _, port: print(port, flush=True),
        )


if __name__ == "__main__":
    home, settings, url = sys.argv[1:]
    run(main(parse(Path(settings).read_text(), {"KIMI_PROXY_DATABASE_URL": url}, Path(home))))

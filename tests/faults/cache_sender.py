"""Sends a day of work through the whole product: a process that tests kill.

cache_sender.py HOME SETTINGS_FILE AT BEGAN [DATABASE_URL]: goes on with request AT of a day that began at BEGAN, and
prints the number of each request that was answered.
"""

import asyncio
import sys
from pathlib import Path

from tests.support.cached_days import CLAUDE, a_day
from tests.support.fakes import Clock

from kimi_proxy.assembly.runtime import running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import Config, parse
from kimi_proxy.services.chat.requests import ChatRequest


async def send(config: Config, first: int, began: float) -> None:
    clock = Clock(began)
    async with running(config, thread_max_chars=10**9, now=clock) as runtime:
        for number, (pause_s, raw) in enumerate(a_day(CLAUDE)):
            clock.advance(pause_s)
            if number < first:
                continue
            async with runtime.chat.answer(ChatRequest(LOCAL, CLAUDE.wire, raw)) as answer:
                assert answer.status == 200
            # In this day 20 s pass between two requests, in which the journal writes.
            await runtime.sessions.caught_up()
            print(number, flush=True)


if __name__ == "__main__":
    home, settings, first, began, *database = sys.argv[1:]
    env = {"KIMI_PROXY_DATABASE_URL": database[0]} if database else {}
    asyncio.run(send(parse(Path(settings).read_text(), env, Path(home)), int(first), float(began)))

"""Notes chat requests without end, and tells how many of them are on disk: a process that tests run, and kill.

journal_keeper.py HOME
"""

import asyncio
import json
import sys
from pathlib import Path

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.chat.reply import ReplyFacts, Usage
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import LOCAL_IDS, session_of
from kimi_proxy.features.models import Models, Target
from kimi_proxy.services.chat.context import TokenCounter
from kimi_proxy.services.chat.relay import Exchange
from kimi_proxy.services.journal import Journal
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store.sqlite.store import SqliteStore

SESSIONS = 3
AT_ONCE = 40


def a_draft(number: int) -> Draft:
    body = {"model": "m", "messages": [{"role": "user", "content": f"conversation {number % SESSIONS}"}]}
    request = parse(json.dumps(body).encode(), Wire.CHAT)
    return Draft(request, Target("p", "m"), session_of(request, {}, "p", LOCAL_IDS), LOCAL)


async def note_without_end(home: Path) -> None:
    store = await SqliteStore.open(home, ttl_s=3600, max_bytes=2 * 1024**3, timeout_s=60)
    journal = Journal(store.sessions, Models({}, {}), TokenCounter(len), Metrics())
    noted = 0
    while True:
        for _ in range(AT_ONCE):
            draft = a_draft(noted)
            usage = Usage(input_tokens=100, output_tokens=10)
            journal.on_start(draft, draft)
            journal.on_end(Exchange(draft, 200, "ok", ReplyFacts("m", "stop", usage), 0.1, 0.2))
            noted += 1
        await journal.caught_up()
        print(noted, flush=True)


if __name__ == "__main__":
    asyncio.run(note_without_end(Path(sys.argv[1])))

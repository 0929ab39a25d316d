"""Sends turns of one conversation through all steps, prints where and how they left, and waits to be killed."""

import asyncio
import sys
from hashlib import sha256
from pathlib import Path

from kimi_proxy.assembly.runtime import running
from kimi_proxy.core import json
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat import parse as read
from kimi_proxy.core.config import parse
from kimi_proxy.features.chat.pipeline import Draft, run_stages
from kimi_proxy.features.chat.sessions import LOCAL_IDS, session_of
from kimi_proxy.features.models import Target

SETTINGS = """
[providers.p]
base_url = "http://127.0.0.1:9/v1"
[models."p/small"]
provider = "p"
max_context_size = 2000
[models."p/large"]
provider = "p"
max_context_size = 8000
[sanitizer.routing]
fallback_models = ["p/large"]
[memory]
inject = true
"""
TURNS = (0, 1900, 1500)  # words: the first tells of the project, the second outgrows its model, the third stays there


def a_turn(turn: int) -> Draft:
    said = [{"role": "user", "content": "go"}]
    if turn:
        said += [{"role": "assistant", "content": "word " * TURNS[turn]}, {"role": "user", "content": "on"}]
    request = read(json.encode({"model": "p/small", "messages": said}), Wire.CHAT)
    return Draft(request, Target("p", "small", "p/small"), session_of(request, {}, "p", LOCAL_IDS), LOCAL)


async def send(home: Path, memory: str, turns: list[int]) -> None:
    async with running(parse(SETTINGS, {}, home), thread_max_chars=10**9) as runtime:
        await runtime.project_memory.save(LOCAL, memory)
        for turn in turns:
            done = await run_stages(a_turn(turn), runtime.chat.stages, _failed)
            print(turn, done.target.key, sha256(done.request.body).hexdigest(), flush=True)
        await asyncio.Event().wait()


def _failed(step: str, error: Exception) -> None:
    raise error


if __name__ == "__main__":
    asyncio.run(send(Path(sys.argv[1]), sys.argv[2], [int(turn) for turn in sys.argv[3:]]))

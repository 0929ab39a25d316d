"""Sends a growing conversation through a sanitizer and prints what each message left as: a process that tests kill.

sanitizer_sender.py HOME: prints `turn message hash` as soon as a request would leave.
"""

import asyncio
import sys
from hashlib import sha256
from pathlib import Path

from tests.support import outputs
from tests.support.conversations import Assistant, Call, Item, Result, User, request
from tests.support.services.chat.sanitizing import Clock, world

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Wire

TURNS = 12


def conversation() -> list[Item]:
    items: list[Item] = []
    for turn in range(TURNS):
        items += [User(f"Turn {turn}: look at part {turn}."), Assistant("", (Call(f"call_{turn:08}"),))]
        items.append(Result(f"call_{turn:08}", f"part {turn}\n{outputs.pytest_log(160, turn).text}"))
    return items


async def just_now(who: Caller, session: str) -> float:
    """After a kill the store has the time of the last request."""
    return Clock.now


async def send(home: Path) -> None:
    items = conversation()
    async with world(home, last_request=just_now) as here:
        for turn in range(TURNS):
            left = (await here.send(request(Wire.CHAT, items[: 3 * turn + 3]))).request
            for at, message in enumerate(left.messages):
                print(turn, at, sha256(left.body[message.start : message.end]).hexdigest(), flush=True)


if __name__ == "__main__":
    asyncio.run(send(Path(sys.argv[1])))

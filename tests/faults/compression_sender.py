"""Sends a conversation that is compressed on its way, and prints what it began with: a process that tests kill.

compression_sender.py HOME TURN: prints `turn hash` as soon as a request has left, from that turn on.
"""

import asyncio
import sys
from hashlib import sha256
from pathlib import Path

from tests.support.api.compress import AUTOMATIC, FULL, conversation, world
from tests.support.deep import IS_DEEP

from kimi_proxy.core.chat import Wire

TURNS = 5 if IS_DEEP else 3  # that follow on the first, which is compressed


async def send(home: Path, turn: int) -> None:
    async with world(home, Wire.CHAT, AUTOMATIC) as here:
        for at in range(turn, TURNS):
            left = await here.send(conversation(FULL + at))
            pinned = left.body[: left.body.index(f"Question {FULL - 1}".encode())]
            print(at, sha256(pinned).hexdigest(), len(left.messages), flush=True)


if __name__ == "__main__":
    asyncio.run(send(Path(sys.argv[1]), int(sys.argv[2])))

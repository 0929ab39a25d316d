"""`kimi-proxy compress`: a session's history gives way to a summary, from the command line."""

import asyncio
import json
import os
from pathlib import Path

from tests.support.api.compress import AUTOMATIC, FULL, conversation, words, world
from tests.support.api.compress import World as Compressing
from tests.support.forks import commands

from kimi_proxy.core.chat import Wire

from .conftest import Cli


async def compress(here: Compressing, home: Path, *arguments: str) -> tuple[int, str, str]:
    environment = {**os.environ, "KIMI_PROXY_HOME": str(home / "cli"), "KIMI_PROXY_PORT": str(here.p.port)}
    done = await asyncio.to_thread(commands().run, ["compress", *arguments], b"", home, environment)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def test_it_is_shown_done_and_taken_back(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT) as here:
        await here.send(conversation(FULL))
        shown = await compress(here, tmp_path, "day-1", "--simulate")
        done = await compress(here, tmp_path, "day-1", "--json")
        sent = await here.send(conversation(FULL))
        undone = await compress(here, tmp_path, "day-1", "--undo")

    assert (shown[0], done[0], undone[0]) == (0, 0, 0), (shown, done, undone)
    assert "messages summarized" in shown[1] and "would become" in shown[1]
    assert json.loads(done[1])["summary"] in words(sent)
    assert "was reverted" in undone[1]


async def test_it_says_how_much_room_is_left(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT, AUTOMATIC) as here:
        await here.send(conversation(8))
        refused = await compress(here, tmp_path, "day-1")
        unknown = await compress(here, tmp_path, "nobody")

    assert refused[0] == 2 and "below 85" in refused[2] and "force" in refused[2]
    assert unknown[0] == 2 and "no session" in unknown[2]


def test_without_a_server_there_is_no_traffic_to_compress(cli: Cli):
    done = cli("compress", "day-1")

    assert (done.returncode, done.stdout) == (3, b"")
    assert b"is not running" in done.stderr

"""`kimi-proxy report` beside a proxy that runs on the same store."""

import asyncio
import json
import os
from pathlib import Path

from tests.support.api.watching import world
from tests.support.forks import commands

from kimi_proxy.core.json import JsonObject


def report(home: Path) -> JsonObject:
    env = {**os.environ, "KIMI_PROXY_HOME": str(home), "HOME": str(home)}
    done = commands().run(["report", "--json"], b"", home, env)
    assert done.returncode == 0, done.stderr
    told: JsonObject = json.loads(done.stdout)
    return told


async def test_what_a_proxy_has_noted_is_told_while_it_runs(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("hello", name="mine")
        await w.sessions(requests=1)
        first = await asyncio.to_thread(report, tmp_path)
        await w.ask("hello", "so it is", "and?", name="mine")
        await w.sessions(requests=2)
        second = await asyncio.to_thread(report, tmp_path)

    for told, requests in ((first, 1), (second, 2)):
        totals = told["totals"]
        assert isinstance(totals, dict)
        assert (totals["requests"], totals["sessions"], totals["net_saved_tokens"]) == (requests, 1, 0)
        assert totals["reasons"] == {"nothing_to_do": requests}

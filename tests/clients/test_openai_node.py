"""OpenAI's library for Node streams through the proxy; where npm cannot install it, the test says so."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.api.proxy_world import proxy
from tests.support.clients.provider import Provider
from tests.support.clients.servers import INSTALL_S, QUICKLY, installed
from tests.support.evil import evil

pytestmark = pytest.mark.timeout(INSTALL_S + 600)

PACKAGE = "openai@6"
PROGRAM = Path(__file__).with_name("openai_node.mjs")


def _install(place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise FileNotFoundError("there is no npm")
    command = [npm, "install", *QUICKLY, "--prefix", str(place), PACKAGE]
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S)


async def test_words_tool_calls_and_errors_arrive(tmp_path: Path):
    place = await asyncio.to_thread(installed, "openai-node", _install)
    async with evil(Provider()) as provider, proxy(tmp_path, provider.toml()) as p:
        process = await asyncio.create_subprocess_exec(
            "node", str(PROGRAM), str(place), f"http://127.0.0.1:{p.port}/v1", stdout=asyncio.subprocess.PIPE
        )
        output, _ = await asyncio.wait_for(process.communicate(), 60)

    seen = json.loads(output)
    assert seen["words"] == "Voilà, 你好 👩‍👩‍👧‍👦"
    assert (seen["arguments"], seen["collected"]) == ('{"path":"é.py"}', '{"path":"é.py"}')
    assert seen["bare"] == 0
    assert seen["events"][-1] == "response.completed"
    assert seen["broken"] != "no error"

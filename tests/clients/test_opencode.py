"""OpenCode itself with our plugin: what its tools print is cut before the model reads it. Run by ./test.sh --deep."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.api.proxy_world import proxy
from tests.clients.fake_llm import Call, fake_llm
from tests.clients.servers import INSTALL_S, QUICKLY, installed

from kimi_proxy.features.clients.hooks import opencode_plugin

VERSION = "1.18.33"
PATIENCE_S = 400.0
LINES = [f"2026-01-01 12:{n // 60:02}:{n % 60:02} INFO item {n} of batch {n % 17} was stored" for n in range(400)]
MARKER = re.compile(r"⟦PRUNÉ: prune_id=(prn_\w+) lignes (\d+)-(\d+)")

pytestmark = [
    pytest.mark.timeout(INSTALL_S + 600),
    pytest.mark.skipif(not os.environ.get("KIMI_PROXY_DEEP"), reason="./test.sh --deep runs OpenCode itself"),
]


def program() -> str:
    modules = installed(f"opencode-{VERSION}", _install) / "node_modules"
    return str(next(path for path in modules.glob("opencode-*/bin/opencode") if os.access(path, os.X_OK)))


def _install(place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("there is no npm")
    command = [npm, "install", *QUICKLY, "--prefix", str(place), f"opencode-ai@{VERSION}"]
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S)


def script(answers: list[str]) -> Call | str:
    return "done" if answers else Call("bash", {"command": "cat app.log", "description": "print the log"})


async def test_a_plugin_cuts_what_bash_printed(tmp_path: Path):
    opencode = await asyncio.to_thread(program)
    home, project = tmp_path / "home", tmp_path / "project"
    settings = home / ".config" / "opencode"
    for made in (settings / "plugin", project):
        made.mkdir(parents=True)
    (project / "app.log").write_text("\n".join(LINES))
    with fake_llm(script, native=True) as llm:
        async with proxy(tmp_path / "state", "[hooks]\nbudget_ms = 10000\n") as p:
            await p.runtime.pruner.warm()
            (settings / "plugin" / "kimi-proxy.js").write_text(opencode_plugin(f"http://127.0.0.1:{p.port}"))
            config = {
                "model": "anthropic/claude-sonnet-4-5",
                "small_model": "anthropic/claude-sonnet-4-5",
                "provider": {"anthropic": {"options": {"baseURL": f"{llm.url}/v1", "apiKey": "none"}}},
                "permission": {"bash": "allow"},
            }
            (settings / "opencode.json").write_text(json.dumps(config))
            env = {"PATH": os.environ["PATH"], "HOME": str(home), "OPENCODE_DISABLE_AUTOUPDATE": "1"}
            process = await asyncio.create_subprocess_exec(
                *(opencode, "run", "what happened to batch 3?"),
                cwd=project,
                env={**env, "OPENCODE_DISABLE_MODELS_FETCH": "1"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            output, problems = await asyncio.wait_for(process.communicate(), PATIENCE_S)
            assert process.returncode == 0, (output[-2000:], problems[-2000:])
            found = MARKER.search(llm.answers[0])
            assert found, llm.answers
            hidden = await p.runtime.pruner.recover(found[1], [(int(found[2]), int(found[3]))], False)

    assert hidden == "\n".join(LINES[int(found[2]) - 1 : int(found[3])])
    assert len(llm.answers[0]) < len("\n".join(LINES)) / 2

"""What the tests of coding agents share with others."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.clients import agents
from tests.support.clients.servers import INSTALL_S, QUICKLY, TOOLS, installed

PACKAGES = agents.PACKAGES  # the versions that docs/clients.md names: what an older one sends back differs

PLACE = f"coding-{agents.NAME}"


def program(name: str) -> str:
    if found := shutil.which(name):
        return found
    if not (TOOLS / PLACE).exists() and not os.environ.get("KIMI_PROXY_DEEP"):
        pytest.skip(f"{name} is not installed; ./test.sh --deep installs it, which takes 600 MB")
    return str(installed(PLACE, _install) / "node_modules" / ".bin" / name)


def _install(place: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise FileNotFoundError("there is no npm")
    steps = [
        [npm, "install", *QUICKLY, "--prefix", str(place), *PACKAGES],
        [node, str(place / "node_modules" / "@anthropic-ai" / "claude-code" / "install.cjs")],
    ]
    for step in steps:
        subprocess.run(step, check=True, capture_output=True, timeout=INSTALL_S)


async def run(tmp_path: Path, *command: str, **env: str) -> str:
    return await agents.run(tmp_path / "home", tmp_path, *command, **env)

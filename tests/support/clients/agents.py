"""Claude Code and Codex themselves, installed once under .tools."""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.clients.servers import INSTALL_S, installed

NAME = "agents-2.1.328-0.169.0"
PACKAGES = ("@anthropic-ai/claude-code@2.1.328", "@openai/codex@0.169.0")
QUIETLY = ("--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1")


def claude() -> str:
    return _program("@anthropic-ai/claude-code-*/claude")


def codex() -> str:
    return _program("@openai/codex-*/vendor/*/bin/codex")


async def run(home: Path, cwd: Path, *command: str, **env: str) -> str:
    """Run an agent that has a home of its own; what it prints."""
    for folder in (home, cwd):
        folder.mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, problems = await asyncio.wait_for(process.communicate(), 200)
    assert process.returncode == 0, (output[-2000:], problems[-2000:])
    return output.decode()


async def run_claude(folder: Path, *arguments: str, **env: str) -> None:
    """Run Claude Code in the project of `folder`, until its model says that it is done."""
    command = (await asyncio.to_thread(claude), "-p", *arguments, "--output-format", "json")
    quiet = {"ANTHROPIC_API_KEY": "sk-of-the-client", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    output = await run(folder / "home", folder / "project", *command, **{**quiet, **env})
    assert json.loads(output)["result"] == "done"


def _program(pattern: str) -> str:
    """The native program of a package; what Node would start."""
    modules = installed(NAME, _install) / "node_modules"
    return str(next(path for path in modules.glob(pattern) if os.access(path, os.X_OK)))


def _install(place: Path) -> None:
    """They weigh 800 MB."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise FileNotFoundError("there is no npm")
    command = [npm, "install", *QUIETLY, "--prefix", str(place), *PACKAGES]
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S)
    for pattern in ("@anthropic-ai/claude-code-*/claude", "@openai/codex-*/vendor/*/bin/codex"):
        if not list((place / "node_modules").glob(pattern)):
            raise FileNotFoundError(f"there is no {pattern} for this machine")

"""Published MCP servers, installed once under .tools; a machine that cannot install them says why."""

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from kimi_proxy.core.json import JsonObject

ROOT = Path(__file__).parents[3]
TOOLS = ROOT / ".tools"
INSTALL_S = 240

PACKAGES = (
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "@modelcontextprotocol/server-sequential-thinking@2026.8.31",
    "fast-filesystem-mcp@3.5.2",
)
QUICKLY = ("--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=30000")
GIT = "mcp-server-git==2026.10.19"


def node_program(name: str) -> str:
    """A program of the npm packages."""
    place = installed("mcp-servers", _install_node)
    return str(place / "node_modules" / ".bin" / name)


def git_server() -> list[str]:
    """The command of the Python package; its environment was renamed, which only its interpreter survives."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    place = installed(f"mcp-server-git-{version}", _install_git)
    return [str(place / "bin" / "python"), "-m", "mcp_server_git"]


def installed(name: str, install: Callable[[Path], None]) -> Path:
    """The folder of a package; the test is skipped where it cannot be installed, which is tried once only."""
    found = _tried(name, install)
    if isinstance(found, str):
        pytest.skip(f"{name} cannot be installed here: {found}")
    return found


@cache
def _tried(name: str, install: Callable[[Path], None]) -> Path | str:
    """The folder, or why there is none. One worker installs while the others wait, and take what it found out."""
    kept, run = TOOLS / name, os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    if kept.exists():
        return kept
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / f"{name}.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kept.exists():
            return kept
        lock.seek(0)
        failed_in, _, why = lock.read().partition("\n")
        if run and failed_in == run:
            return why
        why = _installed(kept, install)
        lock.truncate(0)
        lock.write(f"{run}\n{why}" if why else "")
    return why or kept


def _installed(kept: Path, install: Callable[[Path], None]) -> str:
    """Install into a new folder and give it its name; return what went wrong, or nothing."""
    fresh = Path(tempfile.mkdtemp(prefix=f"{kept.name}-", dir=TOOLS))
    try:
        install(fresh)
        fresh.rename(kept)
    except (OSError, subprocess.SubprocessError) as e:
        shutil.rmtree(fresh, ignore_errors=True)
        return e.stderr.decode(errors="replace")[-300:] if isinstance(e, subprocess.CalledProcessError) else str(e)
    return ""


def _install_node(place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise FileNotFoundError("there is no npm")
    command = [npm, "install", *QUICKLY, "--prefix", str(place), *PACKAGES]
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S)


def _install_git(place: Path) -> None:
    python = str(place / "bin" / "python")
    steps = [
        [sys.executable, "-m", "venv", str(place)],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", GIT],
    ]
    for step in steps:
        subprocess.run(step, check=True, capture_output=True, timeout=INSTALL_S)


async def direct(command: list[str], *messages: JsonObject) -> list[JsonObject]:
    """What a program answers to `messages` when nobody stands between, after a handshake."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=2**26,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    hello: JsonObject = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    answers: list[JsonObject] = []
    try:
        for message in (hello, {"jsonrpc": "2.0", "method": "notifications/initialized"}, *messages):
            process.stdin.write(json.dumps(message).encode() + b"\n")
            while "id" in message:
                answer = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
                if answer.get("id") == message["id"] and "method" not in answer:
                    answers.append(answer)
                    break
    finally:
        process.stdin.close()
        process.kill()
        await process.wait()
    return answers[1:]

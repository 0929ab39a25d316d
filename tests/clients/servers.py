"""Published MCP servers, installed once under .tools; a machine that cannot install them says why."""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from kimi_proxy.core.json import JsonObject

ROOT = Path(__file__).parents[2]
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
    kept = TOOLS / name
    if kept.exists():
        return kept
    TOOLS.mkdir(exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=TOOLS))
    try:
        install(fresh)
        fresh.rename(kept)
    except (OSError, subprocess.SubprocessError) as e:
        shutil.rmtree(fresh, ignore_errors=True)
        if not kept.exists():  # otherwise another worker was quicker
            return e.stderr.decode(errors="replace")[-300:] if isinstance(e, subprocess.CalledProcessError) else str(e)
    return kept


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

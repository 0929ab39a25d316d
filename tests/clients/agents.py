"""Claude Code and Codex themselves, installed once under .tools."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.clients.servers import INSTALL_S, installed

NAME = "agents-2.1.325-0.166.0"
PACKAGES = ("@anthropic-ai/claude-code@2.1.325", "@openai/codex@0.166.0")
QUIETLY = ("--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1")


def claude() -> str:
    return _program("@anthropic-ai/claude-code-*/claude")


def codex() -> str:
    return _program("@openai/codex-*/vendor/*/bin/codex")


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

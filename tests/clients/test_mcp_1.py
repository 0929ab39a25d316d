"""The official client, 1.x line, in an environment of its own under .tools."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.clients.conftest import STDIO
from tests.clients.text import LOG, QUESTION
from tests.support.clients.servers import installed
from tests.support.deep import deep

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("one_client.py")
INSTALL_S = 150


def uv() -> str | None:
    own = ROOT / ".tools" / "uv" / "bin" / "uv"
    return shutil.which("uv") or (str(own) if own.is_file() else None)


def install(place: Path) -> None:
    """Make an environment with the 1.x client; raises if this machine can't."""
    python = place / "bin" / "python"
    if tool := uv():
        steps = [
            [tool, "venv", "--quiet", "--clear", "--python", sys.executable, str(place)],
            [tool, "pip", "install", "--quiet", "--python", str(python), "mcp<2"],
        ]
    else:
        steps = [
            [sys.executable, "-m", "venv", str(place)],
            [str(python), "-m", "pip", "install", "--quiet", "mcp<2"],
        ]
    settings = {"UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
    if index := os.environ.get("PIP_INDEX_URL"):
        settings["UV_DEFAULT_INDEX"] = index
    for step in steps:
        subprocess.run(step, env={**os.environ, **settings}, check=True, capture_output=True, timeout=INSTALL_S)


@pytest.fixture(scope="session")
def python() -> str:
    """An interpreter that has the 1.x client, installed once and kept."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return str(installed(f"mcp1-{version}", install) / "bin" / "python")


@deep("test_mcp_2.py shows it with the client of today")
@pytest.mark.timeout(2 * INSTALL_S + 600)
@pytest.mark.parametrize("door", ["/mcp", "/rpc", "stdio"])
def test_an_older_client_prunes_and_recovers(door: str, python: str, port: int, home: Path):
    target = STDIO if door == "stdio" else [f"http://127.0.0.1:{port}{door}"]
    done = subprocess.run(
        [python, str(PROGRAM), *target],
        input=json.dumps(QUESTION),
        env={**os.environ, "KIMI_PROXY_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout)
    mistake, annotations = seen.pop("mistake"), seen.pop("annotations")

    assert seen == {
        "version": "2025-11-25",
        "server": "mcp-pruner",
        "tools": ["prune_text", "recover_text", "health", *(("read", "grep") if door == "/mcp" else ())],
        "same": True,
        "raw_text": LOG,
        "prompts": [],
        "resources": [],
    }
    assert annotations > 0
    assert mistake == "-32004 prune_id_not_found" if door == "/rpc" else mistake.startswith("prune_id_not_found: ")

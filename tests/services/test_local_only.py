"""With no opt-in, not one packet leaves the machine: shown from outside, on a whole runtime with its children."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deep import deep

ROOT = Path(__file__).parents[2]

PROGRAM = """
import asyncio, sys
from pathlib import Path
from kimi_proxy.core.config import parse
from kimi_proxy.services.runtime import running
from tests.texts import a_log, a_question
import os

async def main():
    async with running(parse("", os.environ, Path(sys.argv[1]))) as runtime:
        await runtime.pruner.warm()
        for source_type in ("code", "logs", "docs"):
            for lines in (300, 2_000):  # in a thread, and in a child
                text = a_log(lines)
                answer = await runtime.pruner.prune(a_question(text, source_type=source_type, timeout_ms=60_000))
                assert not answer.pruned.used_fallback, answer.pruned.warnings
                assert await runtime.pruner.recover(answer.prune_id, [(1, lines)], False) == text
                await runtime.pruner.explain(answer.prune_id)
        await runtime.tools["health"].call({})

asyncio.run(main())
print("done")
"""

# Runs at the start of every Python process that inherits PYTHONPATH, workers included.
TRAP = """
import os, sys

OUTWARD = ("connect", "bind", "sendto", "sendmsg", "getaddrinfo", "getnameinfo", "gethostbyname", "gethostbyaddr")

def trap(event, args):
    if event in {f"socket.{name}" for name in OUTWARD}:
        with open(os.environ["TRAP_LOG"], "a") as log:
            log.write(f"{os.getpid()} {event} {args!r}\\n")
        os._exit(97)

sys.addaudithook(trap)
"""


def run(home: Path, *before: str, **env: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("KIMI_", "MCP_", "DEEPINFRA_"))
    }
    python_path = os.pathsep.join([env.pop("PYTHONPATH", ""), str(ROOT)]).strip(os.pathsep)
    command = [*before, sys.executable, "-c", PROGRAM, str(home)]
    environment = {**inherited, **env, "PYTHONPATH": python_path}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)


@pytest.fixture
def trapped(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap" / "sitecustomize.py").write_text(TRAP)
    return {"PYTHONPATH": str(tmp_path / "trap"), "TRAP_LOG": str(tmp_path / "trap.log")}


def test_pruning_asks_nothing_of_the_network_and_a_key_alone_is_no_opt_in(
    tmp_path: Path, trapped: dict[str, str]
) -> None:
    ran = run(tmp_path / "home", **trapped, DEEPINFRA_API_KEY="sk")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")
    assert not Path(trapped["TRAP_LOG"]).exists()


@deep
def test_the_trap_would_have_caught_it(tmp_path: Path, trapped: dict[str, str]) -> None:
    endpoint = "http://127.0.0.1:9/"
    opted_in = {"KIMI_PRUNING_BACKEND": "deepinfra", "DEEPINFRA_API_KEY": "sk", "DEEPINFRA_ENDPOINT_URL": endpoint}
    assert run(tmp_path / "home", **trapped, **opted_in).returncode == 97
    assert "127.0.0.1" in Path(trapped["TRAP_LOG"]).read_text()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_kernel_sees_no_internet_socket(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    ran = run(tmp_path / "home", "strace", "-f", "-qq", "-e", "trace=network", "-o", str(calls))
    if not calls.exists() or "ptrace" in ran.stderr:
        pytest.skip("strace may not trace here")
    assert (ran.returncode, ran.stdout) == (0, "done\n")
    assert [line for line in calls.read_text().splitlines() if "AF_INET" in line] == []

"""With no opt-in, not one packet leaves the machine: shown from outside, on a whole runtime with its children."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.deep import deep

ROOT = Path(__file__).parents[2]

PROGRAM = """
import asyncio, sys
from pathlib import Path
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import parse
from kimi_proxy.assembly.runtime import running
from tests.support.read_back import read_lines
from tests.support.texts import a_log, a_question
import os

async def main():
    async with running(parse("", os.environ, Path(sys.argv[1]))) as runtime:
        await runtime.pruner.warm()
        for source_type in ("code", "logs", "docs"):
            for lines in (300, 2_000):  # in a thread, and in a child
                text = a_log(lines)
                answer = await runtime.pruner.prune(LOCAL, a_question(text, source_type=source_type, timeout_ms=60_000))
                assert not answer.pruned.used_fallback, answer.pruned.warnings
                assert await read_lines(runtime.store.originals, answer.prune_id, [(1, lines)]) == text
                await runtime.pruner.explain(LOCAL, answer.prune_id)
        await runtime.tools["health"].call(LOCAL, {})

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


def trapped(folder: Path) -> dict[str, str]:
    (folder / "trap").mkdir()
    (folder / "trap" / "sitecustomize.py").write_text(TRAP)
    return {"PYTHONPATH": str(folder / "trap"), "TRAP_LOG": str(folder / "trap.log")}


@dataclass(frozen=True)
class Watched:
    ran: subprocess.CompletedProcess[str]
    caught: Path  # by the trap
    calls: Path  # of the kernel that have to do with the network, if strace may trace


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """One run with the trap, before the eyes of the kernel, too."""
    folder = tmp_path_factory.mktemp("watched")
    env, calls = trapped(folder), folder / "calls"
    strace = ("strace", "-f", "-qq", "-e", "trace=network", "-o", str(calls)) if shutil.which("strace") else ()
    ran = run(folder / "home", *strace, **env, DEEPINFRA_API_KEY="sk")
    if strace and (not calls.exists() or "ptrace" in ran.stderr):
        calls.unlink(missing_ok=True)
        ran = run(folder / "home", **env, DEEPINFRA_API_KEY="sk")
    return Watched(ran, Path(env["TRAP_LOG"]), calls)


def test_pruning_asks_nothing_of_the_network_and_a_key_alone_is_no_opt_in(watched: Watched) -> None:
    assert (watched.ran.returncode, watched.ran.stdout, watched.ran.stderr) == (0, "done\n", "")
    assert not watched.caught.exists()


@deep("it tests the trap of the tests beside it, not kimi-proxy")
def test_the_trap_would_have_caught_it(tmp_path: Path) -> None:
    env = trapped(tmp_path)
    endpoint = "http://127.0.0.1:9/"
    opted_in = {"KIMI_PRUNING_BACKEND": "deepinfra", "DEEPINFRA_API_KEY": "sk", "DEEPINFRA_ENDPOINT_URL": endpoint}
    assert run(tmp_path / "home", **env, **opted_in).returncode == 97
    assert "127.0.0.1" in Path(env["TRAP_LOG"]).read_text()


def test_the_kernel_sees_no_internet_socket(watched: Watched) -> None:
    if not watched.calls.exists():
        pytest.skip("strace is not installed, or may not trace here")
    assert (watched.ran.returncode, watched.ran.stdout) == (0, "done\n")
    assert [line for line in watched.calls.read_text().splitlines() if "AF_INET" in line] == []

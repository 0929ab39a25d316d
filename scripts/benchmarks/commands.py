"""CPU time of commands from scratch: user and system seconds of the process, the least of some runs."""

import os
import resource
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import table

RUNS = 7
LINES = 200
BARS_S = {"--version": 0.25, "--help": 0.25, "status": 0.25, "prune": 0.5}
SERVED_BARS_S = {"status": 0.25, "prune": 0.15}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "import.log"
        log.write_text("".join(f"12:00:{at % 60:02} INFO worker {at} finished its step\n" for at in range(LINES)))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        env = {**os.environ, "KIMI_PROXY_HOME": f"{folder}/home", "MCP_PRUNER_PORT": port, "KIMI_PROXY_PORT": "0"}
        commands = {
            "--version": ["--version"],
            "--help": ["--help"],
            "status": ["status"],
            "prune": ["prune", str(log), "--goal", "which worker failed?"],
        }
        rows = [(name, "no", cpu_s(commands[name], env), bar) for name, bar in BARS_S.items()]
        with subprocess.Popen([*COMMAND, "start"], env=env, stderr=subprocess.PIPE, encoding="utf-8") as server:
            assert server.stderr is not None
            next(line for line in server.stderr if "Ctrl-C" in line)
            rows += [(name, "yes", cpu_s(commands[name], env), bar) for name, bar in SERVED_BARS_S.items()]
            server.terminate()
    shown = [(name, served, f"{taken:.3f}", bar) for name, served, taken, bar in rows]
    table("Commands, from scratch", ("command", "a server runs", "CPU s", "bar"), shown)


COMMAND = (sys.executable, "-m", "kimi_proxy")


def cpu_s(arguments: list[str], env: dict[str, str]) -> float:
    least = float("inf")
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*COMMAND, *arguments], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least

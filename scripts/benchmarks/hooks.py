"""A hook call as Claude Code makes one, over HTTP, and as a command makes one, by a process of its own."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import corpus
from timing import median, p95, table, timed

TIMES = 25
CHARS = 100_000
PATH = "/api/hooks/claude"


def main() -> None:
    code, logs = (corpus.text(kind, 4000)[:CHARS] for kind in ("code", "logs"))
    cases = {
        "100 KB that stay whole (Read)": ("Read", {"type": "text", "file": {"filePath": "a.py", "content": code}}),
        "100 KB of code, cut without scores": ("Bash", {"stdout": code, "stderr": ""}),
        "100 KB of a log, cut without scores": ("Bash", {"stdout": logs, "stderr": ""}),
        "16 KB of a log, cut by score": ("Bash", {"stdout": logs[:16_000], "stderr": ""}),
    }
    with proxy() as (port, pid):
        rows = [row(port, pid, name, tool, response) for name, (tool, response) in cases.items()]
    head = ("output", "bytes left", "CPU of the server", "HTTP", "p95", "curl", "p95")
    table("Hooks: milliseconds that a tool call waits", head, rows)


def row(port: int, pid: int, name: str, tool: str, response: dict[str, object]) -> tuple[str, ...]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    calls = iter(range(10**6))

    def body() -> bytes:
        """Each call is another session's: a text that comes twice in one is not cut again."""
        number = next(calls)
        event = {"hook_event_name": "PostToolUse", "session_id": f"{name} {number}", "tool_use_id": str(number)}
        return json.dumps({**event, "tool_name": tool, "tool_input": {}, "tool_response": response}).encode()

    def over_http() -> bytes:
        connection.request("POST", PATH, body(), {"Content-Type": "application/json"})
        return connection.getresponse().read()

    def by_curl() -> None:
        options = ["-sS", "--max-time", "2", "-H", "Content-Type: application/json", "--data-binary", "@-"]
        subprocess.run(
            [curl, *options, f"http://127.0.0.1:{port}{PATH}"], input=body(), stdout=subprocess.DEVNULL, check=True
        )

    curl = shutil.which("curl") or ""
    left = min(len(over_http()) for _ in range(3))
    before = cpu_s(pid)
    direct = timed(over_http, TIMES)
    cpu_ms = (cpu_s(pid) - before) * 1000 / (TIMES + 1)
    process = timed(by_curl, TIMES) if curl else [float("nan")]
    figures = (cpu_ms, median(direct), p95(direct), median(process), p95(process))
    return (name, f"{left:,}" if left > 2 else "all of them", *(f"{figure:.1f}" for figure in figures))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def proxy() -> Iterator[tuple[int, int]]:
    """Start a proxy; gives its port and its process id."""
    with tempfile.TemporaryDirectory() as home, socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        ports = (one.getsockname()[1], other.getsockname()[1])
        for each in (one, other):
            each.close()
        env = {
            **os.environ,
            "KIMI_PROXY_HOME": home,
            "KIMI_PROXY_PORT": str(ports[0]),
            "MCP_PRUNER_PORT": str(ports[1]),
            "KIMI_PROXY_LOG_LEVEL": "error",
        }
        command = [sys.executable, "-m", "kimi_proxy", "start"]
        process = subprocess.Popen(command, cwd=home, env=env, stderr=subprocess.DEVNULL)
        try:
            _wait(ports[0])
            yield ports[0], process.pid
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)


def _wait(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                time.sleep(3)  # the vocabulary is loaded after the server answers
                return
        time.sleep(0.1)
    raise SystemExit("the proxy did not start")

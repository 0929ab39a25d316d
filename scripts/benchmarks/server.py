"""The pruner as a process: how soon it is ready, what it weighs, what a call costs, whether it ever stalls."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import corpus
from timing import median, p95, table

STARTS = 5
SMALL_CALLS = 400
HEAVY = 8


class Server:
    """A pruner on a free port with its own state."""

    def __init__(self, home: str) -> None:
        env = {**os.environ, "KIMI_PROXY_HOME": home, "MCP_PRUNER_PORT": "0", "KIMI_PROXY_LOG_LEVEL": "warning"}
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kimi_proxy", "pruner"],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.port = self._port()
        while not self._healthy():
            time.sleep(0.005)
        self.ready_s = time.perf_counter() - self.began
        threading.Thread(target=self._drain, daemon=True).start()

    def _port(self) -> int:
        assert self.process.stdout
        for line in self.process.stdout:
            if "http://127.0.0.1:" in line:
                return int("".join(c for c in line.split("http://127.0.0.1:")[1].split("/")[0] if c.isdigit()))
        raise SystemExit("the server did not start")

    def _drain(self) -> None:
        assert self.process.stdout
        for _ in self.process.stdout:
            pass

    def _healthy(self) -> bool:
        try:
            return self.get("/health") == 200
        except OSError:
            return False

    def get(self, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        return status

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.split("\n") if line.startswith("VmRSS")) / 1024

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=10)


@contextlib.contextmanager
def running() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as home:
        server = Server(home)
        try:
            yield server
        finally:
            server.stop()


def call(connection: http.client.HTTPConnection, tool: str, arguments: dict[str, object]) -> bytes:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    connection.request("POST", "/rpc", json.dumps(body), {"Content-Type": "application/json"})
    return connection.getresponse().read()


def prune_arguments(text: str, source_type: str, salt: int) -> dict[str, object]:
    options = {
        "max_prune_ratio": 0.7,
        "min_keep_lines": 10,
        "timeout_ms": 30_000,
        "annotate_lines": False,
        "include_markers": True,
    }
    return {
        "text": f"{text}# {salt}\n",
        "goal_hint": corpus.GOALS[source_type],
        "source_type": source_type,
        "options": options,
    }


def small_call_cpu_ms(server: Server) -> tuple[float, float]:
    """CPU of the server per health call, and the median round trip."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    call(connection, "health", {})
    trips: list[float] = []
    before = server.cpu_s()
    for _ in range(SMALL_CALLS):
        start = time.perf_counter()
        call(connection, "health", {})
        trips.append((time.perf_counter() - start) * 1000)
    return (server.cpu_s() - before) * 1000 / SMALL_CALLS, median(trips)


def stall_ms(server: Server) -> tuple[list[float], float]:
    """Round trips of /health while eight texts of 1 MB are pruned at once, and how long those took."""
    text = corpus.text("code", 26_000)[: 1024 * 1024]

    def heavy(salt: int) -> None:
        call(
            http.client.HTTPConnection("127.0.0.1", server.port, timeout=60),
            "prune_text",
            prune_arguments(text, "code", salt),
        )

    threads = [threading.Thread(target=heavy, args=(i,)) for i in range(HEAVY)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    trips: list[float] = []
    while any(thread.is_alive() for thread in threads):
        start = time.perf_counter()
        server.get("/health")
        trips.append((time.perf_counter() - start) * 1000)
        time.sleep(0.002)
    return trips, time.perf_counter() - began


def main() -> None:
    starts: list[float] = []
    for _ in range(STARTS):
        with running() as server:
            starts.append(server.ready_s)
    with running() as server:
        idle = server.rss_mb()
        cpu, trip = small_call_cpu_ms(server)
        trips, took = stall_ms(server)
        loaded = server.rss_mb()
    rows = [
        ("ready after process start", f"{median(starts):.2f} s (slowest of {STARTS}: {max(starts):.2f} s)"),
        ("memory when idle", f"{idle:.0f} MB"),
        ("CPU per small /rpc call", f"{cpu:.2f} ms (round trip {trip:.2f} ms)"),
        (f"{HEAVY} prunes of 1 MB at once", f"{took:.1f} s"),
        ("/health meanwhile", f"median {median(trips):.1f} ms, p95 {p95(trips):.1f} ms, worst {max(trips):.0f} ms"),
        ("memory of the server afterwards", f"{loaded:.0f} MB"),
    ]
    table("Server", ("what", "measured"), rows)

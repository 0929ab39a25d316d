"""The agent tools as an agent calls them: over stdio, beside what does the same work without us."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import corpus
from timing import median, p95, table, timed

TIMES = 15
PATTERN = "def .*timeout"
OUTPUT_MB = 100


class Agent:
    """The tools' server, and what an agent would send it."""

    def __init__(self, folder: Path, home: str) -> None:
        env = {**os.environ, "KIMI_PROXY_HOME": home, "KIMI_PROXY_LOG_LEVEL": "warning"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kimi_proxy", "tools", "--stdio"],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.calls = 0
        self._ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench"}})

    def call(self, tool: str, **arguments: object) -> str:
        result = self._ask("tools/call", {"name": tool, "arguments": arguments})
        return result["content"][0]["text"]

    def _ask(self, method: str, params: dict[str, object]) -> dict[str, list[dict[str, str]]]:
        assert self.process.stdin and self.process.stdout
        self.calls += 1
        message = {"jsonrpc": "2.0", "id": self.calls, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "result" not in answer:
            raise SystemExit(f"{method} failed: {answer}")
        return answer["result"]

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.split("\n") if line.startswith("VmRSS")) / 1024


@contextlib.contextmanager
def agent(folder: Path) -> Iterator[Agent]:
    with tempfile.TemporaryDirectory() as home:
        started = Agent(folder, home)
        try:
            yield started
        finally:
            assert started.process.stdin
            started.process.stdin.close()
            started.process.wait(timeout=10)


def read_rows(folder: Path) -> Iterator[tuple[str, str]]:
    """Each read has another question: an answer that is remembered would cost nothing."""
    (folder / "client.py").write_text(corpus.text("code", 2_000), "utf-8")
    with agent(folder) as tools:
        asked = iter(range(10_000))

        def focused() -> None:
            tools.call("read", file_path="client.py", context_focus_question=f"{corpus.GOALS['code']} ({next(asked)})")

        plain = timed(lambda: tools.call("read", file_path="client.py"), TIMES)
        with_question = timed(focused, TIMES)
    added = median(with_question) - median(plain)
    yield "read of 2,000 lines", f"{median(plain):.1f} ms"
    yield "a question adds", f"{added:.0f} ms (p95 {p95(with_question) - p95(plain):.0f} ms)"


def grep_rows() -> Iterator[tuple[str, str]]:
    tree = Path(sysconfig.get_path("stdlib"))
    ripgrep = shutil.which("rg", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    with agent(tree) as tools:
        ours = timed(lambda: tools.call("grep", pattern=PATTERN, max_matches=1000), TIMES)
    yield f"grep of {tree.name}, the standard library", f"{median(ours):.0f} ms"
    if ripgrep is None:
        yield "ripgrep itself", "not installed"
        return
    command = [ripgrep, "--line-number", "--no-heading", "-e", PATTERN, "--", "."]
    theirs = timed(lambda: subprocess.run(command, cwd=tree, capture_output=True, check=False), TIMES)
    yield "ripgrep itself", f"{median(theirs):.0f} ms; ours is {median(ours) / median(theirs):.2f} times that"


def bash_rows(folder: Path) -> Iterator[tuple[str, str]]:
    with agent(folder) as tools:
        tools.call("bash", command="true")
        before, peak, done = tools.rss_mb(), [0.0], threading.Event()

        def watch() -> None:
            while not done.wait(0.02):
                peak[0] = max(peak[0], tools.rss_mb())

        watcher = threading.Thread(target=watch)
        watcher.start()
        began = time.perf_counter()
        tools.call(
            "bash",
            command=f"yes 'a line of output that goes on for a while' | head -c {OUTPUT_MB}M",
            timeout_ms=120_000,
        )
        took = time.perf_counter() - began
        done.set()
        watcher.join()
    yield f"bash with {OUTPUT_MB} MB of output", f"{took:.1f} s, memory +{max(0.0, peak[0] - before):.0f} MB at most"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [*read_rows(Path(folder)), *grep_rows(), *bash_rows(Path(folder))]
    table("Agent tools, over stdio", ("what", "measured"), rows)

"""The same requests through LiteLLM and Headroom, each in its own venv, in the same run as ours.

They are installed in the user's cache the first time, which takes a few minutes and the network.
"""

import contextlib
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import corpus
import relay
import sanitizer
import uvloop
from relay import Figures
from timing import median, table

from kimi_proxy.core.chat import Wire

sys.path.append(str(Path(__file__).parents[2]))

from tests.support import outputs

TOOLS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kimi-proxy" / "rivals"
READY_WITHIN_S = 300
CHARS = 100_000
TIMES = 10
RESULTS = {
    "pytest log": [("bash", {"command": "pytest -v"}, outputs.pytest_log(3400).text)],
    "build log": [("bash", {"command": "make"}, corpus.text("logs", 4000)[:CHARS])],
    "JSON array": [("query", {"sql": "select * from orders"}, outputs.records(540).text)],
    "source file": [("read_file", {"path": "src/app.py"}, corpus.text("code", 4000)[:CHARS])],
    "five kinds in one request": [
        ("bash", {"command": "pytest -v"}, outputs.pytest_log(3400).text[-CHARS // 5 :]),
        ("bash", {"command": "make"}, corpus.text("logs", 4000)[: CHARS // 5]),
        ("query", {"sql": "select * from orders"}, outputs.records(108).text),
        ("bash", {"command": "rg total"}, outputs.search_hits(2000).text[: CHARS // 5]),
        ("read_file", {"path": "src/app.py"}, corpus.text("code", 4000)[: CHARS // 5]),
    ],
}
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MASTER_KEY": "sk-bench",
    "HEADROOM_BEACON": "off",
    "HF_HUB_OFFLINE": "1",
    "NO_PROXY": "127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class NewResult:
    """What a conversation with one new tool result waits for, and the share of its bytes that the provider gets."""

    added_ms: float
    left: float


def main() -> None:
    measured: dict[str, Figures] = {}
    results: dict[str, dict[str, NewResult]] = {}
    proxies = {"kimi-proxy": relay.kimi_proxy, "LiteLLM": litellm, "Headroom": headroom}
    with relay.provider() as direct:
        for name, proxy in proxies.items():
            with proxy(direct) as (base, pid):
                results[name] = uvloop.run(new_results(base, direct))
                measured[name] = uvloop.run(relay.figures(base, direct, pid))
    shown = {name: relay.rows(figures) for name, figures in measured.items()}
    rows = [(what, *(shown[name][i][1] for name in shown)) for i, (what, _) in enumerate(shown["kimi-proxy"])]
    table("Relay, side by side", ("what", *shown), rows)
    table("How many times better we are", ("what", "LiteLLM", "Headroom"), list(_ratios(measured)))
    sizes = {kind: f"{kind}, {sum(len(text) for *_, text in some) // 1000} KB" for kind, some in RESULTS.items()}
    cells = [(sizes[kind], *(_cell(results[name][kind]) for name in results)) for kind in RESULTS]
    table("New tool results: time added, and bytes left of them", ("result", *results), cells)


def _cell(result: NewResult) -> str:
    return f"{result.added_ms:.0f} ms, {result.left:.0%} left"


async def new_results(base_url: str, direct_url: str) -> dict[str, NewResult]:
    """Both ways in turn, each time with a conversation of its own."""
    found: dict[str, NewResult] = {}
    async with relay.Line(base_url) as through, relay.Line(direct_url) as direct:
        for kind in RESULTS:
            trips: list[tuple[float, float]] = []
            left: list[float] = []  # differs with the words of the question
            for turn in range(TIMES + 2):
                body = _conversation(kind, turn)
                longer, answer = await through.answer(through.request(body))
                trips.append((longer, await direct.ask(direct.request(body))))
                left.append(json.loads(answer)["usage"]["prompt_tokens"] / len(body))
            longer_ms, shorter_ms = zip(*trips[2:], strict=True)
            found[kind] = NewResult(median(longer_ms) - median(shorter_ms), median(left))
    return found


def _conversation(kind: str, turn: int) -> bytes:
    said = [sanitizer.user(Wire.CHAT, f"Find out why the build fails, and fix it. ({kind} {turn})")]
    said += sanitizer.called_at_once(RESULTS[kind], f"call_{turn}_{len(kind)}")
    return sanitizer.body(Wire.CHAT, said)


def _ratios(measured: dict[str, Figures]) -> Iterator[tuple[str, ...]]:
    ours, others = measured["kimi-proxy"], [measured["LiteLLM"], measured["Headroom"]]
    for size, took in ours.added.items():
        yield f"added at {size}", *(f"{o.added[size].median_ms / took.median_ms:.1f}" for o in others)
    yield "added to a first request", *(f"{o.added_first.median_ms / ours.added_first.median_ms:.1f}" for o in others)
    yield "requests per second", *(f"{ours.requests_per_s / o.requests_per_s:.1f}" for o in others)
    yield "first requests per second", *(f"{ours.first_per_s / o.first_per_s:.1f}" for o in others)


@contextlib.contextmanager
def litellm(provider_url: str) -> Iterator[tuple[str, int]]:
    home = installed("litellm", "litellm[proxy]")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(
            "model_list:\n  - model_name: m\n    litellm_params:\n"
            f"      model: openai/m\n      api_base: {provider_url}\n      api_key: sk-fake\n"
        )
        port = free_port()
        command = [str(home / "bin" / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        with running(command, f"http://127.0.0.1:{port}/health/liveliness", folder) as pid:
            yield f"http://127.0.0.1:{port}/v1", pid


@contextlib.contextmanager
def headroom(provider_url: str) -> Iterator[tuple[str, int]]:
    home = installed("headroom", "headroom-ai[proxy]")
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        # Its own limit of 60 requests a minute and its cache of answers would refuse or shorten the load.
        command = [str(home / "bin" / "headroom"), "proxy", "--host", "127.0.0.1", "--port", str(port)]
        command += [
            "--no-rate-limit",
            "--no-cache",
            "--no-telemetry",
            "--openai-api-url",
            provider_url.removesuffix("/v1"),
        ]
        with running(command, f"http://127.0.0.1:{port}/health", folder) as pid:
            yield f"http://127.0.0.1:{port}/v1", pid


@contextlib.contextmanager
def recording_provider() -> Iterator[tuple[str, list[bytes]]]:
    """Run a provider of chat completions in a thread; gives its address, and the bodies that it got."""
    received: list[bytes] = []

    class Provider(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            message = {"role": "assistant", "content": "ok"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            body = {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [choice],
                "usage": usage,
            }
            raw = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", received
        server.shutdown()


@contextlib.contextmanager
def running(command: list[str], health_url: str, home: str) -> Iterator[int]:
    log = Path(home) / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env={**os.environ, **QUIET, "HOME": home}, stdout=out, stderr=out, cwd=home)
    try:
        wait_until_ready(process, health_url, log)
        yield process.pid
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    give_up = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < give_up and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise SystemExit(f"{process.args} did not get ready:\n{log.read_text('utf-8', 'replace')[-3000:]}")


def installed(name: str, requirement: str) -> Path:
    home = TOOLS / name
    if not (home / "done").exists():
        print(f"installing {requirement} under {home} …", file=sys.stderr)
        venv.create(home, with_pip=shutil.which("uv") is None, clear=True)
        python = str(home / "bin" / "python")
        uv = shutil.which("uv")
        command = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
        subprocess.run([*command, "--quiet", requirement], check=True)
        (home / "done").touch()
    return home


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

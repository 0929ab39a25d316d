"""The same requests through LiteLLM and Headroom, each in its own venv, in the same run as ours.

They are installed under .tools/rivals the first time, which takes a few minutes and the network.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

import relay
import uvloop
from relay import Figures
from timing import table

TOOLS = Path(__file__).parents[2] / ".tools" / "rivals"
READY_WITHIN_S = 120
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MASTER_KEY": "sk-bench",
    "HEADROOM_BEACON": "off",
    "HF_HUB_OFFLINE": "1",
    "NO_PROXY": "127.0.0.1",
}


def main() -> None:
    measured: dict[str, Figures] = {}
    with relay.provider() as direct:
        with relay.kimi_proxy(direct) as (base, pid):
            measured["kimi-proxy"] = uvloop.run(relay.figures(base, direct, pid))
        with litellm(direct) as (base, pid):
            measured["LiteLLM"] = uvloop.run(relay.figures(base, direct, pid))
        with headroom(direct) as (base, pid):
            measured["Headroom"] = uvloop.run(relay.figures(base, direct, pid))
    told = {name: relay.rows(figures) for name, figures in measured.items()}
    rows = [(what, *(told[name][i][1] for name in told)) for i, (what, _) in enumerate(told["kimi-proxy"])]
    table("Relay, side by side", ("what", *told), rows)
    table("How many times better we are", ("what", "LiteLLM", "Headroom"), list(_ratios(measured)))


def _ratios(measured: dict[str, Figures]) -> Iterator[tuple[str, ...]]:
    ours, others = measured["kimi-proxy"], [measured["LiteLLM"], measured["Headroom"]]
    for size, took in ours.added.items():
        yield f"added at {size}", *(f"{o.added[size].median_ms / took.median_ms:.1f}" for o in others)
    yield "requests per second", *(f"{ours.requests_per_s / o.requests_per_s:.1f}" for o in others)


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

"""The paired runner and our arm for another benchmark, with a scripted agent and a recorded run of Claude Code."""

import argparse
import asyncio
import importlib.util
import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import ClassVar, Protocol

import pytest
from tests.clients.programs.agents import AGENTS
from tests.clients.programs.running import new_place, run
from tests.support.api.proxy_world import proxy
from tests.support.checkout import clean_env
from tests.support.deep import deep
from tests.support.evil import evil
from tests.support.outputs import pytest_log

FOLDER = Path(__file__).parents[1] / "examples" / "benchmarks"
LOG = pytest_log(300)
RECORD = "[record]\nenabled = true\n"

# Reads a long log with a tool, and asks the model before and after.
AGENT = """
import json, os, pathlib, sys, urllib.request
log = pathlib.Path("build.log").read_text()
first = [{"role": "user", "content": sys.argv[1]}]
call = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "pytest"}}
result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": log}
read = [*first, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
tool = {"name": "bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}
for messages in (first, read):
    body = json.dumps({"model": "m", "max_tokens": 9, "tools": [tool], "messages": messages}).encode()
    headers = {"content-type": "application/json", "x-api-key": "sk-x", "anthropic-version": "2023-06-01"}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    urllib.request.urlopen(urllib.request.Request(url, body, headers)).read()
pathlib.Path("solved").write_text("yes")
"""

# Sends what Claude Code sent, in the order of the recording.
PLAYER = """
import json, os, pathlib, sys, urllib.request
from kimi_proxy.features import recording
for request in recording.read(pathlib.Path(sys.argv[1]).read_bytes().splitlines()).requests:
    headers = {"content-type": "application/json", "x-api-key": "sk-x", "anthropic-version": "2023-06-01"}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages?beta=true"
    urllib.request.urlopen(urllib.request.Request(url, request.body.encode(), headers)).read()
pathlib.Path("solved").write_text("yes")
"""


class KimiProxyArm(Protocol):
    def ready(self) -> tuple[bool, str]: ...

    def model_base_url(self) -> str: ...


class Provider(BaseHTTPRequestHandler):
    lengths: ClassVar[list[int]] = []  # of the requests that came

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.lengths.append(len(body))
        usage = {"input_tokens": len(body) // 4, "output_tokens": 3}
        answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
        raw = json.dumps(answer | {"content": [{"type": "text", "text": "ok"}], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def provider() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def settings(address: str, model: str) -> str:
    """Settings with the price of a model that the provider at `address` has."""
    return f"""
[providers.bench]
type = "anthropic"
base_url = "{address}"
[models.{model}]
provider = "bench"
max_context_size = 200000
input_usd_per_million = 3.0
output_usd_per_million = 15.0
[sanitizer]
budget_ms = 10000
"""


def run_pairs(folder: Path, agent: str) -> subprocess.CompletedProcess[str]:
    python = shlex.quote(sys.executable)
    command = [
        *(sys.executable, FOLDER / "run_pairs.py", folder / "tasks.jsonl", "--agent", f"{python} {agent}"),
        *(
            "--config",
            folder / "config.toml",
            "--kimi-proxy",
            f"{python} -m kimi_proxy",
            "--out",
            folder / "pairs.jsonl",
        ),
    ]
    env = clean_env(folder / "home")
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@deep("it runs agents in pairs: minutes")
def test_pairs_are_run_three_times_and_a_solved_task_costs_less_with_it(tmp_path: Path):
    for name, check in (("easy", "test -f solved"), ("hard", "false")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "build.log").write_text(LOG.text)
        task = {"id": name, "folder": name, "prompt": LOG.goal, "check": check}
        with (tmp_path / "tasks.jsonl").open("a") as file:
            file.write(json.dumps(task) + "\n")
    (tmp_path / "agent.py").write_text(AGENT)
    with provider() as address:
        (tmp_path / "config.toml").write_text(settings(address, "m"))
        done = run_pairs(tmp_path, f"{tmp_path / 'agent.py'} {{prompt}}")

    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert len(runs) == 12
    assert {run["requests"] for run in runs} == {2}
    assert [run["solved"] for run in runs if run["task"] == "easy"] == [True] * 6
    cost = {arm: sum(run["cost_usd"] for run in runs if run["arm"] == arm) for arm in ("baseline", "kimi-proxy")}
    assert 0 < cost["kimi-proxy"] < 0.8 * cost["baseline"]
    assert "| baseline | 3 of 6 | 2.0 |" in done.stdout
    assert "times the baseline, 95 % 0." in done.stdout


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recording of Claude Code itself at a job of eight calls, and a player for it."""
    folder = tmp_path_factory.mktemp("recorded")

    async def record() -> None:
        case = next(case for case in AGENTS if case.name == "claude")
        worker = replace(case.worker_on_long_job(folder / "project"), recalls=False)
        async with evil(worker) as scripted, proxy(folder / "state", scripted.toml("anthropic") + RECORD) as p:
            outcome = await run(case, new_place(folder, f"http://127.0.0.1:{p.port}"))
            await p.runtime.sessions.caught_up()
        assert outcome.is_success, outcome

    asyncio.run(record())
    (found,) = (folder / "state").rglob("recordings/**/*.jsonl")
    assert len(found.read_bytes().splitlines()) == 1 + 9
    found.rename(folder / "claude.jsonl")
    (folder / "play.py").write_text(PLAYER)
    return folder


@deep("it runs agents in pairs: minutes")
def test_pairs_of_a_recorded_run_of_claude_code_are_compared(tmp_path: Path, recorded: Path):
    (tmp_path / "task").mkdir()
    task = {"id": "orders", "folder": "task", "prompt": "claude.jsonl", "check": "test -f solved"}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    with provider() as address:
        (tmp_path / "config.toml").write_text(settings(address, "claude-opus-5-5"))
        done = run_pairs(tmp_path, f"{recorded / 'play.py'} {recorded}/{{prompt}}")

    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert [(run["requests"], run["solved"], run["agent_exit"]) for run in runs] == [(9, True, 0)] * 6
    cost = {arm: {run["cost_usd"] for run in runs if run["arm"] == arm} for arm in ("baseline", "kimi-proxy")}
    assert 0 < max(cost["kimi-proxy"]) < min(cost["baseline"])
    assert "| kimi-proxy | 3 of 3 | 9.0 |" in done.stdout


@deep("it runs agents in pairs: minutes")
def test_our_arm_sends_a_recorded_run_of_claude_code_with_less_in_it(
    tmp_path: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch
):
    pairs, arm = load(FOLDER / "run_pairs.py", "run_pairs"), load_arm(tmp_path, monkeypatch)
    sent: dict[str, int] = {}
    with provider() as address:
        (tmp_path / "config.toml").write_text(settings(address, "claude-opus-5-5"))
        asked = argparse.Namespace(
            kimi_proxy=f"{shlex.quote(sys.executable)} -m kimi_proxy", config=tmp_path / "config.toml"
        )
        for name, readiness in {"baseline": (False, "only observes"), "kimi-proxy": (True, "ok")}.items():
            with pairs.proxy(tmp_path / name, name, asked) as url:
                monkeypatch.setenv("KIMI_PROXY_BASE_URL", url)
                ok, reason = arm.ready()
                assert ok is readiness[0] and readiness[1] in reason
                env = clean_env(tmp_path / "home") | {"ANTHROPIC_BASE_URL": arm.model_base_url()}
                play = [sys.executable, recorded / "play.py", recorded / "claude.jsonl"]
                subprocess.run(play, cwd=tmp_path, env=env, check=True, timeout=300)
            sent[name] = sum(Provider.lengths)
            assert len(Provider.lengths) == 9
            Provider.lengths.clear()

    assert sent["kimi-proxy"] < sent["baseline"]


def test_the_interval_is_of_whole_tasks_and_the_same_every_time():
    pairs = load(FOLDER / "run_pairs.py", "run_pairs")
    costs = {"baseline": 2.0, "kimi-proxy": 1.0}
    runs = [
        pairs.Run(f"task {task}", arm, number, number != 0, cost * (1 + task % 3), 5, 0)
        for task in range(12)
        for arm, cost in costs.items()
        for number in range(3)
    ]
    spread = pairs.resample(runs)

    assert pairs.cost_per_solved([run for run in runs if run.arm == "baseline"]) == pytest.approx(6.0)
    low, high = pairs.interval(spread["baseline"])
    assert low < 6.0 < high
    assert pairs.interval(spread["ratio"]) == pytest.approx((0.5, 0.5))
    assert pairs.resample(runs) == spread
    assert pairs.cost_per_solved([run for run in runs if not run.solved]) == float("inf")


def load_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KimiProxyArm:
    """Its registry and its base class are stood in for by what they promise: a name, a kind, what is needed."""
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "__init__.py").write_text("")
    (tmp_path / "bench" / "arm.py").write_text(
        "import os\n"
        "class ProxyArm:\n"
        "    needs = []\n"
        "    def ready(self):\n"
        "        missing = [name for name in self.needs if not os.environ.get(name)]\n"
        "        return (not missing, 'missing' if missing else 'ok')\n"
        "ARMS = {}\n"
        "def register(name):\n"
        "    return lambda made: ARMS.setdefault(name, made)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("bench", "bench.arm"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    arm: KimiProxyArm = load(FOLDER / "arms" / "kimi_proxy.py", "kimi_proxy_arm").KimiProxyArm()
    return arm


def test_our_arm_has_the_form_of_the_other_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arm = load_arm(tmp_path, monkeypatch)
    monkeypatch.delenv("KIMI_PROXY_BASE_URL", raising=False)
    assert arm.ready() == (False, "missing")
    with provider() as address:
        monkeypatch.setenv("KIMI_PROXY_BASE_URL", f"{address}/")
        assert arm.model_base_url() == address
        ok, reason = arm.ready()

    assert not ok
    assert reason.startswith("no kimi-proxy answers at")

"""The paired runner before a scripted provider and a scripted agent, and our arm for another benchmark."""

import importlib.util
import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.checkout import clean_env
from tests.support.deep import deep
from tests.support.outputs import pytest_log

FOLDER = Path(__file__).parents[1] / "examples" / "benchmarks"
LOG = pytest_log(300)

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


class Provider(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
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


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@deep
def test_pairs_are_run_three_times_and_a_solved_task_costs_less_with_it(tmp_path: Path):
    for name, check in (("easy", "test -f solved"), ("hard", "false")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "build.log").write_text(LOG.text)
        task = {"id": name, "folder": name, "prompt": LOG.goal, "check": check}
        with (tmp_path / "tasks.jsonl").open("a") as file:
            file.write(json.dumps(task) + "\n")
    (tmp_path / "agent.py").write_text(AGENT)
    with provider() as address:
        settings = f'[providers.bench]\ntype = "anthropic"\nbase_url = "{address}"\n[models.m]\nprovider = "bench"\n'
        prices = "max_context_size = 200000\ninput_usd_per_million = 3.0\noutput_usd_per_million = 15.0\n"
        (tmp_path / "config.toml").write_text(settings + prices + "[sanitizer]\nbudget_ms = 10000\n")
        python = shlex.quote(sys.executable)
        command = [
            *(sys.executable, FOLDER / "run_pairs.py", tmp_path / "tasks.jsonl"),
            *("--agent", f"{python} {tmp_path / 'agent.py'} {{prompt}}", "--config", tmp_path / "config.toml"),
            *("--kimi-proxy", f"{python} -m kimi_proxy", "--out", tmp_path / "pairs.jsonl"),
        ]
        env = clean_env(tmp_path / "home")
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)

    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert len(runs) == 12
    assert {run["requests"] for run in runs} == {2}
    assert [run["solved"] for run in runs if run["task"] == "easy"] == [True] * 6
    cost = {arm: sum(run["cost_usd"] for run in runs if run["arm"] == arm) for arm in ("baseline", "kimi-proxy")}
    assert 0 < cost["kimi-proxy"] < 0.8 * cost["baseline"]
    assert "| baseline | 3 of 6 | 2.0 |" in done.stdout
    assert "times the baseline, 95 % 0." in done.stdout


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


def test_our_arm_has_the_form_of_the_other_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
    arm = load(FOLDER / "arms" / "kimi_proxy.py", "kimi_proxy_arm").KimiProxyArm()
    monkeypatch.delenv("KIMI_PROXY_BASE_URL", raising=False)
    assert arm.ready() == (False, "missing")
    with provider() as address:
        monkeypatch.setenv("KIMI_PROXY_BASE_URL", f"{address}/")
        assert arm.model_base_url() == address
        ok, reason = arm.ready()

    assert not ok
    assert reason.startswith("no kimi-proxy answers at")

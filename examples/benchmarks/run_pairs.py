"""Run tasks with and without kimi-proxy, several times each, and compare what a solved task costs.

    python examples/benchmarks/run_pairs.py tasks.jsonl --agent 'claude -p {prompt} --permission-mode acceptEdits'

A line of tasks.jsonl is a task: {"id": "…", "folder": "…", "prompt": "…", "check": "pytest -q tests/test_login.py"}.
Every run gets a fresh copy of `folder` and a kimi-proxy of its own. In the arm `baseline` it only observes: requests
leave byte for byte, and are counted and priced in the same way as in the arm `kimi-proxy`. A task is solved if `check`
exits with 0.
"""

import argparse
import json
import math
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.request import urlopen

ARMS = {"baseline": ("--observe",), "kimi-proxy": ()}
LISTENS = re.compile(r"the proxy listens on (http://\S+)")
LEAST_RUNS = 3
RESAMPLES = 2000
SEED = 20260101  # the same results give the same interval


@dataclass(frozen=True)
class Task:
    id: str
    folder: Path
    prompt: str
    check: str


@dataclass(frozen=True)
class Run:
    """What one run of a task came to."""

    task: str
    arm: str
    number: int
    solved: bool
    cost_usd: float
    requests: int
    agent_exit: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--agent", required=True, help="the agent's command; {prompt} stands for the task's prompt")
    parser.add_argument("--runs", type=int, default=LEAST_RUNS, help="of each task in each arm, at least 3")
    parser.add_argument("--timeout-s", type=float, default=1800, help="for one run of the agent")
    parser.add_argument("--config", type=Path, help="settings for kimi-proxy, such as another provider")
    parser.add_argument("--kimi-proxy", default="kimi-proxy", help="the command")
    parser.add_argument(
        "--out", type=Path, default=Path("pairs.jsonl"), help="results, one run a line; runs in it are not repeated"
    )
    asked = parser.parse_args()
    if asked.runs < LEAST_RUNS:
        parser.error(f"--runs: {LEAST_RUNS} at least, or chance decides")
    done = [Run(**json.loads(line)) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    known = {(run.task, run.arm, run.number) for run in done}
    for task in read_tasks(asked.tasks):
        for number in range(asked.runs):
            # Both arms of a pair run one after the other, so that a slow hour at the provider meets both.
            for arm in ARMS:
                if (task.id, arm, number) not in known:
                    run = run_once(task, arm, number, asked)
                    done.append(run)
                    with asked.out.open("a") as file:
                        file.write(json.dumps(asdict(run)) + "\n")
                    outcome = "solved" if run.solved else "not solved"
                    print(f"{task.id} {arm} {number + 1}: {outcome}, {run.cost_usd:.4f} USD", file=sys.stderr)
    print(summarize(done))


def read_tasks(path: Path) -> list[Task]:
    tasks = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [Task(task["id"], path.parent / task["folder"], task["prompt"], task["check"]) for task in tasks]


def run_once(task: Task, arm: str, number: int, asked: argparse.Namespace) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        shutil.copytree(task.folder, work)
        with proxy(Path(folder) / "state", arm, asked) as address:
            env = {**os.environ, "ANTHROPIC_BASE_URL": address, "OPENAI_BASE_URL": f"{address}/v1"}
            command = [part.replace("{prompt}", task.prompt) for part in shlex.split(asked.agent)]
            code = run(command, work, env, asked.timeout_s)
            totals = ask(f"{address}/api/savings")["range"]["totals"]
        solved = run(["sh", "-c", task.check], work, os.environ, asked.timeout_s) == 0
    if totals["cost_usd"] is None and totals["requests"]:
        sys.exit("the price of the model is not known: set it in [models] of a file that --config names")
    return Run(task.id, arm, number, solved, totals["cost_usd"] or 0.0, totals["requests"], code)


def run(command: Sequence[str], folder: Path, env: Mapping[str, str], timeout_s: float) -> int:
    """Return the exit code; 124 if it took too long."""
    try:
        return subprocess.run(  # noqa: S603 - what the user asked for
            command, cwd=folder, env=env, timeout=timeout_s, stdin=subprocess.DEVNULL, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return 124


@contextmanager
def proxy(state: Path, arm: str, asked: argparse.Namespace) -> Iterator[str]:
    """The address of a kimi-proxy with a state of its own."""
    config = ("--config", str(asked.config)) if asked.config else ()
    command = [*shlex.split(asked.kimi_proxy), "start", *config, "--port", "0", "--pruner-port", "0", *ARMS[arm]]
    env = {**os.environ, "KIMI_PROXY_HOME": str(state)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8", env=env) as process:  # noqa: S603
        assert process.stderr is not None  # noqa: S101 - for the type checker
        try:
            found = next((found for line in process.stderr if (found := LISTENS.search(line))), None)
            if found is None:
                sys.exit("kimi-proxy did not start")
            yield found[1]
        finally:
            process.terminate()
            process.stderr.read()


def ask(url: str) -> dict[str, dict[str, dict[str, float | None]]]:
    with urlopen(url, timeout=30) as answer:  # noqa: S310 - of this machine
        found: dict[str, dict[str, dict[str, float | None]]] = json.load(answer)
        return found


# Statistics


def cost_per_solved(runs: Sequence[Run]) -> float:
    solved = sum(run.solved for run in runs)
    return sum(run.cost_usd for run in runs) / solved if solved else math.inf


def resample(runs: Sequence[Run], times: int = RESAMPLES) -> dict[str, list[float]]:
    """Return the cost of a solved task of each arm, and their ratio, for tasks drawn with replacement.

    Whole tasks are drawn, with all runs of both arms: runs of one task are alike.
    """
    by_task: dict[str, list[Run]] = {}
    for run in runs:
        by_task.setdefault(run.task, []).append(run)
    chance, names = random.Random(SEED), sorted(by_task)  # noqa: S311
    found: dict[str, list[float]] = {name: [] for name in (*ARMS, "ratio")}
    for _ in range(times):
        drawn = [run for name in chance.choices(names, k=len(names)) for run in by_task[name]]
        costs = {arm: cost_per_solved([run for run in drawn if run.arm == arm]) for arm in ARMS}
        for arm, cost in costs.items():
            found[arm].append(cost)
        if 0 < costs["baseline"] < math.inf:
            found["ratio"].append(costs["kimi-proxy"] / costs["baseline"])
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the middle 95 %."""
    ordered = sorted(values)
    return ordered[int(0.025 * len(ordered))], ordered[min(len(ordered) - 1, int(0.975 * len(ordered)))]


def summarize(runs: Sequence[Run]) -> str:
    spread, rows = resample(runs), []
    for arm in ARMS:
        own = [run for run in runs if run.arm == arm]
        low, high = interval(spread[arm])
        solved, steps = sum(run.solved for run in own), sum(run.requests for run in own) / len(own)
        figures = (
            f"{sum(run.cost_usd for run in own) / len(own):.4f} | {cost_per_solved(own):.4f} | {low:.4f} to {high:.4f}"
        )
        rows.append(f"| {arm} | {solved} of {len(own)} | {steps:.1f} | {figures} |")
    head = "| arm | solved | requests a run | USD a run | USD a solved task | 95 % |\n|---|--:|--:|--:|--:|---|"
    ratio = interval(spread["ratio"]) if spread["ratio"] else (math.nan, math.nan)
    costs = [cost_per_solved([run for run in runs if run.arm == arm]) for arm in ARMS]
    change = f"A solved task costs {costs[1] / costs[0]:.2f} times the baseline, 95 % {ratio[0]:.2f} to {ratio[1]:.2f}."
    return "\n".join((head, *rows, "", change))


if __name__ == "__main__":
    main()

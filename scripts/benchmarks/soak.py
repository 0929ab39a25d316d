"""Mixed traffic for minutes: memory, descriptors, threads and the database have to stay flat, and answers quick.

`scripts/soak MINUTES` prints what was measured in the second and in the last quarter; it fails if something grew.
"""

import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import corpus
import relay
import uvloop
from timing import median, p95, table

SAMPLE_S = 2.0
TURNS = 20  # of a conversation, before another one begins
CONVERSATIONS, STREAMERS, PRUNERS = 3, 4, 2
PAUSE_S = 0.2
TTL_S = "30"  # of originals, instead of a week: what is written has to leave the disk again within the soak

GROWTH = {
    "memory MB": 1.15,
    "descriptors": 1.2,
    "threads": 1.2,
    "child processes": 1.5,
    "tasks": 1.5,
    "database MB": 1.5,
}
LEVEL_AFTER_MIN, LEVEL_GROWTH = 40, 1.04  # by then every cache is full: memory has to stay where it is
WATCHED = Path(__file__).with_name("watched_server.py")


@dataclass(slots=True)
class Sample:
    memory_mb: float
    descriptors: int
    threads: int
    children: int
    tasks: int
    state_mb: float
    health_ms: float


@dataclass(slots=True)
class Traffic:
    answered: int = 0
    failed: int = 0
    problems: list[str] = field(default_factory=list)

    def note(self, problem: str | None) -> None:
        self.answered += problem is None
        self.failed += problem is not None
        if problem and len(self.problems) < 5:
            self.problems.append(problem)


def main(arguments: Sequence[str]) -> None:
    minutes = float(arguments[0]) if arguments else 5.0
    with (
        tempfile.NamedTemporaryFile() as watched,
        relay.provider() as direct_url,
        relay.kimi_proxy(direct_url, [str(WATCHED)], WATCHED_FILE=watched.name, MCP_PRUNER_PRUNE_ID_TTL_S=TTL_S) as (
            base_url,
            pid,
        ),
    ):
        samples, traffic = uvloop.run(_soaked(base_url, pid, minutes * 60, Path(watched.name)))
        delays = [delay for delay, _ in _watched(Path(watched.name))]
    quarter = max(1, len(samples) // 4)
    # The first seconds fill caches: what counts is whether it goes on.
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    rows = [(name, f"{_of(early, read):.1f}", f"{_of(late, read):.1f}") for name, read in FIGURES.items()]
    health = [sample.health_ms for sample in samples]
    rows += [("event loop late, p99 ms", f"{_p99(delays):.0f}", f"p95 {p95(delays):.0f}")]
    rows += [("health p99 ms", f"{_p99(health):.0f}", f"p95 {p95(health):.0f}")]
    rows += [("requests answered", str(traffic.answered), f"{traffic.failed} failed")]
    table(f"Soak, {minutes:g} minutes", ("what", "second quarter", "last quarter"), rows)
    minutely = samples[:: max(1, round(60 / SAMPLE_S))]
    print(f"\nMemory by the minute, MB: {' '.join(f'{sample.memory_mb:.0f}' for sample in minutely)}")
    limits = {**GROWTH, "memory MB": LEVEL_GROWTH} if minutes >= LEVEL_AFTER_MIN else GROWTH
    grown = [name for name, most in limits.items() if _of(late, FIGURES[name]) > most * _of(early, FIGURES[name]) + 2]
    if grown or traffic.failed:
        raise SystemExit(f"grew: {', '.join(grown) or 'nothing'}; failed: {traffic.failed} {traffic.problems}")


FIGURES: dict[str, Callable[[Sample], float]] = {
    "memory MB": lambda sample: sample.memory_mb,
    "descriptors": lambda sample: sample.descriptors,
    "threads": lambda sample: sample.threads,
    "child processes": lambda sample: sample.children,
    "tasks": lambda sample: sample.tasks,
    "database MB": lambda sample: sample.state_mb,
}


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


def _of(samples: Sequence[Sample], read: Callable[[Sample], float]) -> float:
    return median([read(sample) for sample in samples])


async def _soaked(base_url: str, pid: int, for_s: float, watched: Path) -> tuple[list[Sample], Traffic]:
    stop_at, traffic = time.monotonic() + for_s, Traffic()
    samples: list[Sample] = []
    async with asyncio.TaskGroup() as group:
        for seed in range(CONVERSATIONS):
            group.create_task(_converse(base_url, seed, stop_at, traffic))
        for _ in range(STREAMERS):
            group.create_task(_repeat(base_url, relay.stream_body(50), stop_at, traffic))
        for _ in range(PRUNERS):
            group.create_task(_repeat(base_url, relay.body(50_000), stop_at, traffic))
        while time.monotonic() < stop_at:
            await asyncio.sleep(SAMPLE_S)
            samples.append(await _sample(base_url, pid, watched))
    return samples, traffic


async def _converse(base_url: str, seed: int, stop_at: float, traffic: Traffic) -> None:
    """Grow conversations by a new tool result a turn."""
    rng = random.Random(seed)
    while time.monotonic() < stop_at:
        messages: list[dict[str, object]] = [{"role": "user", "content": f"Why does it fail? {rng.random()}"}]
        for turn in range(TURNS):
            text = corpus.text("logs", rng.choice((40, 300, 900))) + f"\nrun {turn} {rng.random()}"
            call = {"id": f"c{turn}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": text})
            tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
            body = json.dumps({"model": "m", "tools": tools, "messages": messages}).encode()
            traffic.note(await _asked(base_url, body))
            await asyncio.sleep(PAUSE_S)
            if time.monotonic() >= stop_at:
                return


async def _repeat(base_url: str, body: bytes, stop_at: float, traffic: Traffic) -> None:
    while time.monotonic() < stop_at:
        traffic.note(await _asked(base_url, body))
        await asyncio.sleep(PAUSE_S)


async def _asked(base_url: str, body: bytes) -> str | None:
    """Return what went wrong, or None."""
    try:
        async with asyncio.timeout(60), relay.Line(base_url) as line:
            await line.ask(line.request(body))
    except (OSError, asyncio.IncompleteReadError, SystemExit) as e:
        return f"{type(e).__name__}: {e}"
    return None


async def _sample(base_url: str, pid: int, watched: Path) -> Sample:
    process = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    environment = dict(part.partition("=")[::2] for part in (process / "environ").read_text().split("\0"))
    state = environment["KIMI_PROXY_HOME"]
    host, port = base_url.removesuffix("/v1").removeprefix("http://").rsplit(":", 1)
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /health HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
    await reader.read()
    health_ms = (time.perf_counter() - began) * 1000
    writer.close()
    return Sample(
        relay.rss_mb(pid),
        len(list((process / "fd").iterdir())),
        int(status["Threads"]),
        sum(len((task / "children").read_text().split()) for task in (process / "task").iterdir()),
        _watched(watched)[-1][1],
        _size_mb(state),
        health_ms,
    )


def _watched(file: Path) -> list[tuple[float, int]]:
    """Return how many milliseconds late the event loop was, and how many tasks it had, each time it was asked."""
    lines = [line.split() for line in file.read_text().splitlines()]
    return [(float(late), int(tasks)) for late, tasks in lines]


def _size_mb(folder: str) -> float:
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6


if __name__ == "__main__":
    main(sys.argv[1:])

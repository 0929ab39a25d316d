"""The proxy between a client and a provider: what it adds to a request, and what that costs.

`figures(base_url, direct_url, pid)` measures anything that stands at a base URL in front of the fake provider.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import uvloop
from conversations import SHAPES as CONVERSATIONS
from conversations import fresh, going_on
from timing import median, p95, table

SIZES = {"1 KB": (1_000, 600), "100 KB": (100_000, 200), "1 MB": (1_000_000, 60)}
STREAMS = 50
CHUNKS = 20
MANY_CHUNKS = 220
CLIENTS = 16
BUSY_S = 5.0
SETTLE_S = 1.5  # the journal is written a second after a request
BURST = 20_000  # chunks
WARM_UP = 30
FEW = 3


@dataclass(frozen=True, slots=True)
class Added:
    """Milliseconds that a request takes more than without anybody between."""

    median_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class Figures:
    added: dict[str, Added]  # by size of the request
    added_first: Added  # to the first request of a conversation, 1 KB; the requests of `added` are one that goes on
    added_new: dict[str, Added]  # by shape of a conversation that nobody has seen before
    added_going_on: dict[str, Added]  # to one that grows with each request
    added_stream: Added  # to the last of 20 chunks
    requests_per_s: float  # 16 clients at once
    first_per_s: float  # the same, each request the first of a conversation
    request_cpu_ms: float | None  # of the whole process
    first_cpu_ms: float | None  # with what is written down after it
    chunk_cpu_us: float | None  # that comes a millisecond after the one before
    burst_cpu_us: float | None  # of chunks that come as fast as they are read
    rss_mb: float | None


class Line:
    """One keep-alive connection of a client that spends no time on HTTP."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._path = f"{parts.path}/chat/completions"

    async def __aenter__(self) -> "Line":
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=1 << 24)
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._writer.close()

    def request(self, body: bytes) -> bytes:
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer sk-bench\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def ask(self, raw: bytes) -> float:
        """Milliseconds from the first byte of the request to the last of its answer."""
        return (await self.answer(raw))[0]

    async def answer(self, raw: bytes) -> tuple[float, bytes]:
        """The same, and the body of the answer."""
        began = time.perf_counter()
        self._writer.write(raw)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"no answer: {head[:300]!r} {await self._reader.read(500)!r}")
        lower = head.lower()
        if b"content-length:" in lower:
            body = await self._reader.readexactly(int(lower.split(b"content-length:")[1].split(b"\r\n")[0]))
        else:
            body = await self._reader.readuntil(b"\r\n0\r\n\r\n")
        return (time.perf_counter() - began) * 1000, body


def body(size: int) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * size}]}).encode()


_numbers = itertools.count()
_SCHEMA = {"type": "object", "properties": {"command": {"type": "string", "description": "what to run"}}}
_TOOL = {"type": "function", "function": {"name": "bash", "description": "Run a command.", "parameters": _SCHEMA}}
_FIRST = json.dumps(
    {"model": "m", "messages": [{"role": "user", "content": "%09d" + "x" * 600}], "tools": [_TOOL]}
).encode()


def first_body() -> bytes:
    """The first request of a conversation that nobody has begun before, of an agent with one tool."""
    return _FIRST % next(_numbers)


def stream_body(chunks: int, more: bytes = b"") -> bytes:
    return b'{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,%b"n":%d}' % (more, chunks)


async def added(base_url: str, direct_url: str, make: Callable[[], bytes], times: int, warm_up: int = WARM_UP) -> Added:
    """Both ways in turn, so that whatever else the machine does hits both alike."""
    async with Line(base_url) as through, Line(direct_url) as direct:
        for _ in range(warm_up):
            for line in (through, direct):
                await line.ask(line.request(make()))
        trips = [[await line.ask(line.request(make())) for line in (through, direct)] for _ in range(times)]
    longer, shorter = zip(*trips, strict=True)
    return Added(median(longer) - median(shorter), p95(longer) - p95(shorter))


async def busy(base_url: str, for_s: float, make: Callable[[], bytes]) -> int:
    """Requests answered while 16 clients ask without a pause."""
    stop_at = time.perf_counter() + for_s

    async def client() -> int:
        asked = 0
        async with Line(base_url) as line:
            while time.perf_counter() < stop_at:
                await line.ask(line.request(make()))
                asked += 1
        return asked

    return sum(await asyncio.gather(*(client() for _ in range(CLIENTS))))


async def streams(base_url: str, chunks: int) -> None:
    async with Line(base_url) as line:
        request = line.request(stream_body(chunks))
        for _ in range(STREAMS):
            await line.ask(request)


async def figures(base_url: str, direct_url: str, pid: int | None = None) -> Figures:
    """`base_url` and `direct_url` end before /chat/completions; `pid` is whose time and memory are read."""
    by_size = {
        name: await added(base_url, direct_url, itertools.repeat(body(size)).__next__, times)
        for name, (size, times) in SIZES.items()
    }
    added_first = await added(base_url, direct_url, first_body, SIZES["1 KB"][1])
    added_new: dict[str, Added] = {}
    added_going_on: dict[str, Added] = {}
    for name, shape in CONVERSATIONS.items():
        added_new[name] = await added(base_url, direct_url, fresh(shape), shape.times, FEW)
        added_going_on[name] = await added(base_url, direct_url, going_on(shape), shape.times, FEW)
    added_stream = await added(base_url, direct_url, lambda: stream_body(CHUNKS), STREAMS)
    rates: list[float] = []
    spent: list[float] = []
    for make in (itertools.repeat(body(1_000)).__next__, first_body):
        before = cpu_s(pid)
        answered = await busy(base_url, BUSY_S, make)
        await asyncio.sleep(SETTLE_S)
        rates.append(answered / BUSY_S)
        spent.append((cpu_s(pid) - before) * 1000 / answered)
    costs: list[float] = []
    for chunks in (CHUNKS, MANY_CHUNKS):
        before = cpu_s(pid)
        await streams(base_url, chunks)
        costs.append(cpu_s(pid) - before)
    return Figures(
        by_size,
        added_first,
        added_new,
        added_going_on,
        added_stream,
        *rates,
        *(spent if pid else (None, None)),
        (costs[1] - costs[0]) * 1e6 / STREAMS / (MANY_CHUNKS - CHUNKS) if pid else None,
        await burst_cpu_us(base_url, pid) if pid else None,
        rss_mb(pid) if pid else None,
    )


async def burst_cpu_us(base_url: str, pid: int) -> float:
    async with Line(base_url) as line:
        before = cpu_s(pid)
        await line.ask(line.request(stream_body(BURST, b'"fast":true,')))
        return (cpu_s(pid) - before) * 1e6 / BURST


def cpu_s(pid: int | None) -> float:
    """CPU time of a process and all of its threads, to the nanosecond: /proc counts in hundredths of a second."""
    return 0.0 if pid is None else time.clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid(3) makes it


def rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.split("\n") if line.startswith("VmRSS")) / 1024


@contextlib.contextmanager
def provider() -> Iterator[str]:
    """The base URL of a fake provider in a process of its own."""
    program = Path(__file__).with_name("fake_provider.py")
    process = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def kimi_proxy(
    provider_url: str, program: Sequence[str] = ("-m", "kimi_proxy", "start"), **variables: str
) -> Iterator[tuple[str, int]]:
    """The base URL of a proxy in front of the provider, and its process; `program` is what starts it."""
    with tempfile.TemporaryDirectory() as home:
        config = Path(home) / "config.toml"
        config.write_text(f'[providers.fake]\nbase_url = "{provider_url}"\n')
        env = {
            **os.environ,
            "KIMI_PROXY_HOME": home,
            "KIMI_PROXY_CONFIG": str(config),
            "KIMI_PROXY_PORT": "0",
            "MCP_PRUNER_PORT": "0",
            "KIMI_PROXY_LOG_LEVEL": "warning",
            **variables,
        }
        process = subprocess.Popen([sys.executable, *program], env=env, stderr=subprocess.PIPE, text=True)
        assert process.stderr
        try:
            told = next(line for line in process.stderr if "the proxy listens on http://" in line)
            yield f"{told.split('listens on ')[1].split(' ')[0]}/v1", process.pid
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)  # a busy machine takes its time


def rows(measured: Figures) -> list[tuple[str, str]]:
    sizes = [
        (f"added to a request of {name}", f"{took.median_ms:.2f} ms (p95 {took.p95_ms:.2f} ms)")
        for name, took in measured.added.items()
    ]
    first = measured.added_first
    conversations = [
        (f"added to a conversation of {name}: new / going on", f"{new.median_ms:.2f} / {more.median_ms:.2f} ms")
        for (name, new), more in zip(measured.added_new.items(), measured.added_going_on.values(), strict=True)
    ]
    return [
        *sizes,
        *conversations,
        ("added to the first request of a conversation", f"{first.median_ms:.2f} ms (p95 {first.p95_ms:.2f} ms)"),
        (f"added to a stream of {CHUNKS} chunks", f"{measured.added_stream.median_ms:.2f} ms"),
        (f"requests per second, {CLIENTS} clients", f"{measured.requests_per_s:.0f}"),
        (
            f"first requests of conversations per second, {CLIENTS} clients",
            f"{measured.first_per_s:.0f} ({measured.first_per_s / measured.requests_per_s:.2f} of the running rate)",
        ),
        ("CPU per short request", _shown(measured.request_cpu_ms, "ms")),
        ("CPU per first request", _shown(measured.first_cpu_ms, "ms")),
        ("CPU per chunk, one a millisecond", _shown(measured.chunk_cpu_us, "µs")),
        ("CPU per chunk in a burst", _shown(measured.burst_cpu_us, "µs")),
        ("memory afterwards", _shown(measured.rss_mb, "MB")),
    ]


def _shown(value: float | None, unit: str) -> str:
    return "unknown" if value is None else f"{value:.2f} {unit}"


@contextlib.contextmanager
def bare_relay(provider_url: str) -> Iterator[tuple[str, int]]:
    """The base URL of a relay that does nothing else, on the same libraries, and its process."""
    program = [sys.executable, str(Path(__file__).with_name("bare_relay.py")), provider_url]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1", process.pid
    finally:
        process.kill()
        process.wait()


def main() -> None:
    with provider() as direct_url:
        with kimi_proxy(direct_url) as (base_url, pid):
            ours = rows(uvloop.run(figures(base_url, direct_url, pid)))
        with bare_relay(direct_url) as (base_url, pid):
            bare = rows(uvloop.run(figures(base_url, direct_url, pid)))
    both = [(what, mine, its) for (what, mine), (_, its) in zip(ours, bare, strict=True)]
    table("Relay", ("what", "kimi-proxy", "a bare relay on the same libraries"), both)

"""The gateway in front of a server on stdio: what it adds to a call, beside mcp-proxy, and how fast it masks."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from timing import median, table

from kimi_proxy.assembly.runtime import running
from kimi_proxy.core import json as deepjson
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import parse
from kimi_proxy.core.config.servers import MaskingSettings
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features import masking
from kimi_proxy.services.gateway import Gateway

ROOT = Path(__file__).parents[2]
MCP_PROXY = "mcp-proxy==0.13.0"
UPSTREAM = [sys.executable, "-I", "-S", str(Path(__file__).with_name("echo_server.py"))]
SIZES = {"100 B": (100, 200), "100 KB": (100_000, 100)}  # characters of the answer, calls of a round
ROUNDS = 7
IDLE_S = 2.0  # servers hang up on a connection that is idle for five
MASKED_CHARS = 10_000_000
HELD_CHARS, HELD_ROUNDS = 50_000_000, 3

Call = Callable[[int], None]


@dataclass(slots=True)
class Way:
    """A way to the server: how a call is made, and the process in between, if there is one."""

    name: str
    call: Call
    pid: int | None = None


def main() -> None:
    with contextlib.ExitStack() as alive:
        ways = [
            alive.enter_context(direct()),
            alive.enter_context(mcp_proxy()),
            alive.enter_context(ours("kimi-proxy, nothing masked", masked=False)),
            alive.enter_context(ours("kimi-proxy, the same text again", masked=True)),
            alive.enter_context(ours("kimi-proxy, each text new", masked=True, fresh=True)),
        ]
        for label, (size, calls) in SIZES.items():
            table(
                f"Gateway, answers of {label}",
                ("way", "a call, ms", "added, ms", "CPU between, ms", "added and CPU, of mcp-proxy's"),
                rows(ways, size, calls),
            )
    table("Results of 10 MB", ("what", "reading", "masking"), masking_rows())
    table("Results of 50 MB", ("what", "the event loop was held, ms"), asyncio.run(held_rows()))


def rows(ways: list[Way], size: int, calls: int) -> list[tuple[str, ...]]:
    """Rounds of all ways in turn, so that whatever else the machine does hits all of them."""
    times: dict[str, list[float]] = {way.name: [] for way in ways}
    cpu: dict[str, list[float]] = {way.name: [] for way in ways}
    for way in ways:
        for _ in range(20):
            way.call(size)
    for _ in range(ROUNDS):
        for way in ways:
            before = cpu_s(way.pid)
            each = [timed(way.call, size) for _ in range(calls)]
            cpu[way.name].append((cpu_s(way.pid) - before) * 1000 / calls)
            times[way.name].append(median(each))
    added = {way.name: median(times[way.name]) - median(times[ways[0].name]) for way in ways}
    spent = {way.name: median(cpu[way.name]) for way in ways}
    yardstick = ways[1].name
    return [
        (ways[0].name, f"{median(times[ways[0].name]):.2f}", "", "", ""),
        *(
            (
                way.name,
                f"{median(times[way.name]):.2f}",
                f"{added[way.name]:.2f}",
                f"{spent[way.name]:.2f}",
                f"{added[way.name] / added[yardstick]:.2f}, {spent[way.name] / spent[yardstick]:.2f}",
            )
            for way in ways[1:]
        ),
    ]


def timed(call: Call, size: int) -> float:
    began = time.perf_counter()
    call(size)
    return (time.perf_counter() - began) * 1000


def cpu_s(pid: int | None) -> float:
    """Seconds that all threads of a process ran, to the nanosecond."""
    if pid is None:
        return 0.0
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def message(size: int, salt: int | str = "", tool: str = "echo") -> dict[str, JsonValue]:
    params: dict[str, JsonValue] = {"name": tool, "arguments": {"size": size, "salt": salt}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@contextlib.contextmanager
def direct() -> Iterator[Way]:
    """The server itself, a line for a line."""
    process = subprocess.Popen(UPSTREAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout

    def call(size: int) -> None:
        process.stdin.write(json.dumps(message(size)).encode() + b"\n")
        process.stdin.flush()
        assert b'"result"' in process.stdout.readline()

    try:
        yield Way("direct, on stdio", call)
    finally:
        process.stdin.close()
        process.wait(10)


@contextlib.contextmanager
def ours(name: str, masked: bool, fresh: bool = False) -> Iterator[Way]:
    """Our gateway; an answer that it masks is looked up among the originals, a new one is committed to disk first."""
    with tempfile.TemporaryDirectory() as home:
        settings = Path(home) / "config.toml"
        settings.write_text(
            f"[mcp.servers.echo]\ncommand = {json.dumps(UPSTREAM[0])}\nargs = {json.dumps(UPSTREAM[1:])}\n"
            f"[mcp.servers.echo.masking]\nenabled = {json.dumps(masked)}\n"
        )
        ports = {"KIMI_PROXY_PORT": "0", "MCP_PRUNER_PORT": "0"}
        env = {**os.environ, **ports, "KIMI_PROXY_HOME": home, "KIMI_PROXY_CONFIG": str(settings)}
        process = subprocess.Popen([sys.executable, "-m", "kimi_proxy", "start"], env=env, stderr=subprocess.DEVNULL)
        run_file = Path(home) / "run" / "start.json"
        try:
            wait(run_file.exists)
            port = int(json.loads(run_file.read_text())["addresses"]["proxy"].rpartition(":")[2])
            salts = itertools.count() if fresh else itertools.repeat("")
            yield over_http(name, port, "/api/mcp-gateway/echo/mcp", process.pid, salts)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


@contextlib.contextmanager
def mcp_proxy() -> Iterator[Way]:
    port = free_port()
    command = [str(installed() / "bin" / "mcp-proxy"), "--port", str(port), "--", *UPSTREAM]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(lambda: listens(port))
        yield over_http("mcp-proxy", port, "/mcp/", process.pid, itertools.repeat(""))
    finally:
        process.terminate()
        process.wait(20)


class Line:
    """One keep-alive connection of a client that spends no time on HTTP."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._socket = self._connected()
        self._head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\n"
        )

    def _connected(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._used = time.monotonic()
        return made

    def send(self, body: dict[str, object]) -> tuple[bytes, bytes]:
        """The head and the body of the answer, which may be JSON or a stream of events."""
        if time.monotonic() - self._used > IDLE_S:
            self._socket.close()
            self._socket = self._connected()
        self._used = time.monotonic()
        raw = json.dumps(body).encode()
        self._socket.sendall(f"{self._head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
        pieces = self._read()
        while b"\r\n\r\n" not in pieces:
            pieces += self._read()
        head, _, rest = pieces.partition(b"\r\n\r\n")
        return head, self._rest(head.lower(), [rest])

    def remember(self, header: str) -> None:
        self._head += f"{header}\r\n"

    def _read(self) -> bytes:
        piece = self._socket.recv(1 << 20)
        if not piece:
            raise SystemExit("a server hung up")
        return piece

    def _rest(self, head: bytes, pieces: list[bytes]) -> bytes:
        if b"content-length:" in head:
            missing = int(head.partition(b"content-length:")[2].split(b"\r\n")[0]) - len(pieces[0])
            while missing > 0:
                pieces.append(self._read())
                missing -= len(pieces[-1])
        elif b"transfer-encoding:" in head:
            while not pieces[-1].endswith(b"0\r\n\r\n"):
                pieces.append(self._read())
        return b"".join(pieces)


def over_http(name: str, port: int, path: str, pid: int, salts: Iterator[int | str]) -> Way:
    """A client that begins a session, if there is one."""
    line = Line(port, path)
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    head, _ = line.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about})
    for field in head.decode().split("\r\n"):
        if field.lower().startswith("mcp-session-id:"):
            line.remember(field)
    line.remember("MCP-Protocol-Version: 2025-11-25")
    line.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(size: int) -> None:
        _, body = line.send(message(size, next(salts)))
        assert b'"result"' in body

    return Way(name, call, pid)


def masking_rows() -> list[tuple[str, str, str]]:
    lines = "".join(f"line {i} of a file with words that somebody wrote\n" for i in range(200_000))[:MASKED_CHARS]
    half = lines[: MASKED_CHARS // 2]
    records = [{"id": i, "name": f"name {i}", "note": "a few words about it"} for i in range(MASKED_CHARS // 60)]
    text = {"content": [{"type": "text", "text": half}], "structuredContent": {"content": half}}
    return [
        masked("a file, in content and in structuredContent", text),
        masked("JSON in a text, with one long string", said(json.dumps({"path": "a", "content": lines}))),
        masked("JSON in a text, with many members", said(json.dumps(records))),
        masked("many short strings, none to be masked", {"structuredContent": records}),
    ]


async def held_rows() -> list[tuple[str, str]]:
    """CPU time of all threads between two turns of the loop, at most: what it waits for, on a busy machine too."""
    with tempfile.TemporaryDirectory() as home:
        toml = f"[mcp.servers.echo]\ncommand = {json.dumps(UPSTREAM[0])}\nargs = {json.dumps(UPSTREAM[1:])}\n"
        async with running(parse(toml, {}, Path(home))) as runtime:
            await runtime.gateway.answer(LOCAL, "echo", message(100))
            return [
                await held(runtime.gateway, "a text, which is masked", "echo"),
                await held(runtime.gateway, "many members, which pass whole", "rows"),
            ]


async def held(gateway: Gateway, what: str, tool: str) -> tuple[str, str]:
    longest: list[float] = []
    for _ in range(HELD_ROUNDS):
        turns: list[float] = []
        watching = asyncio.create_task(watch(turns))
        deepjson.encode_in_pieces(await gateway.answer(LOCAL, "echo", message(HELD_CHARS, tool=tool)))
        await asyncio.sleep(0)
        watching.cancel()
        longest.append(max(turns))
    return what, f"{min(longest) * 1000:.0f}"


async def watch(turns: list[float]) -> None:
    before = time.process_time()
    while True:
        await asyncio.sleep(0)
        now = time.process_time()
        turns.append(now - before)
        before = now


def said(text: str) -> JsonValue:
    return {"content": [{"type": "text", "text": text}]}


def masked(what: str, result: JsonValue) -> tuple[str, str, str]:
    """Megabytes a second from the server's bytes to a value, and from that to one with its long strings hidden."""
    raw = json.dumps(result).encode()
    read = deepjson.decode_deep(raw)

    def mask(_: int) -> None:
        plan = masking.plan(read, MaskingSettings())
        masking.apply(plan, {cut.text: cut.render("msk_0123456789abcdef") for cut in plan.cuts})

    best = [min(timed(work, 0) for _ in range(5)) for work in (lambda _: deepjson.decode_deep(raw), mask)]
    rates = [f"{len(raw) / took / 1000:,.0f} MB/s" for took in best]
    return what, rates[0], rates[1]


def installed() -> Path:
    """mcp-proxy in an environment of its own, kept under .tools."""
    place = ROOT / ".tools" / MCP_PROXY.replace("==", "-")
    if not (place / "bin" / "mcp-proxy").exists():
        venv.create(place, with_pip=True, clear=True)
        subprocess.run(
            [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", MCP_PROXY],
            check=True,
        )
    return place


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("a server did not start")
        time.sleep(0.05)

"""Starting, stopping, and everything that can be wrong with an address."""

import asyncio
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.support.api import wire, world
from tests.support.deep import too
from tests.support.processes import within

from kimi_proxy.api.server import AT_ONCE, is_loopback, refuse_exposure, run, serve
from kimi_proxy.core.config.sections import ShutdownSettings
from kimi_proxy.core.errors import ConfigError

SLOW = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}'

PROGRAM = """
from kimi_proxy.api.server import run, serve, stop_on_signals
from tests.support.api import world

async def main():
    with stop_on_signals() as stop:
        await serve(world.app(), "127.0.0.1", 0, stop=stop, on_ready=lambda host, port: print(port, flush=True))

run(main())
print("stopped", flush=True)
"""


# Addresses


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "example.invalid", "localhost.evil.example", "*"])
async def test_beyond_loopback_a_token_is_needed(host: str):
    with pytest.raises(ConfigError, match="KIMI_PROXY_TOKEN"):
        await serve(world.app(), host, 0, stop=asyncio.Event())


def test_beyond_loopback_a_token_must_be_hard_to_guess():
    with pytest.raises(ConfigError, match="16 characters"):
        refuse_exposure("0.0.0.0", True, len("x"))
    refuse_exposure("0.0.0.0", True, 16)
    refuse_exposure("127.0.0.1", True, len("x"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_has_many_names(host: str):
    assert is_loopback(host)


async def test_with_a_token_every_interface_may_be_used():
    stop, ready = asyncio.Event(), list[tuple[str, int]]()

    def on_ready(host: str, port: int) -> None:
        ready.append((host, port))
        stop.set()

    await serve(world.app(), "0.0.0.0", 0, stop=stop, token=True, on_ready=on_ready)

    assert [host for host, _ in ready] == ["0.0.0.0"]


@pytest.mark.parametrize(("occupant", "named"), [("mcp-pruner 0.1.0", "mcp-pruner 0.1.0"), (None, "another program")])
async def test_a_port_that_is_taken_names_who_has_it(occupant: str | None, named: str):
    asked = list[tuple[str, int]]()

    def who(host: str, port: int) -> object:
        asked.append((host, port))
        return occupant

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"^127.0.0.1:{port} is taken by {named}: ") as caught:
            await serve(
                world.app(), "127.0.0.1", port, stop=asyncio.Event(), occupant=who, port_setting="SOME_PORT=PORT"
            )

    assert asked == [("127.0.0.1", port)]
    assert "choose another port with SOME_PORT=PORT, or port in the configuration file" in str(caught.value)


@pytest.mark.parametrize("host", ["192.0.2.1", "a..b"])
async def test_an_address_that_is_not_ours_is_refused(host: str):
    with pytest.raises(ConfigError, match="cannot listen on"):
        await serve(world.app(), host, 0, stop=asyncio.Event(), token=True)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
async def test_the_sixth_version_of_the_protocol_works_too():
    stop, ports = asyncio.Event(), list[int]()
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("no ::1 on this machine")

    serving = asyncio.create_task(
        serve(world.app(), "::1", 0, stop=stop, on_ready=lambda host, port: ports.append(port))
    )
    async with asyncio.timeout(60):
        while not ports:  # noqa: ASYNC110 - bounded by the timeout around it
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection("::1", ports[0])
        writer.write(f"GET /health HTTP/1.1\r\nHost: [::1]:{ports[0]}\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        stop.set()
        await serving

    assert answer.startswith(b"HTTP/1.1 200 OK")


async def test_a_port_can_be_used_again_at_once():
    stop, ports = asyncio.Event(), list[int]()

    def on_ready(host: str, port: int) -> None:
        ports.append(port)
        stop.set()

    await serve(world.app(), "127.0.0.1", 0, stop=stop, on_ready=on_ready)
    await serve(world.app(), "127.0.0.1", ports[0], stop=stop, on_ready=on_ready)

    assert ports[0] == ports[1]


# Stopping


def ask_slowly(port: int, heard: list[wire.Heard]) -> threading.Thread:
    thread = threading.Thread(target=lambda: heard.append(wire.ask(port, "POST", "/rpc", SLOW)))
    thread.start()
    return thread


def test_what_was_begun_is_finished(caplog: pytest.LogCaptureFixture):
    signals, heard = world.Signals(), list[wire.Heard]()
    with world.listening(world.app(signals=signals)) as port:
        asking = ask_slowly(port, heard)
        assert signals.begun.wait(60)
        threading.Timer(0.3, signals.go_on.set).start()
    asking.join(60)

    assert heard[0].status == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_what_does_not_end_is_cut_off_and_told_so(caplog: pytest.LogCaptureFixture):
    signals, heard = world.Signals(), list[wire.Heard]()
    with world.listening(world.app(signals=signals)) as port:
        asking = ask_slowly(port, heard)
        assert signals.begun.wait(60)
        start = time.monotonic()
    assert time.monotonic() - start < 10 * AT_ONCE.drain_s
    asking.join(60)

    assert (heard[0].status, heard[0].error_code) == (503, "stopping")
    assert not [record for record in caplog.records if record.exc_info]


def test_an_idle_connection_does_not_hold_up_the_end():
    with world.listening(world.app()) as port:
        idle = wire.connect(port)
        idle.sendall(wire.request(port, "GET", "/health"))
        assert wire.hear(idle).status == 200
        start = time.monotonic()
    idle.close()

    assert time.monotonic() - start < AT_ONCE.drain_s


async def test_probes_need_no_token_and_no_name_of_ours():
    async with serving(AT_ONCE) as (port, _):
        live, ready = await probe(port, "/health/live"), await probe(port, "/health/ready")
        other = await probe(port, "/health/livery")

    assert live.startswith(b"HTTP/1.1 200") and live.endswith(b'{"status":"live"}')
    assert ready.startswith(b"HTTP/1.1 200") and ready.endswith(b'{"status":"ready"}')
    assert other.startswith(b"HTTP/1.1 421")


async def test_a_server_that_stops_says_so_before_it_is_gone_and_keeps_no_connection():
    async with serving(ShutdownSettings(notice_s=600)) as (port, stop):
        stop.set()
        live, ready = await probe(port, "/health/live"), await probe(port, "/health/ready")
        answer = await probe(port, "/health", host=f"127.0.0.1:{port}")

    assert live.startswith(b"HTTP/1.1 200")
    assert ready.startswith(b"HTTP/1.1 503") and ready.endswith(b'{"status":"stopping"}')
    assert answer.startswith(b"HTTP/1.1 200") and b"connection: close" in answer.lower()


async def test_when_its_notice_is_over_the_server_stops():
    stop = asyncio.Event()
    stop.set()
    async with asyncio.timeout(60):
        await serve(world.app(), "127.0.0.1", 0, stop=stop, shutdown=ShutdownSettings(notice_s=0.05))


@asynccontextmanager
async def serving(shutdown: ShutdownSettings) -> AsyncIterator[tuple[int, asyncio.Event]]:
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    about = {"shutdown": shutdown, "on_ready": lambda host, port: ready.set_result(port)}
    task = asyncio.create_task(serve(world.app(), "127.0.0.1", 0, stop=stop, **about))
    try:
        async with asyncio.timeout(60):
            yield await ready, stop
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def probe(port: int, path: str, host: str = "10.1.2.3:8000") -> bytes:
    """Return the whole answer, as an orchestrator that calls by an address gets it; none from a port that is closed."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
    except (OSError, asyncio.IncompleteReadError):
        return b""
    length = int(re.search(rb"content-length: (\d+)", head.lower())[1])
    body = await reader.readexactly(length)
    writer.close()
    return head + body


@pytest.fixture
def process() -> Iterator[tuple[subprocess.Popen[str], int]]:
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    try:
        yield started, int(started.stdout.readline())
    finally:
        started.kill()
        started.communicate(timeout=60)


@pytest.mark.parametrize("number", [signal.SIGTERM, too(signal.SIGINT)])
def test_a_signal_stops_the_server_cleanly(process: tuple[subprocess.Popen[str], int], number: signal.Signals):
    server, port = process
    assert wire.ask(port, "GET", "/health").status == 200
    server.send_signal(number)
    stdout, stderr = server.communicate(timeout=60)

    assert (server.returncode, stdout, stderr) == (0, "stopped\n", "")


def is_listening(port: int) -> bool:
    try:
        wire.connect(port).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_second_signal_does_not_wait(process: tuple[subprocess.Popen[str], int]):
    server, port = process
    with wire.connect(port) as line:
        line.sendall(wire.request(port, "POST", "/rpc", SLOW))
        assert wire.ask(port, "GET", "/health").status == 200
        server.send_signal(signal.SIGTERM)
        assert within(60, lambda: not is_listening(port))
        assert server.poll() is None
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)

    assert server.returncode == -signal.SIGTERM


def test_the_fastest_loop_gives_results_back():
    async def main() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert run(main()) in ("uvloop", "asyncio.unix_events", "asyncio.windows_events")

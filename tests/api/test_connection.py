"""Connections of clients that take their time."""

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket
from tests.support.api import wire
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from kimi_proxy.api.guard import Guard, Rules
from kimi_proxy.api.known_addresses import KnownAddresses
from kimi_proxy.api.server import STRANGERS_SHARE, BoundedProtocol, BoundedSocket

HEAD_S = 0.4


class Impatient(BoundedProtocol):
    head_s = HEAD_S
    max_connections = 20
    known = KnownAddresses()


class ImpatientSocket(BoundedSocket):
    message_s = HEAD_S


async def hello(request: Request) -> Response:
    if "slowly" in request.query_params:
        await asyncio.sleep(HEAD_S * 2)
    return Response("hello")


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text)


@contextmanager
def serving(token: str = "") -> Iterator[int]:
    app: ASGIApp = Starlette(routes=[Route("/", hello, methods=["GET", "POST"]), WebSocketRoute("/ws", echo)])
    app = Guard(app, Rules(token=token)) if token else app
    config = uvicorn.Config(app, port=0, http=Impatient, ws=ImpatientSocket, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving() as port:
        yield port


def is_closed_within(line: wire.socket.socket, seconds: float) -> bool:
    line.settimeout(seconds)
    try:
        return line.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("begun", [b"", b"GE", b"GET / HTTP/1.1\r\nHost: a\r\nX-", b"\r\n\r\n"])
def test_a_head_that_does_not_come_is_not_waited_for(port: int, begun: bytes):
    with wire.connect(port) as line:
        line.sendall(begun)
        assert is_closed_within(line, 60)


def test_a_head_that_drips_is_not_waited_for(port: int):
    start = time.monotonic()
    with wire.connect(port) as line, pytest.raises(OSError):
        for byte in b"GET / HTTP/1.1\r\nX-Slow: " + b"a" * 1000:
            line.sendall(bytes([byte]))
            time.sleep(0.02)

    assert time.monotonic() - start < 60


def test_the_second_head_of_a_connection_has_the_same_time(port: int):
    with wire.connect(port) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert wire.hear(line).body == b"hello"
        line.sendall(b"GET / HTTP/1.1\r\nHost")
        assert is_closed_within(line, 60)


def test_a_connection_may_rest_between_requests(port: int):
    with wire.connect(port) as line:
        for _ in range(2):
            line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert wire.hear(line).body == b"hello"
            time.sleep(HEAD_S * 1.5)


def test_an_answer_may_take_longer_than_a_head(port: int):
    with wire.connect(port) as line:
        line.sendall(b"GET /?slowly HTTP/1.1\r\nHost: a\r\n\r\n")
        assert wire.hear(line).body == b"hello"


def test_a_head_that_is_too_long_is_told_so(port: int):
    with wire.connect(port) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"a" * Impatient.max_head_bytes + b"b")
        answer = wire.hear(line)
        assert answer.status == 431
        assert json.loads(answer.body)["error"]["code"] == "head_too_large"


def test_a_websocket_outlives_its_head(port: int):
    with connect(f"ws://127.0.0.1:{port}/ws", proxy=None) as socket:
        for word in ("one", "two"):
            socket.send(word)
            assert socket.recv(timeout=60) == word
            time.sleep(HEAD_S * 1.5)


def test_a_head_that_is_too_long_is_refused_though_it_comes_whole(port: int):
    with wire.connect(port) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"a" * (Impatient.max_head_bytes + 9) + b"\r\n\r\n")
        assert wire.hear(line).status == 431


def test_a_body_that_comes_after_its_answer_is_no_head(port: int):
    with wire.connect(port) as line:
        size = 2 * Impatient.max_head_bytes
        line.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
        assert wire.hear(line).body == b"hello"
        for _ in range(2):
            line.sendall(b"a" * (size // 2))
            time.sleep(HEAD_S * 1.5)
        line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert wire.hear(line).body == b"hello"


def test_a_head_that_comes_during_an_answer_is_bounded_too(port: int):
    with wire.connect(port) as line:
        line.sendall(b"GET /?slowly HTTP/1.1\r\nHost: a\r\n\r\n")
        line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"a" * Impatient.max_head_bytes + b"b")
        assert wire.hear(line).status in (431, 0)


def test_a_connection_too_many_is_closed_and_says_when_to_come_again(port: int):
    with ExitStack() as lines:
        for _ in range(int(Impatient.max_connections * STRANGERS_SHARE)):
            line = lines.enter_context(wire.connect(port))
            line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert wire.hear(line).body == b"hello"
        with wire.connect(port) as line:
            refused = wire.hear(line)
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert json.loads(refused.body)["error"]["code"] == "crowded"
            assert is_closed_within(line, 60)
    with wire.connect(port) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert wire.hear(line).body == b"hello"


@pytest.mark.parametrize("begun", ["he", "hello"])
def test_a_message_that_does_not_come_to_its_end_ends_the_connection(begun: str, port: int):
    whole = b"\x81\x85\0\0\0\0hello" if begun == "he" else b"\x01\x85\0\0\0\0hello"  # of one piece, and of several
    with connect(f"ws://127.0.0.1:{port}/ws", proxy=None) as websocket:
        websocket.socket.sendall(whole[: len(whole) - 3] if begun == "he" else whole)
        with pytest.raises(ConnectionClosed):
            websocket.recv(60)


def test_messages_that_come_in_time_may_take_long_together(port: int):
    with connect(f"ws://127.0.0.1:{port}/ws", proxy=None) as websocket:
        for number in range(4):
            websocket.send(iter(["a", str(number)]))
            assert websocket.recv(60) == f"a{number}"
            time.sleep(HEAD_S / 2)


@pytest.mark.skipif(sys.platform != "linux", reason="each address of 127.0.0.0/8 is ours on Linux alone")
def test_silent_strangers_leave_connections_for_an_address_that_showed_its_token() -> None:
    """1,000 silent connections kept a whole team out, ten seconds a wave."""
    token = "a-token-that-is-long-enough"

    def line_of(address: str) -> socket.socket:
        return alive.enter_context(socket.create_connection(("127.0.0.1", port), 30, (address, 0)))

    def status(line: socket.socket, sent: str) -> bytes:
        head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {sent}\r\n\r\n"
        line.sendall(head.encode())
        return line.recv(65536).split(b"\r\n")[0]

    with serving(token) as port, ExitStack() as alive:
        assert status(line_of("127.0.0.7"), token) == b"HTTP/1.1 200 OK"
        assert status(line_of("127.0.0.8"), "wrong") == b"HTTP/1.1 401 Unauthorized"
        silent = [line_of("127.0.0.9") for _ in range(Impatient.max_connections)]
        assert b"503" in silent[-1].recv(65536)
        assert b"503" in line_of("127.0.0.8").recv(65536)
        assert status(line_of("127.0.0.7"), token) == b"HTTP/1.1 200 OK"

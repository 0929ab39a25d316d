"""Talking to a kimi-proxy that runs."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pydantic import SecretStr

from kimi_proxy.core.errors import BadRequest, UpstreamError, UpstreamUnreachable
from kimi_proxy.proxy.local_server import ControlClient


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives one answer, whatever it is asked."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            line, _ = listener.accept()
            with line:
                heard.append(line.recv(65_536))
                line.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
        thread.join(60)


def http(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def test_it_sends_its_token_and_reads_an_object():
    with answering(http(b'{"servers":[]}')) as (url, heard):
        answer = ControlClient(url, SecretStr("t" * 20), 10).get("/api/mcp/servers")

    assert answer == {"servers": []}
    assert heard[0].startswith(b"GET /api/mcp/servers HTTP/1.1\r\n")
    assert b"Authorization: Bearer " + b"t" * 20 in heard[0]


@pytest.mark.parametrize(
    ("answer", "error", "problem"),
    [
        (http(b'{"error":{"message":"no such server"}}', "404 Not Found"), BadRequest, "no such server"),
        (http(b'{"error":{"message":"a fault"}}', "500 Oops"), UpstreamError, "a fault"),
        (http(b"[]"), UpstreamError, "HTTP 200"),
        (http(b"<html>"), UpstreamUnreachable, "no valid response"),
        (b"what?\r\n\r\n", UpstreamUnreachable, "no valid response"),
        (b"", UpstreamUnreachable, "no valid response"),
    ],
)
def test_what_goes_wrong_is_an_error_of_ours(answer: bytes, error: type[Exception], problem: str):
    with answering(answer) as (url, _), pytest.raises(error, match=problem):
        ControlClient(url, None, 10).post("/api/mcp/servers/up", {"names": []})


def test_nobody_there_is_an_error_too():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    with pytest.raises(UpstreamUnreachable, match=f"no valid response from .*127.0.0.1:{port}"):
        ControlClient(f"http://127.0.0.1:{port}", None, 10).get("/")

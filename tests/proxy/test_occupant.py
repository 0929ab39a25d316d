"""A port is known by what answers on it."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from kimi_proxy.proxy.local_server import PortOwner, local_url, port_owner


@contextmanager
def answering(reply: bytes) -> Iterator[int]:
    """A server that gives every caller the same bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            caller, _ = server.accept()
            with caller:
                caller.recv(65_536)
                caller.sendall(reply)

        thread = Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join(60)


def _http(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_our_own_server_is_named():
    health = b'{"server":"mcp-pruner","version":"9.9","status":"healthy","more":1}'
    with answering(_http(health)) as port:
        assert port_owner("127.0.0.1", port) == PortOwner("mcp-pruner", "9.9", "healthy")


@pytest.mark.parametrize(
    "reply",
    [_http(b'{"server":"nginx"}'), _http(b"<html>"), _http(b"[]"), b"SSH-2.0-OpenSSH\r\n", b""],
    ids=["another server", "html", "another json", "not http", "silence"],
)
def test_a_stranger_is_a_stranger_whatever_it_says(reply: bytes):
    with answering(reply) as port:
        found = port_owner("127.0.0.1", port)

    assert found == PortOwner()
    assert "not kimi-proxy" in str(found)


def test_a_free_port_has_no_occupant():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    assert port_owner("127.0.0.1", port) is None


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:8006"),
        ("0.0.0.0", "http://127.0.0.1:8006"),
        ("::", "http://[::1]:8006"),
        ("localhost", "http://localhost:8006"),
    ],
)
def test_the_address_shown_is_one_that_can_be_called(host: str, address: str):
    assert local_url(host, 8006) == address

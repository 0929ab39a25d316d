"""What no honest client sends. Every answer is a clear refusal, and the next honest client is served."""

import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.api import wire, world

from kimi_proxy.core import json

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
JSON = (("Content-Type", "application/json"),)


@pytest.fixture(autouse=True)
def still_serving(port: int) -> Iterator[None]:
    yield
    assert wire.ask(port, "POST", "/rpc", PING).status == 200


def raw(port: int, *lines: str, body: bytes = b"") -> bytes:
    head = ["POST /rpc HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json", *lines, "", ""]
    return "\r\n".join(head).encode("latin-1") + body


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (["Content-Length: 3", "Transfer-Encoding: chunked"], b"28\r\n" + PING + b"\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked", "Content-Length: 40"], b"28\r\n" + PING + b"\r\n0\r\n\r\n"),
        (["Content-Length: 40", "Content-Length: 41"], PING + b" "),
        (["Content-Length: 40", "Content-Length: 40"], PING),
        (["Content-Length: 40, 40"], PING),
        (["Content-Length: +40"], PING),
        (["Content-Length: -1"], PING),
        (["Content-Length: 0x28"], PING),
        (["Content-Length: 99999999999999999999999999"], PING),
        (["Transfer-Encoding: gzip"], PING),
        (["Transfer-Encoding: chunked, chunked"], b"28\r\n" + PING + b"\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked"], b"zz\r\n" + PING + b"\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked"], b"3\r\n" + PING + b"\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked"], b"-28\r\n" + PING + b"\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked"], b"28\n" + PING + b"\n0\n\n"),
        (["Transfer-Encoding: chunked"], b"fffffffffffffffff\r\n" + PING),
        (["X-Folded: one", " two", "Content-Length: 40"], PING),
        (["X-Nul: a\x00b", "Content-Length: 40"], PING),
        (["X-Space : a", "Content-Length: 40"], PING),
        ([": empty", "Content-Length: 40"], PING),
        (["X-Cr: a\rb", "Content-Length: 40"], PING),
    ],
)
def test_a_request_that_two_readers_would_read_differently_is_bad(port: int, lines: list[str], body: bytes):
    heard = wire.exchange(port, raw(port, *lines, body=body))

    assert heard.status == 400


@pytest.mark.parametrize(
    "head",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
        b"\x00" * 200,
        b"hello\r\n\r\n",
        b"POST /rpc HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /rpc HTTP/1.1\nHost: 127.0.0.1\n\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"BREW /rpc HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
)
def test_what_is_not_http_is_bad(port: int, head: bytes):
    assert wire.exchange(port, head).status == 400


def test_http_without_a_version_has_no_host(port: int):
    assert wire.exchange(port, b"GET /health\r\n\r\n").status == 421


def test_an_old_client_is_served_and_let_go(port: int):
    heard = wire.exchange(port, f"GET /health HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())

    assert (heard.status, heard.headers["connection"]) == (200, "close")


def test_an_absolute_address_does_not_excuse_the_host(port: int):
    lines = f"GET http://127.0.0.1:{port}/health HTTP/1.1\r\nHost: evil.example\r\n\r\n"

    assert wire.exchange(port, lines.encode()).status == 421


def test_requests_in_a_row_are_answered_in_a_row(port: int):
    with wire.connect(port) as line:
        line.sendall(wire.request(port, "POST", "/rpc", PING) * 3)
        received = b""
        while received.count(b'"result":{}') < 3:
            received += line.recv(65536)

    assert received.count(b"HTTP/1.1 200 OK") == 3


def test_a_head_without_end_is_cut_off(port: int):
    with wire.connect(port) as line:
        line.sendall(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode())
        try:
            for i in range(4000):
                line.sendall(f"X-{i}: {'a' * 100}\r\n".encode())
        except OSError:
            pass
        assert wire.hear(line).status in (431, 0)


# JSON that is a trap


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"[" * 200 + b"]" * 200,
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 130 + b"]" * 130 + b"}}",
        b"\xef\xbb\xbf" + PING,
        b"\xff\xfe" + PING.decode().encode("utf-16-le"),
        PING.decode().encode("utf-16"),
        b'{"jsonrpc":"2.0","id":1,"method":"\xc3\x28"}',
        b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}',
        b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":-Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} trailing',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}' * 2,
        b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
        b'{"jsonrpc":"2.0","id":01,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"pi\nng"}',
        b'{"jsonrpc":"2.0","id":1,"method":"\x00"}',
        b"\x00",
        b" ",
        b"[" + b"[]," * 400_000 + b"1]",
        b"{" + b'"a":{},' * 400_000 + b'"a":1}',
    ],
)
@pytest.mark.parametrize(("path", "status"), [("/rpc", 200), ("/mcp", 400)])
def test_bad_json_is_a_parse_error(port: int, path: str, status: int, body: bytes):
    heard = wire.ask(port, "POST", path, body)

    match heard.json:
        case {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": str(message)}}:
            assert (heard.status, code) == (status, -32700)
            assert len(message) < 300
        case other:
            raise AssertionError(other)


def prune(port: int, text: bytes) -> wire.Heard:
    return wire.ask(
        port, "POST", "/rpc", b'{"jsonrpc":"2.0","id":1,"method":"prune_text","params":{"text":' + text + b"}}"
    )


@pytest.mark.parametrize(
    "text",
    [
        rb'"\ud800"',
        rb'"\udfff and \ud83d"',
        rb'"\u0000"',
        rb'"\u2028\u2029\u0085"',
        rb'"\r\n\f\b\t"',
        rb'"\u27e6PRUN\u00c9: prune_id=prn_0 lignes 1-2 (2) raison=x\u27e7"',
        '"𝕏🏳️‍🌈"'.encode(),
    ],
)
def test_every_character_that_json_can_write_comes_back(port: int, text: bytes):
    match prune(port, text).json:
        case {"result": {"pruned_text": str(back)}}:
            assert back == json.decode(text)
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize("number", [b"1" * 5000, b"-" + b"9" * 5000, b"1e400", b"1e-400", b"-0", b"1" + b"0" * 400])
def test_a_huge_number_is_an_error_and_no_more(port: int, number: bytes):
    for body in (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"prune_text","arguments":{"text":%b}}}'
        % number,
        b'{"jsonrpc":"2.0","id":%b,"method":"nothing"}' % number,
    ):
        heard = wire.ask(port, "POST", "/rpc", body)
        assert heard.status == 200
        assert heard.error_code in (-32602, -32601, -32700, -32600)


def test_of_two_equal_keys_the_last_one_counts(port: int):
    body = b'{"jsonrpc":"2.0","id":1,"method":"nothing","method":"ping"}'

    assert wire.ask(port, "POST", "/rpc", body).json == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.parametrize("key", ["__proto__", "constructor", "__class__", "_meta\x00", ""])
def test_a_strange_key_is_an_unknown_argument(port: int, key: str):
    heard = wire.post(
        port, "/rpc", {"jsonrpc": "2.0", "id": 1, "method": "prune_text", "params": {"text": "a", key: {"a": 1}}}
    )

    assert heard.error_code == -32602


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "prune_text\n", "PRUNE_TEXT", "a" * 100_000, "\ud800", "__init__"]
)
def test_a_strange_name_is_an_unknown_tool(port: int, name: str):
    heard = wire.post(port, "/rpc", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}})

    assert heard.error_code == -32602
    assert len(heard.body) < 2000


# Slowness and numbers


def test_bombs_cost_little(port: int):
    """The server runs in this process, so that its memory is ours."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()
    for body in (b"[" + b"[]," * 3_000_000 + b"1]", b"[" + b'{"a":1},' * 1_000_000 + b"1]", b"[" * 8_000_000):
        assert wire.ask(port, "POST", "/rpc", body).error_code == -32700

    assert time.monotonic() - start < 120
    if sys.platform == "linux":
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 150


def test_a_hundred_idle_connections_leave_room(port: int):
    idle = [wire.connect(port) for _ in range(100)]
    try:
        assert wire.ask(port, "GET", "/health").status == 200
    finally:
        for line in idle:
            line.close()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors in /proc")
def test_connections_that_break_leave_nothing_behind():
    with world.listening(world.app()) as port:
        assert wire.ask(port, "GET", "/health").status == 200
        before = len(list(Path("/proc/self/fd").iterdir()))
        for i in range(200):
            with wire.connect(port) as line:
                line.sendall(wire.request(port, "POST", "/rpc", PING)[: i % 120])
        deadline = time.monotonic() + 60
        while len(list(Path("/proc/self/fd").iterdir())) > before + 5 and time.monotonic() < deadline:
            time.sleep(0.05)

        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 5

"""The guard on every route, over real sockets."""

import asyncio
import gzip
import socket
import sys
import time
from collections.abc import Iterator, Sequence

import pytest
from starlette.types import Receive
from tests.support.api import wire, world

from kimi_proxy.api.guard import Guard, Refusal, Rules, addresses, is_own_client

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
ROUTES = [("POST", "/rpc"), ("POST", "/mcp"), ("GET", "/health"), ("GET", "/metrics"), ("GET", "/nowhere")]
OPEN = {"/rpc": 200, "/mcp": 200, "/health": 200, "/metrics": 200, "/nowhere": 404}

FOREIGN_HOSTS = [
    "evil.example",
    "evil.example:{port}",
    "localhost.evil.example:{port}",
    "127.0.0.1.nip.io:{port}",
    "a/?x=127.0.0.1:{port}",
    "127.0.0.1:{port}/#",
    "127.0.0.1:{port}.evil.example",
    "user@127.0.0.1:{port}",
    "LOCALHOST:{port}",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.1:{port}",
    "2130706433:{port}",
    "0.0.0.0:{port}",
    "",
    None,
]


def body_for(method: str) -> bytes:
    return PING if method == "POST" else b""


def each(name: str, values: Sequence[object], routes: Sequence[tuple[str, str]] = ROUTES) -> pytest.MarkDecorator:
    """Every value on the first route and every route with the first value: the guard decides before the routes do."""
    first, *_ = values
    cases = [*((*routes[0], value) for value in values), *((*route, first) for route in routes[1:])]
    return pytest.mark.parametrize(("method", "path", name), cases)


@each("host", FOREIGN_HOSTS)
def test_a_foreign_host_is_turned_away_on_every_route(port: int, method: str, path: str, host: str | None):
    heard = wire.ask(port, method, path, body_for(method), host=host)

    assert (heard.status, heard.error_code) == (421, "host")


@each("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}"])
def test_our_own_names_are_let_in(port: int, method: str, path: str, host: str):
    assert wire.ask(port, method, path, body_for(method), host=host).status == OPEN[path]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_two_hosts_are_one_too_many(port: int, method: str, path: str):
    own = (("Host", f"127.0.0.1:{port}"),)

    assert wire.ask(port, method, path, body_for(method), headers=own).status == 421


@each(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1:1",
        "http://localhost",
        "http://127.0.0.1.nip.io:{port}",
        "null",
        "",
        "file://",
        "vscode-webview://127.0.0.1:{port}",
        "ftp://127.0.0.1:{port}",
        "http://127.0.0.1:{port}/",
        "HTTP://127.0.0.1:{port}",
    ],
)
def test_a_page_of_another_origin_is_forbidden(port: int, method: str, path: str, origin: str):
    headers = (("Origin", origin.format(port=port)),)
    heard = wire.ask(port, method, path, body_for(method), headers=headers)

    assert (heard.status, heard.error_code) == (403, "origin")


@each("origin", ["http://127.0.0.1:{port}", "http://localhost:{port}", "http://[::1]:{port}"])
def test_our_own_pages_are_let_in(port: int, method: str, path: str, origin: str):
    headers = (("Origin", origin.format(port=port)), ("Sec-Fetch-Site", "same-origin"))

    assert wire.ask(port, method, path, body_for(method), headers=headers).status == OPEN[path]


@each(
    "headers",
    [
        (("Sec-Fetch-Site", "cross-site"),),
        (("Sec-Fetch-Site", "same-site"),),
        (("Sec-Fetch-Site", "none"), ("Sec-Fetch-Site", "cross-site")),
    ],
)
def test_a_browser_that_says_cross_site_is_forbidden(
    port: int, method: str, path: str, headers: tuple[tuple[str, str], ...]
):
    heard = wire.ask(port, method, path, body_for(method), headers=headers)

    assert (heard.status, heard.error_code) == (403, "cross_site")


@each(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "text/plain; charset=application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "application/json, text/plain",
    ],
)
def test_a_body_that_a_form_could_send_is_refused(port: int, method: str, path: str, content_type: str | None):
    heard = wire.ask(port, method, path, PING, content_type=content_type)

    assert (heard.status, heard.error_code) == (415, "content_type")


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"]
)
def test_json_may_name_its_charset(port: int, content_type: str):
    assert wire.ask(port, "POST", "/rpc", PING, content_type=content_type).status == 200


def test_two_content_types_are_refused(port: int):
    headers = (("Content-Type", "text/plain"),)

    assert wire.ask(port, "POST", "/rpc", PING, headers=headers).status == 415


@pytest.mark.parametrize("coding", ["deflate", "br", "identity, gzip"])
def test_a_body_that_is_compressed_in_another_way_is_refused(port: int, coding: str):
    heard = wire.ask(port, "POST", "/rpc", PING, headers=(("Content-Encoding", coding),))

    assert (heard.status, heard.error_code) == (415, "content_encoding")


def test_a_body_that_is_compressed_twice_is_refused(port: int):
    twice = (("Content-Encoding", "gzip"), ("Content-Encoding", "gzip"))
    heard = wire.ask(port, "POST", "/rpc", gzip.compress(gzip.compress(PING)), headers=twice)

    assert (heard.status, heard.error_code) == (415, "content_encoding")


COMPRESS = {"gzip": gzip.compress, "zstd": zstd.compress}


@pytest.mark.parametrize("coding", COMPRESS)
def test_a_compressed_body_is_read(port: int, coding: str):
    heard = wire.ask(port, "POST", "/rpc", COMPRESS[coding](PING), headers=(("Content-Encoding", coding),))

    assert (heard.status, heard.json) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})


@pytest.mark.parametrize("coding", COMPRESS)
def test_a_decompression_bomb_is_refused(port: int, coding: str):
    bomb = COMPRESS[coding](b" " * (64 * 1024**2))
    heard = wire.ask(port, "POST", "/rpc", bomb, headers=(("Content-Encoding", coding),))

    assert len(bomb) < 100_000
    assert (heard.status, heard.error_code) == (413, "body_too_large")


@pytest.mark.parametrize("coding", COMPRESS)
@pytest.mark.parametrize("body", [b"not compressed at all", b""])
def test_a_damaged_body_is_refused(port: int, coding: str, body: bytes):
    damaged = body or COMPRESS[coding](PING)[:-3]
    heard = wire.ask(port, "POST", "/rpc", damaged, headers=(("Content-Encoding", coding),))

    assert (heard.status, heard.error_code) == (400, "body_incomplete")


def test_a_post_without_a_body_needs_no_content_type(port: int):
    heard = wire.ask(port, "POST", "/rpc")

    assert heard.status == 200
    assert heard.error_code == -32700


def test_no_answer_invites_other_origins(port: int):
    origin = (("Origin", f"http://127.0.0.1:{port}"), ("Access-Control-Request-Method", "POST"))
    for heard in (
        wire.ask(port, "POST", "/rpc", PING, headers=origin[:1]),
        wire.ask(port, "OPTIONS", "/rpc", headers=origin),
    ):
        assert not [name for name in heard.headers if name.startswith("access-control")]
        assert heard.headers["x-content-type-options"] == "nosniff"


# The token


@pytest.fixture(scope="module")
def locked() -> Iterator[int]:
    with world.listening(world.app(Rules(token="s3cret-é"))) as port:
        yield port


@each(
    "headers",
    [
        (),
        (("Authorization", "Bearer"),),
        (("Authorization", "Bearer wrong"),),
        (("Authorization", "Bearer s3cret"),),
        (("Authorization", "Basic s3cret-é"),),
        (("X-Api-Key", "s3cret-é-longer"),),
        (("X-Api-Key", ""),),
        (("Cookie", "token=s3cret-é"),),
    ],
    [route for route in ROUTES if route[1] != "/health"],
)
def test_every_route_but_health_wants_the_token(
    locked: int, method: str, path: str, headers: tuple[tuple[str, str], ...]
):
    heard = wire.ask(locked, method, path, body_for(method), headers=headers)

    assert (heard.status, heard.error_code) == (401, "token_required")
    assert heard.headers["www-authenticate"] == 'Bearer realm="kimi-proxy"'


@each("name", ["Authorization", "X-Api-Key"])
def test_the_token_opens_every_route(locked: int, method: str, path: str, name: str):
    token = "s3cret-é".encode().decode("latin-1")
    headers = ((name, f"Bearer {token}" if name == "Authorization" else token),)

    assert wire.ask(locked, method, path, body_for(method), headers=headers).status == OPEN[path]


def test_health_needs_no_token(locked: int):
    assert wire.ask(locked, "GET", "/health").status == 200


def test_the_token_does_not_excuse_a_foreign_page(locked: int):
    token = "s3cret-é".encode().decode("latin-1")
    headers = (("X-Api-Key", token), ("Origin", "http://evil.example"))

    assert wire.ask(locked, "POST", "/rpc", PING, headers=headers).status == 403


# Bodies


@pytest.fixture(scope="module")
def narrow() -> Iterator[int]:
    with world.listening(world.app(Rules(max_body_bytes=1000, body_timeout_s=1.0))) as port:
        yield port


def test_a_body_is_counted_before_it_comes(narrow: int):
    raw = wire.request(
        narrow, "POST", "/rpc", headers=(("Content-Length", "1001"), ("Content-Type", "application/json"))
    )
    with wire.connect(narrow) as line:
        line.sendall(raw + b" " * 1001)
        heard = wire.hear(line)

    assert (heard.status, heard.error_code) == (413, "body_too_large")


def test_a_body_is_counted_while_it_comes(narrow: int):
    raw = wire.request(
        narrow,
        "POST",
        "/rpc",
        headers=(("Transfer-Encoding", "chunked"), ("Content-Type", "application/json")),
    )
    heard = wire.exchange(
        narrow, raw + b"100\r\n" + b" " * 256 + b"\r\n" + b"1000\r\n" + b" " * 4096 + b"\r\n0\r\n\r\n"
    )

    assert heard.status == 413


def test_a_body_of_exactly_the_limit_is_read(narrow: int):
    assert wire.ask(narrow, "POST", "/rpc", PING.ljust(1000)).status == 200


def test_a_client_that_asks_first_is_told_not_to_send(narrow: int):
    headers = (("Content-Length", "5000"), ("Content-Type", "application/json"), ("Expect", "100-continue"))
    heard = wire.ask(narrow, "POST", "/rpc", headers=headers)

    assert (heard.status, heard.headers["connection"]) == (413, "close")


@pytest.mark.parametrize("path", ["/rpc", "/nowhere"])
def test_a_hundred_megabytes_are_refused_quickly(port: int, path: str):
    headers = (("Content-Length", str(100 * 1024**2)), ("Content-Type", "application/json"))
    start = time.monotonic()
    with wire.connect(port) as line:
        line.sendall(wire.request(port, "POST", path, headers=headers))
        piece = b" " * (1 << 20)
        try:
            for _ in range(100):
                line.sendall(piece)
        except OSError:
            pass
        heard = wire.hear(line)

    assert heard.status == 413
    assert time.monotonic() - start < 60


def test_a_slow_body_times_out(narrow: int):
    headers = (("Content-Length", "10"), ("Content-Type", "application/json"))
    with wire.connect(narrow) as line:
        line.sendall(wire.request(narrow, "POST", "/rpc", headers=headers) + b"[")
        heard = wire.hear(line)

        assert (heard.status, heard.error_code) == (408, "body_timeout")
        assert heard.headers["connection"] == "close"
        assert line.recv(1) == b""


def test_a_client_that_leaves_in_the_middle_of_a_body_harms_nobody(narrow: int):
    headers = (("Content-Length", "10"), ("Content-Type", "application/json"))
    for _ in range(20):
        with wire.connect(narrow) as line:
            line.sendall(wire.request(narrow, "POST", "/rpc", headers=headers) + b"[")

    assert wire.ask(narrow, "POST", "/rpc", PING).status == 200


def test_a_refused_connection_can_be_used_again(port: int):
    with wire.connect(port) as line:
        line.sendall(wire.request(port, "POST", "/rpc", PING, content_type="text/plain"))
        assert wire.hear(line).status == 415
        line.sendall(wire.request(port, "POST", "/rpc", PING))
        assert wire.hear(line).status == 200


# Names beside the loopback ones, and WebSockets


def test_an_allowed_name_counts_with_our_port_and_without_one():
    ours = addresses(("pruner.example", "other.example:443"), 8006)

    assert {b"pruner.example", b"pruner.example:8006", b"other.example:443"} <= ours
    assert b"other.example" not in ours
    assert b"pruner.example:443" not in ours


def test_an_allowed_name_counts_as_browsers_write_it():
    assert b"devbox.local:8006" in addresses(("DevBox.local",), 8006)


def test_on_port_80_a_name_needs_no_port():
    assert b"localhost" in addresses((), 80)
    assert b"localhost" not in addresses((), 8006)


async def speak_websocket(headers: list[tuple[bytes, bytes]], rules: Rules) -> tuple[list[str], list[Refusal]]:
    heard, refusals = list[str](), list[Refusal]()

    async def chat(scope: object, receive: object, send: object) -> None:
        heard.append("let in")

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, object]) -> None:
        heard.append(f"{message['type']} {message.get('status', '')}".strip())

    scope = {
        "type": "websocket",
        "path": "/ws",
        "headers": headers,
        "server": ("127.0.0.1", 8000),
        "extensions": {"websocket.http.response": {}},
    }
    await Guard(chat, rules, refusals.append)(scope, receive, send)
    return heard, refusals


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ([(b"host", b"evil.example")], 421, "host"),
        ([(b"host", b"127.0.0.1:8000"), (b"origin", b"http://evil.example")], 403, "origin"),
        ([(b"host", b"127.0.0.1:8000"), (b"origin", b"null")], 403, "origin"),
        ([(b"host", b"127.0.0.1:8000"), (b"sec-fetch-site", b"cross-site")], 403, "cross_site"),
        ([(b"host", b"127.0.0.1:8000")], 401, "token_required"),
    ],
)
async def test_a_websocket_is_refused_before_it_opens(headers: list[tuple[bytes, bytes]], status: int, code: str):
    heard, refusals = await speak_websocket(headers, Rules(token="t"))

    assert heard == [f"websocket.http.response.start {status}", "websocket.http.response.body"]
    assert [refusal.code for refusal in refusals] == [code]


async def test_a_websocket_of_our_own_page_is_let_in():
    headers = [(b"host", b"localhost:8000"), (b"origin", b"http://localhost:8000"), (b"x-api-key", b"t")]

    assert await speak_websocket(headers, Rules(token="t")) == (["let in"], [])


async def test_a_body_whose_message_does_not_say_that_more_comes_is_whole():
    seen = list[object]()

    async def app(scope: dict[str, object], receive: Receive, send: object) -> None:
        seen.append((await receive())["body"])

    async def once() -> dict[str, object]:
        assert not seen
        return {"type": "http.request", "body": PING}

    async def ignore(message: dict[str, object]) -> None:
        raise AssertionError(message)

    headers = [(b"host", b"localhost:8000"), (b"content-length", b"40"), (b"content-type", b"application/json")]
    scope = {"type": "http", "path": "/rpc", "headers": headers, "server": ("127.0.0.1", 8000)}
    await asyncio.wait_for(Guard(app, Rules(max_body_bytes=100))(scope, once, ignore), 60)

    assert seen == [PING]


async def test_the_lifespan_passes():
    seen = list[str]()

    async def app(scope: dict[str, object], receive: object, send: object) -> None:
        seen.append(str(scope["type"]))

    async def never() -> dict[str, object]:
        await asyncio.sleep(0)
        return {}

    async def ignore(message: dict[str, object]) -> None:
        raise AssertionError(message)

    await Guard(app, Rules())({"type": "lifespan"}, never, ignore)

    assert seen == ["lifespan"]


@pytest.mark.parametrize(
    ("client", "host"),
    [
        ("10.0.0.5", b"127.0.0.1:8006"),
        ("127.0.0.1", b"pruner.test:8006"),
        ("127.0.0.1", b"127.0.0.1:8006"),  # the system knows no such connection
        ("here", b"127.0.0.1:8006"),
    ],
)
def test_only_a_known_connection_of_our_own_user_is_a_client_of_ours(client: str, host: bytes):
    scope = {"headers": [(b"host", host)], "client": (client, 1), "server": ("127.0.0.1", 2)}

    assert not is_own_client(scope)
    assert not is_own_client({**scope, "client": None})


def test_a_connection_of_our_own_user_is_a_client_of_ours():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = listener.getsockname()
        with socket.create_connection(server) as client:
            host = (b"host", f"127.0.0.1:{server[1]}".encode())
            scope = {"headers": [host], "client": client.getsockname(), "server": server}

            assert is_own_client(scope)
            assert not is_own_client({**scope, "headers": [host, host]})
            assert not is_own_client({**scope, "headers": [host, (b"x-forwarded-for", b"10.0.0.5")]})
            assert not is_own_client({**scope, "server": None})

"""Another account of the same machine reaches loopback, and gets nothing there."""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket
from tests.support.processes import until

from kimi_proxy.api.guard import Rules
from kimi_proxy.api.routing import Access, DescribedRoute, PageRoute, RouteSpec, SocketRoute
from kimi_proxy.api.server import OwnerProtocol, serve
from kimi_proxy.assembly.apps import behind_guard
from kimi_proxy.proxy import peer

OTHER = 65534
IS_ROOT = sys.platform == "linux" and os.geteuid() == 0 and Path("/usr/bin/python3").exists()

pytestmark = pytest.mark.skipif(not peer.can_ask(), reason="the system does not say whose a connection is")
as_another = pytest.mark.skipif(not IS_ROOT, reason="only root can become another user")

# Sends a request as it is given, and prints the first line of the answer.
ASK = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60) as s:
    s.sendall(sys.argv[2].encode().decode("unicode_escape").encode())
    print(s.makefile("rb").readline().decode().strip())
"""


@asynccontextmanager
async def a_server(token: bool = False) -> AsyncIterator[tuple[int, list[str]]]:
    reached: list[str] = []

    async def route(request: Request) -> PlainTextResponse:
        reached.append(request.url.path)
        return PlainTextResponse("yours")

    async def live(websocket: WebSocket) -> None:
        reached.append(websocket.url.path)
        await websocket.accept()

    routes = [
        PageRoute("/health", route, Access.EVERYONE),
        DescribedRoute(("POST", "GET"), "/mcp", route, RouteSpec("", access=Access.PEOPLE)),
        SocketRoute("/ws", live, Access.PEOPLE),
    ]
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    app = behind_guard(routes, Rules())
    on_ready = lambda host, port: ready.set_result(port)  # noqa: E731
    serving = asyncio.create_task(serve(app, "127.0.0.1", 0, stop=stop, token=token, on_ready=on_ready))
    try:
        yield await ready, reached
    finally:
        stop.set()
        await serving


async def ask(port: int, head: str, user: int | None = None) -> str:
    request = f"{head}\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n"
    # Not our own interpreter: another user may not be able to read it.
    python = "/usr/bin/python3" if user is not None else sys.executable
    asked = await asyncio.create_subprocess_exec(
        *(python, "-I", "-c", ASK, str(port), request), stdout=PIPE, user=user, cwd="/"
    )
    printed, _ = await asked.communicate()
    return printed.decode().strip()


WEBSOCKET = (
    "GET /ws HTTP/1.1\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
    "Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
)


async def test_the_user_who_started_the_server_needs_no_token() -> None:
    async with a_server() as (port, _):
        assert await ask(port, "GET /mcp HTTP/1.1") == "HTTP/1.1 200 OK"
        assert await ask(port, WEBSOCKET) == "HTTP/1.1 101 Switching Protocols"


@as_another
async def test_another_user_reaches_nothing_but_health() -> None:
    async with a_server() as (port, reached):
        for head in ("GET /mcp HTTP/1.1", "POST /mcp HTTP/1.1", "GET /nowhere HTTP/1.1", WEBSOCKET):
            assert (await ask(port, head, OTHER)).startswith("HTTP/1.1 403 ")
        assert await ask(port, "GET /health HTTP/1.1", OTHER) == "HTTP/1.1 200 OK"
    assert reached == ["/health"]


# Holds connections on which no head is ever ended, until its input ends; prints how many were not refused.
HOLD = """
import socket, sys
held = []
for _ in range(int(sys.argv[2])):
    one = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
    one.sendall(b"GET /mcp HTTP/1.1\\r\\n")
    held.append(one)
print(len(held), flush=True)
sys.stdin.read()
"""


@as_another
async def test_the_slow_heads_of_another_user_leave_the_owner_connections() -> None:
    count = OwnerProtocol.max_strangers + 30
    async with a_server() as (port, _):
        holder = await asyncio.create_subprocess_exec(
            *("/usr/bin/python3", "-I", "-c", HOLD, str(port), str(count)), stdin=PIPE, stdout=PIPE, user=OTHER, cwd="/"
        )
        assert holder.stdout and holder.stdin
        assert int(await holder.stdout.readline()) == count
        await until(
            lambda: 0 < sum(not one.is_closing() for one in OwnerProtocol.strangers) <= OwnerProtocol.max_strangers
        )
        assert await ask(port, "GET /mcp HTTP/1.1") == "HTTP/1.1 200 OK"
        holder.stdin.close()
        await holder.wait()


@as_another
async def test_with_a_token_the_token_decides() -> None:
    async with a_server(token=True) as (port, _):
        assert await ask(port, "GET /mcp HTTP/1.1", OTHER) == "HTTP/1.1 200 OK"


def test_a_connection_whose_other_end_was_closed_is_not_taken_for_that_of_root() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, address = listener.accept()
        with server:
            assert peer.is_own(address, listener.getsockname())
            client.close()
            assert not peer.is_own(address, listener.getsockname())


def test_a_connection_over_ipv6_is_found_too() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("there is no IPv6 here")
    with listener, socket.create_connection(listener.getsockname()[:2]) as client:
        assert peer.is_own(client.getsockname()[:2], listener.getsockname()[:2])

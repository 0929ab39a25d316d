"""People of a team who make every call that there is, and watch what happens."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from tests.api.people_world import PeopleServer
from tests.api.walk import Call, calls_of
from tests.support.api.watching import Watcher
from websockets.asyncio.client import connect

from kimi_proxy.api.guard import Guard
from kimi_proxy.assembly.apps import proxy_app, pruner_app


@dataclass(frozen=True)
class Walker:
    """A person at a server: with a client for the proxy, and one for the pruner."""

    name: str
    proxy: httpx.AsyncClient
    pruner: httpx.AsyncClient

    async def make(self, call: Call) -> httpx.Response:
        client = self.pruner if call.is_pruner else self.proxy
        accept = {"accept": "application/json, text/event-stream"}
        given = {} if call.body is None else {"json": call.body}
        return await client.request(
            call.method, call.path, params=dict(call.query), headers={**accept, **call.headers}, **given
        )


@asynccontextmanager
async def walker(server: PeopleServer, name: str) -> AsyncIterator[Walker]:
    transport = httpx.ASGITransport(pruner_app(server.proxy.runtime))
    token = {"x-kimi-proxy-token": server.tokens[name]} if name else {}
    at_pruner = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8006", headers=token)
    async with server.person(name) as client, at_pruner:
        yield Walker(name, client, at_pruner)


@asynccontextmanager
async def watched(server: PeopleServer, name: str) -> AsyncIterator[Watcher]:
    token = base64.urlsafe_b64encode(server.tokens[name].encode()).decode().rstrip("=")
    offered = ["kimi-proxy", f"bearer.{token}"]
    async with connect(f"ws://127.0.0.1:{server.proxy.port}/ws", proxy=None, subprotocols=offered) as socket:  # type: ignore[arg-type]
        watcher = Watcher(socket)
        taking = asyncio.create_task(watcher.take())
        try:
            await watcher.until("init")
            yield watcher
        finally:
            taking.cancel()
            await asyncio.wait([taking])


def guards_of(server: PeopleServer) -> tuple[Guard, Guard]:
    proxy, pruner = proxy_app(server.proxy.runtime), pruner_app(server.proxy.runtime)
    assert isinstance(proxy, Guard)
    assert isinstance(pruner, Guard)
    return proxy, pruner


def all_calls(server: PeopleServer) -> list[Call]:
    (proxy, pruner), tools = guards_of(server), server.proxy.runtime.tools
    return [*calls_of(proxy, tools), *calls_of(pruner, tools, is_pruner=True)]

"""A server that we run ourselves and speak to over HTTP, once it is really the one who answers at its address."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from urllib.parse import urlsplit

from kimi_proxy.core.errors import UpstreamError, UpstreamUnreachable
from kimi_proxy.core.types import JsonObject
from kimi_proxy.proxy.mcp import hello
from kimi_proxy.proxy.mcp.child import Child
from kimi_proxy.proxy.mcp.client import Client
from kimi_proxy.proxy.mcp.process import Command, Process
from kimi_proxy.proxy.mcp.reaper import Reaper

LOOK_EVERY_S = 0.1
ANSWER_S = 2.0
PORTS = {"http": 80, "https": 443}


class Served:
    """`client` makes a new one for every life of the program: a session does not outlive it."""

    def __init__(
        self,
        server: str,
        url: str,
        command: Command,
        client: Callable[[], Client],
        start_timeout_s: float,
        reaper: Reaper,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._url = url
        self._fresh = client
        self._client: Client | None = None
        self.child = Child(server, command, Process, self._meet, start_timeout_s, reaper, now, self._refuse_taken)

    async def forward(self, message: JsonObject, timeout_s: float) -> JsonObject | None:
        life = await self.child.running()
        return await life.met.forward(message, timeout_s)

    async def close(self) -> None:
        await self.child.close()
        await self._drop()

    async def _drop(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def _meet(self, process: Process) -> Client:
        """Wait until it answers like an MCP server; a program that ended is not waited for."""
        await self._drop()
        self._client = client = self._fresh()
        gone = asyncio.create_task(process.gone())
        try:
            while not await _unless(gone, self._introduced(client)):
                await asyncio.wait({gone}, timeout=LOOK_EVERY_S)
                if gone.done():
                    raise process.ending
            return client
        finally:
            gone.cancel()

    async def _introduced(self, client: Client) -> str:
        """The name of who answers as an MCP server; empty if nobody does yet."""
        try:
            answer = await client.forward(hello.INITIALIZE, ANSWER_S)
        except UpstreamError:
            return ""
        match answer:
            case {"result": {"serverInfo": {"name": str(name)}}}:
                return name or "an MCP server without a name"
        return ""

    async def _refuse_taken(self) -> None:
        """A port that is taken is told by who holds it: our program could only fail there, or hide behind it."""
        where = urlsplit(self._url)
        try:
            async with asyncio.timeout(ANSWER_S):
                _, line = await asyncio.open_connection(where.hostname, where.port or PORTS[where.scheme])
        except (OSError, TimeoutError):
            return
        line.close()
        with suppress(OSError):
            await line.wait_closed()
        client = self._fresh()
        who = await self._introduced(client)
        await client.close()
        raise UpstreamUnreachable(
            f"{self._server} cannot be started: {where.netloc} is taken by {who or 'another program'}; "
            "stop that, or give this server another port"
        )


async def _unless(gone: asyncio.Task[None], work: Coroutine[None, None, str]) -> str:
    """What `work` gives, or nothing once the program is gone."""
    doing = asyncio.ensure_future(work)
    try:
        await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else ""
    finally:
        doing.cancel()
        await asyncio.wait({doing})

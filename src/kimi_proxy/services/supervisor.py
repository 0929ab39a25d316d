"""The MCP servers that we run: kept running, and stopped or started when somebody says so."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from kimi_proxy.core.errors import KimiProxyError, ServerNotRun, UnknownServer
from kimi_proxy.core.servers import ALIASES
from kimi_proxy.core.types import JsonObject
from kimi_proxy.proxy.mcp.upstreams import AnyChild
from kimi_proxy.services.gateway import Gateway
from kimi_proxy.services.roll_call import RollCall

LOG_LINES = 80

log = logging.getLogger(__name__)


class Supervisor:
    def __init__(self, gateway: Gateway, now: Callable[[], float] = time.monotonic) -> None:
        self._gateway = gateway
        self._servers = gateway.servers
        self._roll_call = RollCall(gateway, now)
        self._keeping: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Keep every server of ours running from now on."""
        self._keeping = [asyncio.create_task(self._keep(name, self._ours(name))) for name in self._servers.run]

    async def close(self) -> None:
        for task in self._keeping:
            task.cancel()
        if self._keeping:
            await asyncio.wait(self._keeping)

    async def status(self) -> list[JsonObject]:
        """How every server of the settings is doing."""
        return await self._roll_call.all()

    async def up(self, names: Sequence[str] = ()) -> list[JsonObject]:
        """Start servers, and tell how they are once they are ready or the time is up."""
        return await self._each(names, self._up)

    async def down(self, names: Sequence[str] = ()) -> list[JsonObject]:
        """End servers, and leave them alone until `up`."""
        return await self._each(names, self._down)

    async def restart(self, names: Sequence[str] = ()) -> list[JsonObject]:
        async def again(name: str) -> JsonObject:
            await self._ours(name).stop()
            return await self._up(name)

        return await self._each(names, again)

    def logs(self, name: str, lines: int = LOG_LINES) -> str:
        """The end of what a server of ours said."""
        return "".join(self._ours(ALIASES.get(name, name)).said.splitlines(keepends=True)[-lines:])

    async def _each(self, names: Sequence[str], work: Callable[[str], Awaitable[JsonObject]]) -> list[JsonObject]:
        chosen = dict.fromkeys(ALIASES.get(name, name) for name in names or self._servers.run)
        for name in chosen:
            self._ours(name)
        return list(await asyncio.gather(*(work(name) for name in chosen)))

    async def _up(self, name: str) -> JsonObject:
        child = self._ours(name)
        if child.vitals().state != "ready":
            child.resume()
        with suppress(KimiProxyError, TimeoutError):
            async with asyncio.timeout(self._servers.ready_timeout_s):
                await child.running()
        self._gateway.forgive(name)
        status = await self._roll_call.one(name, fresh_s=0)
        return status if status["state"] == "ready" else {**status, "log": self.logs(name)}

    async def _down(self, name: str) -> JsonObject:
        await self._ours(name).stop()
        return await self._roll_call.one(name)

    async def _keep(self, name: str, child: AnyChild) -> None:
        while True:
            await child.wanted()
            try:
                await child.running()
            except KimiProxyError as e:
                if child.vitals().state != "stopped":
                    log.warning("mcp server did not start", extra={"server": name, "what": str(e)[:300]})
                    await asyncio.sleep(child.wait_s)
            else:
                self._gateway.forgive(name)
                log.info("mcp server is ready", extra={"server": name})
                await child.ended()

    def _ours(self, name: str) -> AnyChild:
        server = self._servers.servers.get(name)
        if server is None:
            raise UnknownServer(name, tuple(self._servers.servers))
        table = f"[mcp.servers.{name}]"
        if not server.enabled:
            raise ServerNotRun("switched_off", f"{name} is switched off: set enabled = true under {table}")
        child = self._gateway.upstreams.child(name) if server.is_run else None
        if child is None:
            where = f"{name} is not run here, but by somebody else at {server.url}"
            hint = f": set run = true under {table} to change that" if server.command else ""
            raise ServerNotRun("elsewhere", where + hint)
        return child

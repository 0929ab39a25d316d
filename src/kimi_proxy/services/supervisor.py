"""The MCP servers that we run: kept running, and stopped or started when somebody says so."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kimi_proxy.core.config.servers import ALIASES, McpServer
from kimi_proxy.core.errors import KimiProxyError, ServerNotRun, UnknownServer, UpstreamTimeout
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.proxy.mcp.clients import AnyProgram
from kimi_proxy.proxy.mcp.program import ProgramStatus
from kimi_proxy.services.gateway import CallStats, Gateway

PATIENCE_S = 2.0  # for a server's answer
FRESH_S = 5.0  # who answered this recently is not asked again
MAX_PAGES = 20


@dataclass(frozen=True, slots=True)
class Look:
    """What became of asking a server, and when that was."""

    answered: bool
    at: float


class RollCall:
    def __init__(self, gateway: Gateway, now: Callable[[], float] = time.monotonic) -> None:
        self._gateway = gateway
        self._servers = gateway.servers.servers
        self._now = now
        self._looks: dict[str, Look] = {}

    async def all(self) -> list[JsonObject]:
        """Every server of the settings, asked all at a time."""
        return list(await asyncio.gather(*(self.one(name) for name in self._servers)))

    async def one(self, name: str, fresh_s: float = FRESH_S) -> JsonObject:
        server, status = self._servers[name], self._program_status(name)
        should_answer = server.enabled and (status is None or status.state == "ready")
        if should_answer and not self._is_fresh(name, fresh_s):
            self._looks[name] = await self._look(name)
        return {"name": name, "state": self._state(name, status), **self._about(name, server, status)}

    def _is_fresh(self, name: str, fresh_s: float) -> bool:
        look = self._looks.get(name)
        return look is not None and self._now() - look.at < fresh_s

    def _program_status(self, name: str) -> ProgramStatus | None:
        """Of the program behind a server, if we run it."""
        server = self._servers[name]
        program = self._gateway.clients.program(name) if server.enabled and server.is_run else None
        return None if program is None else program.status()

    async def _look(self, name: str) -> Look:
        stats = self._gateway.call_stats[name]
        try:
            async with asyncio.timeout(PATIENCE_S):
                stats.tools = await self._count_tools(name, stats)
        except KimiProxyError as e:
            stats.failed(e.code, str(e), self._now())
        except TimeoutError:
            problem = f"{name} did not tell its tools within {PATIENCE_S:g} s"
            stats.failed(UpstreamTimeout.code, problem, self._now())
        else:
            return Look(True, self._now())
        return Look(False, self._now())

    async def _count_tools(self, name: str, stats: CallStats) -> int:
        count, cursor = 0, None
        for page in range(MAX_PAGES):
            began = self._now()
            answer = await self._gateway.clients.forward_jsonrpc(name, _list(page, cursor))
            stats.took(self._now() - began)
            result = answer.get("result") if answer else None
            tools, cursor = (
                (result.get("tools"), result.get("nextCursor")) if isinstance(result, dict) else (None, None)
            )
            count += len(tools) if isinstance(tools, list) else 0
            if not cursor:
                break
        return count

    def _state(self, name: str, status: ProgramStatus | None) -> str:
        if not self._servers[name].enabled:
            return "off"
        look = self._looks.get(name)
        if status is None:
            return "ready" if look is not None and look.answered else "down"
        is_deaf = self._gateway.blocked_for(name) > 0 or (look is not None and not look.answered)
        return "degraded" if status.state == "ready" and is_deaf else status.state

    def _about(self, name: str, server: McpServer, status: ProgramStatus | None) -> JsonObject:
        where: JsonObject = {"transport": server.way, "run": server.is_run, **_place(server)}
        process: JsonObject = {}
        if status is not None:
            restarts = max(0, status.starts - 1)
            process = {"pid": status.pid, "up_s": round(status.up_s, 1), "restarts": restarts}
        return {**where, **process, **self._traffic(name, status)} if server.enabled else where

    def _traffic(self, name: str, status: ProgramStatus | None) -> JsonObject:
        stats = self._gateway.call_stats[name]
        retry_s = max(self._gateway.blocked_for(name), status.wait_s if status else 0.0)
        return {
            "tools": stats.tools,
            "latency_ms": None if stats.latency_ms is None else round(stats.latency_ms, 1),
            "calls": stats.calls,
            "failures": stats.failures,
            "masked": {"texts": stats.masked_texts, "chars": stats.masked_chars},
            **_last_error(status, stats),
            "last_error_s_ago": round(self._now() - stats.last_error_at, 1) if stats.last_error else None,
            "retry_in_s": round(retry_s, 1) if retry_s > 0 else None,
        }


def _last_error(status: ProgramStatus | None, stats: CallStats) -> JsonObject:
    """A program that does not run tells more than the calls that failed with it."""
    if status is not None and status.problem is not None:
        return {"last_error": str(status.problem), "last_error_code": status.problem.code}
    return {"last_error": stats.last_error or None, "last_error_code": stats.last_error_code or None}


def _list(page: int, cursor: JsonValue) -> JsonObject:
    params: JsonObject = {} if cursor is None else {"cursor": cursor}
    return {"jsonrpc": "2.0", "id": page, "method": "tools/list", "params": params}


def _place(server: McpServer) -> JsonObject:
    """Where a server is. The arguments of a command may hold what nobody else should see."""
    return {"url": server.url} if server.url else {"command": server.command}


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
        return "".join(self._ours(ALIASES.get(name, name)).output.splitlines(keepends=True)[-lines:])

    async def _each(self, names: Sequence[str], work: Callable[[str], Awaitable[JsonObject]]) -> list[JsonObject]:
        chosen = dict.fromkeys(ALIASES.get(name, name) for name in names or self._servers.run)
        for name in chosen:
            self._ours(name)
        return list(await asyncio.gather(*(work(name) for name in chosen)))

    async def _up(self, name: str) -> JsonObject:
        program = self._ours(name)
        if program.status().state != "ready":
            program.resume()
        with suppress(KimiProxyError, TimeoutError):
            async with asyncio.timeout(self._servers.ready_timeout_s):
                await program.running()
        self._gateway.forgive(name)
        status = await self._roll_call.one(name, fresh_s=0)
        return status if status["state"] == "ready" else {**status, "log": self.logs(name)}

    async def _down(self, name: str) -> JsonObject:
        await self._ours(name).stop()
        return await self._roll_call.one(name)

    async def _keep(self, name: str, program: AnyProgram) -> None:
        while True:
            await program.wanted()
            try:
                await program.running()
            except KimiProxyError as e:
                if program.status().state != "stopped":
                    log.warning("mcp server did not start", extra={"server": name, "what": str(e)[:300]})
                    await asyncio.sleep(program.wait_s)
            else:
                self._gateway.forgive(name)
                log.info("mcp server is ready", extra={"server": name})
                await program.ended()

    def _ours(self, name: str) -> AnyProgram:
        server = self._servers.servers.get(name)
        if server is None:
            raise UnknownServer(name, tuple(self._servers.servers))
        table = f"[mcp.servers.{name}]"
        if not server.enabled:
            raise ServerNotRun("switched_off", f"{name} is switched off: set enabled = true under {table}")
        program = self._gateway.clients.program(name) if server.is_run else None
        if program is None:
            where = f"{name} is not run here, but by somebody else at {server.url}"
            hint = f": set run = true under {table} to change that" if server.command else ""
            raise ServerNotRun("elsewhere", where + hint)
        return program

"""The MCP servers: how each is doing, and those that we run kept running, stopped or started on demand."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NotRequired, TypedDict, cast

from kimi_proxy.core.addresses import show_address
from kimi_proxy.core.caller import ANONYMOUS, Caller
from kimi_proxy.core.config.servers import ALIASES, McpServer
from kimi_proxy.core.errors import KimiProxyError, ServerNotRun, UnknownServer, UpstreamTimeout
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.gateway import CallStats
from kimi_proxy.proxy.mcp.program import ProgramStatus
from kimi_proxy.services.gateway import Gateway
from kimi_proxy.services.gateway.clients import AnyProgram

PROBE_TIMEOUT_S = 2.0
FRESH_S = 5.0  # a server that was probed this recently is not probed again
MAX_PAGES = 20
LOG_LINES = 80

log = logging.getLogger(__name__)


class MaskedTotals(TypedDict):
    texts: int
    chars: int


class TrafficBody(TypedDict, total=False):
    """Figures of a server that is not off."""

    tools: int | None
    latency_ms: float | None
    calls: int
    failures: int
    masked: MaskedTotals
    last_error: str | None
    last_error_code: str | None
    last_error_s_ago: float | None
    retry_in_s: float | None


class ServerBody(TrafficBody):
    """The state of an MCP server behind the gateway, with figures unless it is off."""

    name: str
    state: str
    transport: str
    run: bool
    url: NotRequired[str]
    command: NotRequired[str]
    pid: NotRequired[int | None]
    up_s: NotRequired[float]
    restarts: NotRequired[int]
    log: NotRequired[str]


# The fields that members of a team see: no address, no program, and none of the words of a failure.
FOR_MEMBERS = frozenset(TrafficBody.__annotations__) - {"last_error"} | {"name", "state", "transport", "run"}


def _for_member(body: ServerBody) -> ServerBody:
    return cast(ServerBody, {name: value for name, value in body.items() if name in FOR_MEMBERS})


class ServerStatus:
    """Probes servers by listing their tools, and reports their status."""

    def __init__(self, gateway: Gateway, now: Callable[[], float] = time.monotonic) -> None:
        self._gateway = gateway
        self._servers = gateway.servers.servers
        self._now = now
        self._probes: dict[str, tuple[bool, float]] = {}  # whether the server answered, and when

    async def all(self) -> list[ServerBody]:
        """Return the status of every server of the settings, probed all at a time."""
        return list(await asyncio.gather(*(self.one(name) for name in self._servers)))

    async def one(self, name: str, fresh_s: float = FRESH_S) -> ServerBody:
        server = self._servers[name]
        runs = server.enabled and server.is_run and not server.lacks_root
        program = self._gateway.clients.program(name) if runs else None
        status = None if program is None else program.status()
        if server.enabled and (status is None or status.state == "ready"):
            probe = self._probes.get(name)
            if probe is None or self._now() - probe[1] >= fresh_s:
                self._probes[name] = await self._probe(name), self._now()
        return self._about(name, self._state(name, status), server, status)

    async def _probe(self, name: str) -> bool:
        stats = self._gateway.call_stats[name]
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                stats.tools = await self._count_tools(name, stats)
        except KimiProxyError as e:
            stats.on_failure(e.code, e.full, self._now())
        except TimeoutError:
            problem = f"{name} did not list its tools within {PROBE_TIMEOUT_S:g} s"
            stats.on_failure(UpstreamTimeout.code, problem, self._now())
        else:
            return True
        return False

    async def _count_tools(self, name: str, stats: CallStats) -> int:
        count, cursor = 0, None
        for page in range(MAX_PAGES):
            began = self._now()
            params: JsonObject = {} if cursor is None else {"cursor": cursor}
            message: JsonObject = {"jsonrpc": "2.0", "id": page, "method": "tools/list", "params": params}
            answer = await self._gateway.send(ANONYMOUS, name, message)
            stats.took(self._now() - began)
            result = answer.get("result") if answer else None
            listed: JsonObject = result if isinstance(result, dict) else {}
            tools = listed.get("tools")
            cursor = listed.get("nextCursor")
            count += len(tools) if isinstance(tools, list) else 0
            if not cursor:
                break
        return count

    def _state(self, name: str, status: ProgramStatus | None) -> str:
        if not self._servers[name].enabled:
            return "off"
        answered = self._probes[name][0] if name in self._probes else None
        if status is None and not answered:
            # The settings do not name this server, so no one expects it to run.
            return "down" if name in self._gateway.named else "off"
        if status is None:
            return "ready"
        is_deaf = self._gateway.blocked_for(name) > 0 or answered is False
        return "degraded" if status.state == "ready" and is_deaf else status.state

    def _about(self, name: str, state: str, server: McpServer, status: ProgramStatus | None) -> ServerBody:
        body: ServerBody = {"name": name, "state": state, "transport": server.way, "run": server.is_run}
        # The arguments of a command may hold secrets: only its program is shown.
        if server.url:
            body["url"] = show_address(server.url)
        else:
            body["command"] = server.command
        if state == "off":
            return body
        if status is not None:
            body["pid"] = status.pid
            body["up_s"] = round(status.up_s, 1)
            body["restarts"] = max(0, status.starts - 1)
        return {**body, **self._traffic(name, status)}

    def _traffic(self, name: str, status: ProgramStatus | None) -> TrafficBody:
        stats = self._gateway.call_stats[name]
        retry_s = max(self._gateway.blocked_for(name), status.wait_s if status else 0.0)
        last_error = stats.last_error or None
        last_code = stats.last_error_code or None
        if status is not None and status.problem is not None:
            # The reason why a program does not run is more useful than the errors of failed calls.
            last_error = status.problem.full
            last_code = status.problem.code
        return {
            "tools": stats.tools,
            "latency_ms": None if stats.latency_ms is None else round(stats.latency_ms, 1),
            "calls": stats.calls,
            "failures": stats.failures,
            "masked": {"texts": stats.masked_texts, "chars": stats.masked_chars},
            "last_error": last_error,
            "last_error_code": last_code,
            "last_error_s_ago": round(self._now() - stats.last_error_at, 1) if stats.last_error else None,
            "retry_in_s": round(retry_s, 1) if retry_s > 0 else None,
        }


class Supervisor:
    """Keeps the servers running that are programs of ours."""

    def __init__(self, gateway: Gateway, now: Callable[[], float] = time.monotonic) -> None:
        self._gateway = gateway
        self._servers = gateway.servers
        self._status = ServerStatus(gateway, now)
        self._keeping: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Keep every server of ours running from now on."""
        self._keeping = [asyncio.create_task(self._keep(name, self._program(name))) for name in self._servers.run]

    async def close(self) -> None:
        for task in self._keeping:
            task.cancel()
        if self._keeping:
            await asyncio.wait(self._keeping)

    async def status(self, who: Caller) -> list[ServerBody]:
        """Return how every server of the settings is doing, as this person may see it."""
        found = await self._status.all()
        return found if who.is_admin else [_for_member(each) for each in found]

    async def up(self, names: Sequence[str] = ()) -> list[ServerBody]:
        """Start servers, and return how they are once they are ready or the time is up."""
        started = await self._each(names, self._up)
        without_root = () if names else self._servers.without_root
        return [*started, *(await asyncio.gather(*(self._status.one(name) for name in without_root)))]

    async def stop(self, names: Sequence[str] = ()) -> list[ServerBody]:
        """End servers, and leave them alone until `up`."""

        async def stop(name: str) -> ServerBody:
            await self._stop(name)
            return await self._status.one(name)

        return await self._each(names, stop)

    async def restart(self, names: Sequence[str] = ()) -> list[ServerBody]:
        async def again(name: str) -> ServerBody:
            await self._stop(name)
            return await self._up(name)

        return await self._each(names, again)

    def logs(self, name: str, lines: int = LOG_LINES) -> str:
        """Return the last output of one of our servers."""
        return "".join(self._program(ALIASES.get(name, name)).output.splitlines(keepends=True)[-lines:])

    async def _each(self, names: Sequence[str], work: Callable[[str], Awaitable[ServerBody]]) -> list[ServerBody]:
        chosen = dict.fromkeys(ALIASES.get(name, name) for name in names or self._servers.run)
        for name in chosen:
            self._program(name)  # a wrong name is rejected before anything is changed
        return list(await asyncio.gather(*(work(name) for name in chosen)))

    async def _stop(self, name: str) -> None:
        await self._program(name).stop()
        await self._gateway.clients.end_personal(name)

    async def _up(self, name: str) -> ServerBody:
        program = self._program(name)
        if program.status().state != "ready":
            program.resume()
        with suppress(KimiProxyError, TimeoutError):
            async with asyncio.timeout(self._servers.ready_timeout_s):
                await program.running()
        self._gateway.reset_circuit(name)
        status = await self._status.one(name, fresh_s=0)
        return status if status["state"] == "ready" else {**status, "log": self.logs(name)}

    async def _keep(self, name: str, program: AnyProgram) -> None:
        while True:
            await program.wait_wanted()
            try:
                await program.running()
            except KimiProxyError as e:
                if program.status().state != "stopped":
                    log.warning("mcp server did not start", extra={"server": name, "what": e.full[:300]})
                    await asyncio.sleep(program.wait_s)
            else:
                self._gateway.reset_circuit(name)
                log.info("mcp server is ready", extra={"server": name})
                await program.wait_ended()

    def _program(self, name: str) -> AnyProgram:
        """Return the program behind a server; raise UnknownServer or ServerNotRun if we do not run it."""
        server = self._servers.servers.get(name)
        if server is None:
            raise UnknownServer(name, tuple(self._servers.servers))
        table = f"[mcp.servers.{name}]"
        if not server.enabled:
            raise ServerNotRun("switched_off", f"{name} is turned off: set enabled = true in {table}")
        program = self._gateway.clients.program(name) if server.is_run else None
        if program is None:
            where = f"{name} is not run here, but elsewhere, at {show_address(server.url)}"
            hint = f": set run = true in {table} to change that" if server.command else ""
            raise ServerNotRun("elsewhere", where + hint)
        return program

"""The tools for one run of an agent: started, monitored and stopped; their failure never stops the agent."""

import asyncio
import logging
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path

import anyio

from kimi_proxy.connect.agents import Agent, ClaudeServer, ToolsEndpoint
from kimi_proxy.core import json
from kimi_proxy.core.config import Config
from kimi_proxy.core.config.sections import RunnerSettings
from kimi_proxy.core.errors import ConfigError, UpstreamUnreachable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.markers import new_id
from kimi_proxy.core.mcp import PRUNER_SERVER
from kimi_proxy.proxy.local_server import LocalServer, local_url, port_owner
from kimi_proxy.proxy.private_files import private_file
from kimi_proxy.proxy.process import EXIT_SIGNAL, FORWARDED, Command, Foreground


class State(StrEnum):
    INIT = "run:init"
    STARTING = "run:mcp_pruner_starting"
    RUNNING = "run:mcp_pruner_running"
    DISABLED = "run:mcp_pruner_disabled"
    DEGRADED = "run:mcp_pruner_degraded"
    SHUTDOWN = "run:shutdown"


class RunEvent(StrEnum):
    SWITCHED_OFF = "JEEVES_MCP_PRUNER_ENABLED=false"
    INVALID_CONFIG = "invalid configuration"
    SWITCHED_ON = "JEEVES_MCP_PRUNER_ENABLED=true"
    HEALTHY = "health check succeeds before timeout"
    SPAWN_FAILED = "spawn fails"
    EXITED = "child process exits"
    START_TIMEOUT = "health check timeout"
    GIVEN_UP = "the run ends, or its folder cannot be written, before the server is ready"
    UNREACHABLE = "N consecutive connect failures"
    PHASE_ENDED = "provider phase ends"
    REFUSED_TO_EXIT = "server refuses to exit within shutdown_timeout_ms"


@dataclass(frozen=True, slots=True)
class RunTransition:
    to: State
    logs: tuple[str, ...] = ()


def _to(state: State, *logs: str) -> RunTransition:
    return RunTransition(state, tuple(f"mcp_pruner.{log}" for log in logs))


_S = State
_E = RunEvent

TRANSITIONS: Mapping[tuple[State, RunEvent], RunTransition] = {
    (_S.INIT, _E.SWITCHED_OFF): _to(_S.DISABLED, "disabled"),
    (_S.INIT, _E.INVALID_CONFIG): _to(_S.DISABLED, "config_invalid"),
    (_S.INIT, _E.SWITCHED_ON): _to(_S.STARTING),
    (_S.STARTING, _E.HEALTHY): _to(_S.RUNNING, "ready"),
    (_S.STARTING, _E.SPAWN_FAILED): _to(_S.DISABLED, "spawn_error", "start_failed"),
    (_S.STARTING, _E.EXITED): _to(_S.DISABLED, "exited", "start_failed"),
    (_S.STARTING, _E.START_TIMEOUT): _to(_S.DISABLED, "start_timeout", "start_failed"),
    (_S.STARTING, _E.GIVEN_UP): _to(_S.DISABLED, "start_failed"),
    (_S.RUNNING, _E.EXITED): _to(_S.DEGRADED, "exited", "degraded"),
    (_S.RUNNING, _E.UNREACHABLE): _to(_S.DEGRADED, "unreachable", "degraded"),
    (_S.RUNNING, _E.PHASE_ENDED): _to(_S.SHUTDOWN, "stopped"),
    (_S.DISABLED, _E.PHASE_ENDED): _to(_S.SHUTDOWN, "not_running"),
    (_S.DEGRADED, _E.PHASE_ENDED): _to(_S.SHUTDOWN, "shutdown_after_degraded"),
    (_S.SHUTDOWN, _E.REFUSED_TO_EXIT): _to(_S.SHUTDOWN, "kill_escalated"),
}


RUNS = "runs"
EVENTS = "events.log"
SERVER_LOG = "server.log"
CONFIG = "mcp.json"
KEPT = 20
KEPT_S = 7 * 86_400
LAST_BYTES = 4096


def new(home: Path, now: float | None = None) -> Path:
    """Return a folder for one run; where the state directory cannot be written, a temporary one."""
    moment = time.time() if now is None else now
    name = f"{datetime.fromtimestamp(moment, UTC):%Y%m%d-%H%M%S}-{new_id('run')}"
    folder = home.absolute() / RUNS / name
    try:
        private_file(folder / EVENTS)
        _forget_old(folder.parent, moment)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix=f"kimi-proxy-{name}-"))
        private_file(folder / EVENTS)
    private_file(folder / SERVER_LOG)
    return folder


def write_config(folder: Path, servers: dict[str, ClaudeServer]) -> None:
    """Write which servers there are now. The file holds a token."""
    private_file(folder / CONFIG)
    (folder / CONFIG).write_bytes(json.encode({"mcpServers": servers}))


def last_line(folder: Path) -> str:
    """Return the last line that the server wrote on standard error."""
    try:
        written = (folder / SERVER_LOG).read_bytes()[-LAST_BYTES:]
    except OSError:
        return ""
    lines = written.decode("utf-8", "replace").strip().split("\n")
    return lines[-1].strip()[:300]


def _forget_old(runs: Path, now: float) -> None:
    """Remove old folders, whose names begin with their time. A recent one may belong to a run in progress."""
    for folder in sorted(runs.iterdir(), reverse=True)[KEPT:]:
        if now - folder.stat().st_mtime > KEPT_S:
            shutil.rmtree(folder, ignore_errors=True)


log = logging.getLogger(__name__)

# With -P, a folder in the agent's working directory cannot shadow our modules.
COMMAND = (sys.executable, "-P", "-m", "kimi_proxy", "tools", "--port", "0")
POLL_S = 0.05
EXPECTED = (RunEvent.SWITCHED_OFF, RunEvent.SWITCHED_ON, RunEvent.HEALTHY, RunEvent.PHASE_ENDED)


@asynccontextmanager
async def pruner_run(
    load: Callable[[], Config], folder: Path, env: Mapping[str, str], cwd: Path, command: Sequence[str] = COMMAND
) -> AsyncIterator["PrunerRun"]:
    """Offer the tools while the block runs; if they cannot be started, it runs without them."""
    run = PrunerRun(folder)
    try:
        await run.start(load, env, cwd, command)
        yield run
    finally:
        with anyio.CancelScope(shield=True):
            await run.end()


class PrunerRun:
    """The state of a run, and how its agent finds the tools. While there are none, every answer is empty."""

    def __init__(self, folder: Path) -> None:
        self.state = State.INIT
        self.folder = folder
        self.problem = ""  # why there are no tools
        self._settings = RunnerSettings()
        self._server: LocalServer | None = None
        self._endpoint: ToolsEndpoint | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def url(self) -> str | None:
        """The address of the MCP server."""
        return self._endpoint.url if self._endpoint else None

    @property
    def config_file(self) -> Path:
        """A file for Claude Code's `--mcp-config`; there as long as the run lasts."""
        return self.folder / CONFIG

    def claude_mcp_servers(self) -> dict[str, ClaudeServer]:
        """For `ClaudeAgentOptions(mcp_servers={**run.claude_mcp_servers()})`."""
        return self._endpoint.claude_mcp_servers() if self._endpoint else {}

    def codex_config_overrides(self) -> tuple[str, ...]:
        """For `codex -c …` and `CodexConfig(config_overrides=…)`; the agent needs `env()` as well."""
        return self._endpoint.codex_config_overrides() if self._endpoint else ()

    def env(self) -> dict[str, str]:
        """Variables that the agent gets in addition to its own."""
        return self._endpoint.env(str(self.config_file)) if self._endpoint else {}

    def command(self, argv: Sequence[str], agent: Agent | None = None) -> list[str]:
        """The agent's command line, with the tools in it if it is an agent that we know."""
        return self._endpoint.command(argv, str(self.config_file), agent) if self._endpoint else list(argv)

    async def start(
        self, load: Callable[[], Config], env: Mapping[str, str], cwd: Path, command: Sequence[str]
    ) -> None:
        try:
            config = load()
        except ConfigError as e:
            self._step(RunEvent.INVALID_CONFIG, problem=str(e))
            return
        if not config.tools.enabled:
            self._step(RunEvent.SWITCHED_OFF, reason="config_disabled", problem="they are switched off")
            return
        self._settings = config.runner
        self._step(RunEvent.SWITCHED_ON)
        token = secrets.token_urlsafe(32)
        env = {**env, "KIMI_PROXY_TOKEN": token}
        try:
            self._server = await LocalServer.start(Command(command, env, cwd), self.folder / SERVER_LOG)
        except UpstreamUnreachable as e:
            self._step(RunEvent.SPAWN_FAILED, problem=str(e))
            return
        await self._wait_for(self._server, token)

    async def end(self) -> None:
        """Stop everything that was started, after the agent has ended or the start has failed."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait({self._watch})
        if self.state is State.STARTING:
            await self._give_up(RunEvent.GIVEN_UP, problem="the run ended before the server was ready")
        ending = TRANSITIONS[self.state, RunEvent.PHASE_ENDED]
        self.state = ending.to
        self._endpoint = None
        if self._server is not None and not await self._server.end(grace_s=self._settings.shutdown_timeout_ms / 1000):
            self._step(RunEvent.REFUSED_TO_EXIT, pid=self._server.pid)
        with suppress(OSError):
            self.config_file.unlink(missing_ok=True)
        self._log(RunEvent.PHASE_ENDED, ending.logs, {})

    async def _wait_for(self, server: LocalServer, token: str) -> None:
        timeout_ms = self._settings.startup_timeout_ms
        ready = asyncio.create_task(_ready(server))
        server.exited.add_done_callback(lambda _: ready.cancel())
        try:
            await asyncio.wait({ready}, timeout=timeout_ms / 1000)
        finally:
            ready.cancel()
        if server.exited.done():
            await self._give_up(RunEvent.EXITED, **self._end_of(server))
        elif not ready.done():
            await self._give_up(RunEvent.START_TIMEOUT, problem=f"the server was not ready within {timeout_ms} ms")
        else:
            await self._advertise(server, *ready.result(), token)

    async def _advertise(self, server: LocalServer, host: str, port: int, token: str) -> None:
        endpoint = ToolsEndpoint(f"{local_url(host, port)}/mcp", token)
        try:
            write_config(self.folder, endpoint.claude_mcp_servers())
        except OSError as e:
            await self._give_up(RunEvent.GIVEN_UP, problem=f"the agent's configuration cannot be written: {e}")
            return
        self._endpoint = endpoint
        self._step(RunEvent.HEALTHY, host=host, port=port, pid=server.pid)
        self._watch = asyncio.create_task(self._watch_server(server, host, port))

    async def _watch_server(self, server: LocalServer, host: str, port: int) -> None:
        failures = 0
        while failures < self._settings.probe_failures:
            await asyncio.wait({server.exited}, timeout=self._settings.probe_interval_ms / 1000)
            if server.exited.done():
                self._degrade(RunEvent.EXITED, **self._end_of(server))
                return
            failures = 0 if await _is_ours(host, port) else failures + 1
        self._degrade(RunEvent.UNREACHABLE, problem=f"the server did not answer {failures} times")

    def _degrade(self, event: RunEvent, **fields: JsonValue) -> None:
        """Stop offering the tools: processes that the agent starts later do not look for them."""
        self._step(event, **fields)
        self._endpoint = None
        with suppress(OSError):
            write_config(self.folder, {})

    async def _give_up(self, event: RunEvent, **fields: JsonValue) -> None:
        if self._server is not None:
            await self._server.end(grace_s=0)
        self._step(event, **fields)

    def _end_of(self, server: LocalServer) -> JsonObject:
        code = server.exited.result()
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        line = last_line(self.folder)
        return {"exit_code": code, "problem": f"the server ended {how}{line and f', saying: {line}'}"}

    def _step(self, event: RunEvent, **fields: JsonValue) -> None:
        transition = TRANSITIONS[self.state, event]
        self.state = transition.to
        self.problem = str(fields.get("problem", "")) or self.problem
        self._log(event, transition.logs, fields)

    def _log(self, event: RunEvent, names: Sequence[str], fields: JsonObject) -> None:
        level = logging.INFO if event in EXPECTED else logging.WARNING
        for name in names:
            log.log(level, name, extra={"run": self.folder.name, "state": self.state, **fields})


async def _ready(server: LocalServer) -> tuple[str, int]:
    host, port = await server.address
    while True:
        if await _is_ours(host, port):
            return host, port
        await asyncio.sleep(POLL_S)


async def _is_ours(host: str, port: int) -> bool:
    """Return whether the pruner answers there: a port alone proves nothing."""
    found = await asyncio.to_thread(port_owner, host, port)
    return found is not None and found.server == PRUNER_SERVER


Receive = Callable[[signal.Signals], None]


async def run_agent(
    argv: Sequence[str],
    agent: Agent | None,
    env: Mapping[str, str],
    tools: AbstractAsyncContextManager[PrunerRun],
    announce: Callable[[PrunerRun], None],
) -> int:
    """Return the agent's exit code. A signal before it has started ends the run, a later one is the agent's."""
    agent_signals = _AgentSignals()
    with _receive_signals(agent_signals.receive):
        try:
            async with tools as run:
                announce(run)
                return await agent_signals.attend(run.command(argv, agent), {**env, **run.env()})
        except asyncio.CancelledError:
            if agent_signals.ended_by is None:
                raise
            return EXIT_SIGNAL + agent_signals.ended_by


class _AgentSignals:
    """Passes signals on to the agent once it runs."""

    def __init__(self) -> None:
        self.ended_by: signal.Signals | None = None
        self._run = asyncio.current_task()
        self._program: Foreground | None = None
        self._over = False

    async def attend(self, argv: Sequence[str], env: Mapping[str, str]) -> int:
        self._program = Foreground(argv, env)
        try:
            return await self._program.exit_code()
        finally:
            self._over = True

    def receive(self, number: signal.Signals) -> None:
        if self._over:
            return  # the server is being stopped, which takes its time but not long
        if self._program is not None:
            self._program.pass_on(number)
        elif self._run is not None:
            self.ended_by = number
            self._run.cancel()


@contextmanager
def _receive_signals(receive: Receive) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in FORWARDED:
        loop.add_signal_handler(number, partial(receive, number))
    try:
        yield
    finally:
        for number in FORWARDED:
            loop.remove_signal_handler(number)

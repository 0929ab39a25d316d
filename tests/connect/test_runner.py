"""Every row of the tables that describe a run, walked through with real processes."""

import asyncio
import json
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support import stand_in
from tests.support.processes import is_there, until

from kimi_proxy.connect import runner as run_folder
from kimi_proxy.connect.runner import COMMAND, TRANSITIONS, PrunerRun, RunEvent, State, pruner_run
from kimi_proxy.core.config import Config, parse
from kimi_proxy.core.config.sections import RunnerSettings
from kimi_proxy.core.errors import ConfigError

S, E = State, RunEvent
QUICK = RunnerSettings(startup_timeout_ms=60_000, shutdown_timeout_ms=60_000, probe_interval_ms=20, probe_failures=3)


def server(how: str, *more: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", stand_in.__file__, how, *more)


def settings(home: Path, **runner: int) -> Callable[[], Config]:
    config = parse("", {}, home)
    return lambda: config.model_copy(update={"runner": QUICK.model_copy(update=runner)})


class World:
    """Runs, and what the log said of them."""

    def __init__(self, home: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.home = home
        self.seen: set[tuple[State, RunEvent]] = set()
        self._caplog = caplog
        caplog.set_level(logging.INFO, "kimi_proxy.connect.runner")

    @asynccontextmanager
    async def run(
        self, command: Sequence[str] = server("is well"), load: Callable[[], Config] | None = None
    ) -> AsyncIterator[PrunerRun]:
        folder = run_folder.new(self.home)
        async with pruner_run(load or settings(self.home), folder, os.environ, self.home, command) as run:
            yield run

    @property
    def logged(self) -> list[str]:
        return [record.message for record in self._caplog.records]

    def field(self, event: str, name: str) -> object:
        return next(vars(record)[name] for record in self._caplog.records if record.message == event)


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> World:
    return World(tmp_path, caplog)


def pid_of(world: World) -> int:
    pid = world.field("mcp_pruner.ready", "pid")
    assert isinstance(pid, int)
    return pid


async def test_init_switched_off_leads_to_disabled(world: World):
    config = parse("", {"JEEVES_MCP_PRUNER_ENABLED": "false"}, world.home)
    async with world.run(("/nothing/is/started",), lambda: config) as run:
        assert run.state is S.DISABLED

    assert world.field("mcp_pruner.disabled", "reason") == "config_disabled"
    assert world.logged == ["mcp_pruner.disabled", "mcp_pruner.not_running"]


async def test_init_with_invalid_values_leads_to_disabled_and_the_run_goes_on(world: World):
    def load() -> Config:
        return parse("", {"PRUNER_TIMEOUT_MS": "soon"}, world.home)

    with pytest.raises(ConfigError):
        load()
    async with world.run(load=load) as run:
        assert run.state is S.DISABLED
        assert "PRUNER_TIMEOUT_MS" in run.problem

    assert world.logged == ["mcp_pruner.config_invalid", "mcp_pruner.not_running"]


async def test_init_switched_on_leads_to_starting_and_a_healthy_server_to_running(world: World):
    async with world.run() as run:
        assert run.state is S.RUNNING
        assert run.url == f"http://127.0.0.1:{world.field('mcp_pruner.ready', 'port')}/mcp"

    assert world.field("mcp_pruner.ready", "host") == "127.0.0.1"
    assert world.logged == ["mcp_pruner.ready", "mcp_pruner.stopped"]


@pytest.mark.parametrize("program", ["/no/such/program", "/dev/null"], ids=["ENOENT", "EACCES"])
async def test_starting_with_a_spawn_that_fails_leads_to_disabled(world: World, program: str):
    async with world.run((program,)) as run:
        assert run.state is S.DISABLED
        assert program in run.problem

    assert world.logged == ["mcp_pruner.spawn_error", "mcp_pruner.start_failed", "mcp_pruner.not_running"]


@pytest.mark.parametrize("how", ["never tells", "never answers", "is a stranger"])
async def test_starting_without_an_answer_in_time_leads_to_disabled_and_kills_the_server(world: World, how: str):
    async with world.run(server(how), settings(world.home, startup_timeout_ms=400)) as run:
        assert run.state is S.DISABLED

    assert world.logged == ["mcp_pruner.start_timeout", "mcp_pruner.start_failed", "mcp_pruner.not_running"]


async def test_a_port_that_a_stranger_holds_is_never_taken_for_ours(world: World):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        serving = asyncio.create_task(asyncio.to_thread(stand_in.answer, stranger, stand_in.STRANGER))
        named = server("names a stranger's port", str(stranger.getsockname()[1]))
        async with world.run(named, settings(world.home, startup_timeout_ms=400)) as run:
            assert run.state is S.DISABLED
        stranger.shutdown(socket.SHUT_RDWR)
        await serving

    assert "mcp_pruner.start_timeout" in world.logged


async def test_our_server_on_a_taken_port_ends_with_the_reason(world: World):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = str(stranger.getsockname()[1])
        async with world.run((*COMMAND[:-1], taken)) as run:
            assert run.state is S.DISABLED
            assert f"{taken} is taken by another program" in run.problem

    assert world.field("mcp_pruner.exited", "exit_code") == 78
    assert world.logged == ["mcp_pruner.exited", "mcp_pruner.start_failed", "mcp_pruner.not_running"]


async def test_starting_with_a_server_that_exits_leads_to_disabled_at_once(world: World):
    async with world.run(server("exits at once"), settings(world.home, startup_timeout_ms=600_000)) as run:
        assert run.state is S.DISABLED
        assert run.problem == "the server ended with exit code 3, saying: no luck today"

    assert world.logged == ["mcp_pruner.exited", "mcp_pruner.start_failed", "mcp_pruner.not_running"]


async def test_a_run_that_is_cancelled_while_starting_leaves_no_server(world: World):
    async def start() -> None:
        async with world.run(server("never tells"), settings(world.home, startup_timeout_ms=600_000)):
            raise AssertionError("it is never ready")

    starting = asyncio.create_task(start())
    runs = world.home / run_folder.RUNS
    await until(lambda: bool(_in(world.home)) and bool(list(runs.iterdir())))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    assert _in(world.home) == []
    assert world.logged == ["mcp_pruner.start_failed", "mcp_pruner.not_running"]


def _in(folder: Path) -> list[int]:
    """The processes that work in `folder`."""
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        try:
            found += [int(cwd.parent.name)] if cwd.readlink() == folder else []
        except OSError:
            continue
    return found


async def test_a_folder_that_cannot_be_written_leads_to_disabled(world: World):
    folder = run_folder.new(world.home)
    (folder / run_folder.CONFIG).mkdir()
    async with pruner_run(settings(world.home), folder, os.environ, world.home, server("is well")) as run:
        assert run.state is S.DISABLED

    assert world.logged == ["mcp_pruner.start_failed", "mcp_pruner.not_running"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_running_with_a_child_that_exits_leads_to_degraded(world: World, number: signal.Signals):
    async with world.run() as run:
        os.kill(pid_of(world), number)
        await until(lambda: run.state is S.DEGRADED)

    assert world.field("mcp_pruner.degraded", "exit_code") == -number
    assert world.logged == [
        "mcp_pruner.ready",
        "mcp_pruner.exited",
        "mcp_pruner.degraded",
        "mcp_pruner.shutdown_after_degraded",
    ]


async def test_running_with_an_unreachable_server_leads_to_degraded(world: World):
    async with world.run(server("stops listening")) as run:
        os.kill(pid_of(world), signal.SIGUSR1)
        await until(lambda: run.state is S.DEGRADED)
        assert run.problem == "the server did not answer 3 times"
        assert is_there(pid_of(world))

    assert world.logged == [
        "mcp_pruner.ready",
        "mcp_pruner.unreachable",
        "mcp_pruner.degraded",
        "mcp_pruner.shutdown_after_degraded",
    ]


async def test_degraded_ends_with_the_remaining_child_terminated(world: World):
    async with world.run(server("stops listening")) as run:
        os.kill(pid_of(world), signal.SIGUSR1)
        await until(lambda: run.state is S.DEGRADED)

    assert run.state is S.SHUTDOWN
    assert not is_there(pid_of(world))


async def test_degraded_stops_advertising_for_the_rest_of_the_run(world: World):
    async with world.run() as run:
        os.kill(pid_of(world), signal.SIGKILL)
        await until(lambda: run.state is S.DEGRADED)

        assert (run.url, run.claude_mcp_servers(), run.codex_config_overrides(), run.env()) == (None, {}, (), {})
        assert run.command(["claude", "-p"]) == ["claude", "-p"]
        assert json.loads(run.config_file.read_bytes()) == {"mcpServers": {}}


async def test_failures_that_are_not_consecutive_do_not_count(world: World):
    often = server("is a stranger every other time")
    async with world.run(often, settings(world.home, probe_failures=2)) as run:
        await until(lambda: int((world.home / "probes").read_text() or 0) > 10)
        assert run.state is S.RUNNING


@pytest.mark.parametrize("end", ["success", "failure", "cancel"])
async def test_running_ends_with_sigterm_when_the_phase_ends(world: World, end: str):
    async def phase() -> None:
        async with world.run() as run:
            assert run.state is S.RUNNING
            match end:
                case "failure":
                    raise RuntimeError("the agent failed")
                case "cancel":
                    raise asyncio.CancelledError

    outcome = (await asyncio.gather(phase(), return_exceptions=True))[0]

    assert type(outcome) is {"success": type(None), "failure": RuntimeError, "cancel": asyncio.CancelledError}[end]
    assert not is_there(pid_of(world))
    assert world.logged == ["mcp_pruner.ready", "mcp_pruner.stopped"]


async def test_shutdown_of_a_server_that_refuses_to_exit_escalates_to_sigkill(world: World):
    async with world.run(server("ignores SIGTERM"), settings(world.home, shutdown_timeout_ms=200)):
        pass

    assert not is_there(pid_of(world))
    assert world.logged == ["mcp_pruner.ready", "mcp_pruner.kill_escalated", "mcp_pruner.stopped"]


async def test_what_the_server_left_behind_goes_with_it(world: World):
    async with world.run(server("leaves a child")):
        assert len(_in(world.home)) == 2

    await until(lambda: _in(world.home) == [])


async def test_a_new_run_begins_anew_after_a_crash(world: World):
    async with world.run() as first:
        os.kill(pid_of(world), signal.SIGKILL)
        await until(lambda: first.state is S.DEGRADED)
    async with world.run() as second:
        assert second.state is S.RUNNING


async def test_the_configuration_of_the_agent_is_private_and_goes_at_the_end(world: World):
    async with world.run() as run:
        assert json.loads(run.config_file.read_bytes()) == {"mcpServers": run.claude_mcp_servers()}
        assert stat.S_IMODE(run.config_file.stat().st_mode) == 0o600
        assert stat.S_IMODE(run.folder.stat().st_mode) == 0o700

    assert not run.config_file.exists()


async def test_each_run_has_a_token_of_its_own(world: World):
    async with world.run() as one, world.run() as two:
        tokens = {run.env()["KIMI_PROXY_MCP_TOKEN"] for run in (one, two)}

    assert len(tokens) == 2
    assert min(map(len, tokens)) > 40


def test_every_row_of_the_table_has_its_logs_under_the_names_of_the_contract():
    named = {name for transition in TRANSITIONS.values() for name in transition.logs}

    assert named == {
        "mcp_pruner.disabled",
        "mcp_pruner.config_invalid",
        "mcp_pruner.ready",
        "mcp_pruner.start_failed",
        "mcp_pruner.spawn_error",
        "mcp_pruner.start_timeout",
        "mcp_pruner.exited",
        "mcp_pruner.unreachable",
        "mcp_pruner.degraded",
        "mcp_pruner.stopped",
        "mcp_pruner.not_running",
        "mcp_pruner.shutdown_after_degraded",
        "mcp_pruner.kill_escalated",
    }

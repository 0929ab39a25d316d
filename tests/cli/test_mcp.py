"""`kimi-proxy mcp`: the servers behind the gateway, from the command line."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.cli.serving import serving
from tests.support.deep import deep, too
from tests.support.processes import is_guard, runs, with_variable, within

from .conftest import Cli, stop

ROOT = Path(__file__).parents[2]
SCRIPT = str(ROOT / "tests" / "support" / "stdio_server.py")


def server(name: str, mode: str = "", more: str = "") -> str:
    args = json.dumps(["-I", "-S", SCRIPT, mode])
    return f"[mcp.servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n{more}\n"


@pytest.fixture
def mcp(cli: Cli) -> Iterator[Cli]:
    """The command with two servers, one of which works; whatever is left in the background is ended."""
    marked = f'env = {{ MCP_TEST = "{cli.here}" }}'
    patient = "[mcp]\nready_timeout_s = 60\n"
    (cli.here / "config.toml").write_text(patient + server("good", more=marked) + server("bad", "crash"))
    yield cli
    cli("mcp", "down")


def servers_of(cli: Cli) -> set[int]:
    """Return the servers themselves, without the guards that run them."""
    return {pid for pid in with_variable(f"MCP_TEST={cli.here}") if not is_guard(pid)}


def states(printed: bytes) -> dict[str, str]:
    return {line.split()[0]: line.split()[1] for line in printed.decode().splitlines()}


def test_without_a_server_there_is_nothing_to_look_at(cli: Cli):
    done = cli("mcp", "status")

    assert (done.returncode, done.stdout) == (3, b"")
    assert b"kimi-proxy mcp up" in done.stderr
    assert (cli("mcp", "logs", "x").returncode, cli("mcp", "down").returncode) == (3, 0)


def test_up_starts_it_all_in_the_background_and_down_leaves_nothing(mcp: Cli):
    up = mcp("mcp", "up")
    status = mcp("mcp", "status")
    log = mcp("mcp", "logs", "bad", "-n", "1")
    family = servers_of(mcp)
    again = mcp("mcp", "up", "good", "--json")
    file = mcp.here / "config.toml"
    file.write_text(file.read_text() + "[log]\n")
    older = [mcp("mcp", *words).stderr for words in (("status",), ("up", "good"), ("logs", "good"))]
    down = mcp("mcp", "down")

    assert up.returncode == 1
    assert b"older settings" not in up.stderr + status.stderr + log.stderr
    assert all(b"has older settings than " in said and b"kimi-proxy mcp restart" in said for said in older)
    assert states(up.stdout)["good"] == "ready"
    assert b"last lines from bad:\ncannot find my configuration\n[bad ended with status 7" in up.stderr
    assert states(status.stdout)["good"] == "ready"
    assert log.stdout == b"[bad ended with status 7 after saying: cannot find my configuration]\n"
    assert again.returncode == 0
    assert [s["pid"] for s in json.loads(again.stdout)["servers"]] == list(family)
    assert down.returncode == 0
    assert states(down.stdout) == {"good": "stopped", "bad": "stopped"}
    assert within(60, lambda: not any(runs(pid) for pid in family))
    assert mcp("mcp", "status").returncode == 3


def test_a_built_in_server_is_turned_on_by_its_name_alone(cli: Cli):
    """Its program is npx, in whose place stands a server of the tests."""
    npx = cli.here / "bin" / "npx"
    npx.parent.mkdir()
    asked = cli.here / "asked"
    npx.write_text(f'#!/bin/sh\necho "$@" >"{asked}"\nexec "{sys.executable}" -I -S "{SCRIPT}"\n')
    npx.chmod(0o755)
    env = {"PATH": f"{npx.parent}:{cli.env['PATH']}"}
    none = cli("mcp", "up", "--json", env=env)
    up = cli("mcp", "up", "fast-filesystem", env=env)
    status = json.loads(cli("mcp", "status", "--json", env=env).stdout)["servers"]
    down = cli("mcp", "down", "--forget", env=env)

    assert json.loads(none.stdout) == {"servers": []}
    assert (up.returncode, states(up.stdout)["fast-filesystem"]) == (0, "ready"), up.stderr
    assert f"turned on: fast-filesystem, in {cli.here}".encode() in up.stderr
    # The program has a list of folders of its own, and refuses every other one.
    assert asked.read_text().split()[-2:] == ["--allow", str(cli.here.resolve())]
    assert {each["name"]: each["state"] for each in status}["fast-filesystem"] == "ready"
    assert b"turned off: fast-filesystem" in down.stderr
    assert not (cli.here / "config.toml").exists()


def test_a_file_server_is_not_turned_on_for_the_whole_disk_unless_that_is_written(cli: Cli):
    refused = replace(cli, here=Path("/"))("mcp", "up", "fast-filesystem")
    left = cli("mcp", "down", "--forget")

    assert (refused.returncode, refused.stdout) == (78, b"")
    assert b"in the folder of a project" in refused.stderr
    assert b'root = "/"' in refused.stderr
    assert b"none was turned on" in left.stderr


@deep("it waits for a server that takes its time")
def test_a_server_that_needs_more_time_is_no_failure(cli: Cli):
    waits = json.dumps(["-c", "sleep 600"])
    slow = f'[mcp]\nready_timeout_s = 15\n[mcp.servers.slow]\ncommand = "sh"\nargs = {waits}\nstart_timeout_s = 500\n'
    (cli.here / "config.toml").write_text(slow)
    up = cli("mcp", "up")
    cli("mcp", "down")

    assert (up.returncode, states(up.stdout)) == (0, {"slow": "starting"}), up.stderr
    assert b"still starting: slow; kimi-proxy mcp status shows when they are ready" in up.stderr


@deep("tests/services/gateway/test_supervisor.py shows it without the commands")
def test_one_server_can_be_stopped_and_started_and_the_others_go_on(mcp: Cli):
    mcp("mcp", "up", "good")
    before = servers_of(mcp)
    down = mcp("mcp", "down", "good")
    nobody = servers_of(mcp)
    up = mcp("mcp", "up", "good")
    restarted = mcp("mcp", "restart", "good")

    assert (len(before), nobody) == (1, set())
    assert (states(down.stdout), states(up.stdout)) == ({"good": "stopped"}, {"good": "ready"})
    assert (restarted.returncode, states(restarted.stdout)) == (0, {"good": "ready"})
    assert servers_of(mcp).isdisjoint(before)


@deep("tests/services/gateway/test_supervisor.py shows it without the commands")
def test_a_restart_of_everything_reads_the_settings_again(mcp: Cli):
    mcp("mcp", "up", "good")
    (mcp.here / "config.toml").write_text("[mcp]\nready_timeout_s = 60\n" + server("new"))
    done = mcp("mcp", "restart")

    assert (done.returncode, states(done.stdout)) == (0, {"new": "ready"})


@deep("tests/services/gateway/test_supervisor.py shows it without the commands")
def test_a_start_in_the_foreground_is_told_and_goes_on(mcp: Cli):
    with serving(mcp, "start") as (process, _):
        assert within(60, lambda: len(servers_of(mcp)) == 1)
        down = mcp("mcp", "down")
        assert states(down.stdout)["good"] == "stopped"
        assert servers_of(mcp) == set()
        assert mcp("mcp", "status").returncode == 1
        assert stop(process)[0] == 0
    assert mcp("mcp", "status").returncode == 3


@pytest.mark.parametrize("how", [too(signal.SIGTERM), signal.SIGKILL])
def test_when_start_ends_so_do_the_servers_and_nobody_is_fooled_by_what_it_left(mcp: Cli, how: signal.Signals):
    with serving(mcp, "start") as (process, _):
        assert within(60, lambda: len(servers_of(mcp)) == 1)
        process.send_signal(how)
        process.wait(60)

    assert within(60, lambda: not servers_of(mcp))
    assert mcp("mcp", "status").returncode == 3


@deep("tests/services/gateway/test_supervisor.py shows it without the commands")
def test_names_that_cannot_be_started_are_refused_with_the_reason(mcp: Cli):
    mcp("mcp", "up", "good")
    unknown = mcp("mcp", "up", "nobody")
    elsewhere = mcp("mcp", "up", "json-query")
    off = mcp("mcp", "restart", "task-master")

    assert (unknown.returncode, elsewhere.returncode, off.returncode) == (2, 2, 2)
    assert b"no MCP server is named 'nobody'" in unknown.stderr
    assert b"set run = true in [mcp.servers.json-query]" in elsewhere.stderr
    assert b"set enabled = true in [mcp.servers.task-master]" in off.stderr


def test_a_start_that_fails_shows_why(mcp: Cli):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        done = mcp("mcp", "up", env={"KIMI_PROXY_PORT": str(stranger.getsockname()[1])})

    assert done.returncode == 2
    assert b"exited with status 78; its log:" in done.stderr
    assert b"is taken by another program, which is not kimi-proxy" in done.stderr


@deep("tests/services/gateway/test_supervisor.py shows it without the commands")
def test_with_a_token_the_command_sends_it(mcp: Cli):
    env = {"KIMI_PROXY_TOKEN": "a" * 32}
    done = mcp("mcp", "up", "good", env=env)
    mcp("mcp", "down", env=env)

    assert (done.returncode, states(done.stdout)) == (0, {"good": "ready"})


def test_the_script_says_the_same_in_other_words(tmp_path: Path):
    scripts, programs = tmp_path / "scripts", tmp_path / ".venv" / "bin"
    for folder in (scripts, programs):
        folder.mkdir(parents=True)
    copied = shutil.copy2(ROOT / "scripts" / "start-mcp-servers.sh", scripts)
    for stand_in in (scripts / "setup", programs / "kimi-proxy"):
        stand_in.write_text('#!/bin/sh\necho "$@"\n')
        stand_in.chmod(0o755)

    def said(*args: str) -> tuple[int, str]:
        done = subprocess.run([copied, *args], capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout.strip()

    assert [said(word, "a", "b") for word in ("start", "stop", "restart", "status")] == [
        (0, "mcp up a b"),
        (0, "mcp down a b"),
        (0, "mcp restart a b"),
        (0, "mcp status a b"),
    ]
    assert (said("dance"), said()) == ((2, ""), (2, ""))

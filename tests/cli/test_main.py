"""What holds for every command."""

import re

import click
import pytest

from kimi_proxy import __version__
from kimi_proxy.cli import app

from .conftest import Cli

COMMANDS = sorted(app.all_commands(click.Context(app)))


def test_the_version_is_one_line(cli: Cli):
    done = cli.from_scratch("--version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"kimi-proxy {__version__}\n".encode(), b"")


def test_there_are_the_commands_of_the_contract():
    assert {"start", "pruner", "prune", "recover", "explain", "doctor", "status"} <= set(COMMANDS)


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_needs_nothing_and_breaks_nothing(cli: Cli, command: tuple[str, ...]):
    done = cli(*command, "--help", env={"KIMI_PROXY_CONFIG": "/does/not/exist"})

    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Usage: " in done.stdout


def test_no_command_at_all_says_what_to_do_next(cli: Cli):
    done = cli()
    named = set(re.findall(rb"^  kimi-proxy (\w+)", done.stdout, re.M))

    assert (done.returncode, done.stderr) == (0, b"")
    assert named == {b"demo", b"audit", b"start", b"init"} <= {name.encode() for name in COMMANDS}


def test_settings_that_are_refused_are_one_line_and_exit_78(cli: Cli):
    (cli.here / "config.toml").write_text("[mcp_pruner]\nprot = 1\n", "utf-8")

    done = cli("status")

    assert done.returncode == 78
    assert done.stdout == b""
    assert done.stderr.startswith(
        b"kimi-proxy: setting mcp_pruner.prot (line 2): there is no such setting: did you mean port? "
    )
    assert done.stderr.count(b"\n") == 1


def test_a_project_cannot_have_its_own_reader_send_text_elsewhere(cli: Cli):
    (cli.here / "config.toml").write_text('[mcp_pruner]\nbackend = "deepinfra"\n', "utf-8")

    done = cli("prune", "-", "--goal", "x", "--json", stdin=b"a text\n")

    assert done.returncode == 0
    assert b'"backend":"heuristic"' in done.stdout.replace(b'": "', b'":"')


def test_heavy_things_are_not_loaded_to_show_the_help(cli: Cli):
    done = cli.from_scratch("--help", env={"PYTHONPROFILEIMPORTTIME": "1"})

    loaded = {line.rsplit(b"|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert b"click" in loaded
    assert loaded.isdisjoint({b"pydantic", b"numpy", b"starlette", b"uvicorn", b"asyncio", b"msgspec"})

"""What holds for every command."""

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from kimi_proxy import __version__
from kimi_proxy.cli import COMMANDS, LazyGroup

from .conftest import Cli


def test_a_near_name_is_suggested(cli: Cli):
    done = cli("prun")

    assert done.returncode == 2
    assert b"Did you mean" in done.stderr
    assert b"prune" in done.stderr


def test_a_command_loads_no_other():
    program = (
        "import sys; from kimi_proxy.cli import app; app(['models', '-h'], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    loaded = {name for name in done.stdout.split() if name.startswith("kimi_proxy.cli.")}
    assert loaded == {"kimi_proxy.cli.config", "kimi_proxy.cli.console"}


def test_the_commands_are_listed_in_their_order_with_a_whole_sentence(cli: Cli):
    listed = cli("--help").stdout.decode().partition("Commands:\n")[2]

    assert re.findall(r"^  (\S+)", listed, re.M) == list(COMMANDS)
    assert "..." not in listed


def test_ctrl_c_ends_a_command_with_the_code_that_shells_know():
    group = LazyGroup("kimi-proxy")

    @group.command()
    def wait() -> None:
        raise KeyboardInterrupt

    assert CliRunner().invoke(group, ["wait"]).exit_code == 130


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

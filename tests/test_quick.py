"""What is answered without loading anything: by the modules that it imports, not by the time that it takes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.cli.conftest import Cli
from tests.support.cli.checkup import free_port
from tests.support.cli.serving import serving

from kimi_proxy import __version__, quick

HEAVY = ("click", "pydantic", "numpy", "msgspec", "asyncio", "tree_sitter", "aiohttp", "starlette")
LOG = "\n".join(
    "ERROR: no space left" if at == 77 else f"12:00:{at % 60:02} INFO step {at} is done" for at in range(200)
)

PROGRAM = """
import sys
from kimi_proxy import __main__
code = __main__.answer(sys.argv[1:])
print(code, *sorted({name.partition(".")[0] for name in sys.modules}), sep=",", file=sys.stderr)
"""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    here = tmp_path / "here"
    here.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "KIMI_PROXY_HOME": str(tmp_path / "state")}
    return Cli(here, {**env, "MCP_PRUNER_PORT": "0", "KIMI_PROXY_PORT": "0"})


def answered(cli: Cli, *args: str) -> tuple[str, str, set[str]]:
    """The exit code, what was printed, and which modules were loaded for it."""
    command = [sys.executable, "-c", PROGRAM, *args]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, cwd=cli.here, env=cli.env, timeout=120)
    *said, modules = ran.stderr.decode().strip().split("\n")
    code, *loaded = modules.split(",")
    return code, ran.stdout.decode("utf-8", "surrogateescape") + "\n".join(said), set(loaded)


def test_the_version_loads_nothing(cli: Cli):
    code, said, loaded = answered(cli, "--version")

    assert (code, said) == ("0", f"kimi-proxy {__version__}\n")
    assert not loaded & set(HEAVY)


def test_without_a_server_the_command_line_answers(cli: Cli):
    (cli.here / "a.log").write_text(LOG)

    for args in (["prune", "a.log", "--goal", "why?"], ["--help"], ["prune"]):
        code, said, loaded = answered(cli, *args)
        assert (code, said) == ("None", "")
        assert not loaded & set(HEAVY)


def test_without_a_server_the_state_of_the_store_is_read_from_its_file(cli: Cli):
    env = {**cli.env, "MCP_PRUNER_PORT": free_port()}
    assert "0 originals, 0.0 of 2048 MiB" in answered(Cli(cli.here, env), "status")[1]
    cli("prune", "-", "--goal", "why?", stdin=LOG.encode())
    code, said, loaded = answered(Cli(cli.here, env), "status")
    as_json = json.loads(answered(Cli(cli.here, env), "status", "--json")[1])
    (cli.here / "config.toml").write_text("")
    slow = cli("status", env=env)
    by_config = json.loads(cli("status", "--json", env=env).stdout)

    assert code == "3"
    assert not loaded & set(HEAVY)
    assert said.encode() == slow.stdout
    assert slow.returncode == 3
    assert {**as_json, "configuration": by_config["configuration"]} == by_config
    assert answered(Cli(cli.here, env), "status")[0] == "None"


def test_a_setting_in_the_environment_is_left_to_the_command_line(cli: Cli):
    """Else it would say that nothing answers on a port that is not ours."""
    free = {name: value for name, value in cli.env.items() if name != "MCP_PRUNER_PORT"}
    there = Cli(cli.here, free | {"KIMI_PROXY__MCP_PRUNER__PORT": "9"})

    assert answered(there, "status")[0] == "None"
    assert b"http://127.0.0.1:9;" in there("status").stdout


def test_a_server_that_runs_is_asked_and_nothing_is_loaded(cli: Cli):
    (cli.here / "a.log").write_text(LOG)
    goal = ("--goal", "why is there no space left?")
    with serving(cli, "start", name="proxy"):
        status = answered(cli, "status")
        as_json = answered(cli, "status", "--json")
        pruned = answered(cli, "prune", "a.log", *goal, "--max-prune-ratio=0.6", "--json")
        plain = answered(cli, "prune", "a.log", *goal)
        odd = answered(cli, "prune", "a.log", *goal, "--unheard-of")
        slow = cli("prune", "a.log", *goal)

    for code, _, loaded in (status, as_json, pruned, plain):
        assert code == "0"
        assert not loaded & set(HEAVY)
    assert status[1].startswith(f"running: mcp-pruner {__version__} on http://127.0.0.1:")
    assert json.loads(as_json[1])["store"]["state"] == "ok"
    assert '"pruned_ratio": 0.' in pruned[1]
    assert "ERROR: no space left" in plain[1]
    assert "lines of logs kept" in plain[1]
    assert slow.stdout.decode() in plain[1]
    assert odd[0] == "None"


def test_status_shows_how_the_newest_session_stands(cli: Cli):
    with serving(cli, "start", name="proxy") as (_, address):
        httpx.post(f"{address}/api/sessions", json={"title": "The importer"}, trust_env=False).raise_for_status()
        code, said, loaded = answered(cli, "status")
        as_json = json.loads(answered(cli, "status", "--json")[1])

    assert code == "0"
    assert not loaded & set(HEAVY)
    assert said.endswith("\nnewest session: saved 0 tokens today\n")
    assert as_json["newest_session"]["cache_left_s"] is None  # nothing was asked in it yet


def test_the_status_line_is_the_servers_and_loads_nothing(cli: Cli):
    with serving(cli, "start", name="proxy"):
        code, said, loaded = answered(cli, "statusline")
        slow = cli("statusline", stdin=b'{"session_id": "unheard-of"}')

    assert (code, said) == ("0", "saved 0 tokens today\n")
    # A third of its CPU time went into these: the agent waits for it at every turn.
    assert not loaded & {*HEAVY, "typing", "urllib", "ipaddress", "stringprep"}
    assert slow.stdout == b"saved 0 tokens today\n"


def test_without_a_server_the_status_line_is_empty(cli: Cli):
    code, said, loaded = answered(cli, "statusline")

    assert (code, said) == ("0", "")
    assert not loaded & set(HEAVY)


def test_what_was_pruned_by_the_server_is_recovered_by_the_command(cli: Cli):
    (cli.here / "a.log").write_bytes(LOG.encode() + b"\xff\xfe\r\n")
    with serving(cli, "start", name="proxy"):
        said = answered(cli, "prune", "a.log", "--goal", "why is there no space left?")[1]
    prune_id = said.rpartition("kimi-proxy recover ")[2].strip()

    assert cli("recover", prune_id).stdout == LOG.encode() + b"\xff\xfe\r\n"


@pytest.mark.parametrize(
    ("raw", "is_binary"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 20, True),
        ("text in UTF-16\n".encode("utf-16") * 50, True),
        (b"plain text\n" * 100, False),
        (LOG.encode() + b"\0", False),
        (b"caf\xe9 \xff\0 with a few odd bytes in a line that is long enough\r\n" * 9, False),
        (b"", False),
    ],
)
def test_binary_files_are_told_from_texts_with_odd_bytes(raw: bytes, is_binary: bool):
    assert quick.is_binary(raw) == is_binary


def test_a_binary_file_is_refused_in_one_line(cli: Cli):
    (cli.here / "program").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 20)
    ran = cli("prune", "program", "--goal", "why?")

    assert ran.returncode == 2
    assert ran.stdout == b""
    assert b"program is a binary file: prune needs a text file" in ran.stderr
    assert b"Traceback" not in ran.stderr


STDIO_PROGRAM = """
import sys

class Watch:  # sees what is loaded already when the tools are
    def find_spec(self, name, path=None, target=None):
        if name == "kimi_proxy.assembly.tools":
            print(*sorted({name.partition(".")[0] for name in sys.modules}), sep=",", file=sys.stderr)

sys.meta_path.insert(0, Watch())
from kimi_proxy.__main__ import main
main()
"""


def test_what_starts_an_agent_with_tools_does_not_load_the_engine():
    """The server of the tools loads it, in a process of its own, while the agent is about to start."""
    program = "import sys, kimi_proxy.connect.runner; print(*{'numpy', 'sqlite3', 'tree_sitter'} & {*sys.modules})"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)

    assert (ran.returncode, ran.stdout.decode().split()) == (0, [])


@pytest.mark.parametrize("command", ["pruner", "tools"])
def test_an_agent_that_starts_us_has_its_first_answer_before_the_engine_is_loaded(cli: Cli, command: str):
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    started = subprocess.Popen(
        [sys.executable, "-c", STDIO_PROGRAM, command, "--stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cli.here,
        env=cli.env,
    )
    with started as process:
        said, problems = process.communicate("".join(json.dumps(one) + "\n" for one in (hello, listing)).encode(), 120)
    answers = [json.loads(line) for line in said.splitlines()]
    engine = {"numpy", "tree_sitter", "sqlite3", "httpx", "aiohttp", "starlette"}

    assert [answer["id"] for answer in answers] == [1, 2]
    assert "recover_text" in [tool["name"] for tool in answers[1]["result"]["tools"]]
    assert set(problems.decode().split("\n")[0].split(",")) & {"asyncio", *engine} == {"asyncio"}

"""What is wrong, and what runs."""

import json
import socket
import time
from pathlib import Path

import anyio
import pytest
from tests.support.cli.checkup import free_port
from tests.support.cli.serving import serving

from kimi_proxy.cli import checks
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config.opt_in import OPT_IN, OptIn
from kimi_proxy.features.metering import Metric
from kimi_proxy.features.pruning import model
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.notes import Notes
from kimi_proxy.services.store.sqlite.store import SqliteStore

from .conftest import Cli, stop


def report(cli: Cli, **env: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """doctor's exit code, and level and remedy by the name of the check."""
    done = cli("doctor", "--json", env=env)
    return done.returncode, {c["name"]: (c["level"], c["fix"]) for c in json.loads(done.stdout)["checks"]}


def test_on_a_healthy_machine_all_is_well(cli: Cli):
    code, checks = report(cli, MCP_PRUNER_PORT=free_port())

    assert code == 0
    assert set(checks) == {
        *("python", "dependencies", "scorer", "sqlite", "configuration", "access", "backend", "port", "disk", "store"),
        "search",
    }
    assert set(checks.values()) == {("ok", "")}


def test_people_read_the_same_as_a_list(cli: Cli):
    done = cli("doctor", env={"KIMI_PROXY_TOKN": "oops"})

    assert done.returncode == 1
    assert b"warning  environment    unknown variable KIMI_PROXY_TOKN\n" in done.stdout
    assert "→ check the spelling".encode() in done.stdout
    assert b"\x1b[" not in done.stdout


def test_a_setting_that_is_refused_is_an_error_with_its_file(cli: Cli):
    (cli.here / "config.toml").write_text("[store]\nmax_bites = 1\n", "utf-8")

    done = cli("doctor")

    assert done.returncode == 2
    assert b"store.max_bites" in done.stdout
    assert b"config.toml" in done.stdout


def test_a_store_that_cannot_be_written_is_an_error(cli: Cli, tmp_path: Path):
    (tmp_path / "state").write_text("a file where the directory should be")

    code, checks = report(cli)

    assert code == 2
    assert checks["store"][0] == "error"
    assert "KIMI_PROXY_HOME" in checks["store"][1]


def test_an_agent_that_refuses_to_read_cut_text_back_is_a_warning_for_a_week(cli: Cli):
    def refused(id: str, days_ago: float) -> Metric:
        at = time.time() - days_ago * 86_400
        return Metric(id, "ses_1", at, "p", "kimi", "messages", 900, 0, ("recall_refused",), None, 200, "ok", "")

    async def write(*metrics: Metric) -> None:
        store = await SqliteStore.open(Path(cli.env["KIMI_PROXY_HOME"]), ttl_s=3600, max_bytes=2**30, timeout_s=60)
        await store.sessions.write((), metrics)
        await store.close()

    anyio.run(write, refused("req_1", 8.0))
    _, before = report(cli, MCP_PRUNER_PORT=free_port())
    anyio.run(write, refused("req_2", 6.0))
    code, after = report(cli, MCP_PRUNER_PORT=free_port())

    assert "way back" not in before
    assert code == 1 and after["way back"][0] == "warning"
    assert "permissions.allow" in after["way back"][1]


def test_hooks_whose_cuts_may_not_be_read_back_are_a_warning(cli: Cli):
    (Path(cli.env["HOME"])).mkdir(exist_ok=True)
    env = {"MCP_PRUNER_PORT": free_port(), "KIMI_PROXY_PORT": free_port()}
    assert cli("init", "claude", "--hooks", "--yes", env=env).returncode == 0
    _, granted = report(cli, **env)
    settings = Path(cli.env["HOME"]) / ".claude" / "settings.json"
    settings.write_text(settings.read_text().replace('mcp__pruner__recover_text"', 'mcp__other__tool"'))
    _, missing = report(cli, **env)

    assert "claude code" not in granted
    assert missing["claude code"] == ("warning", "run kimi-proxy init claude --hooks again")


def test_a_session_in_which_a_hook_met_a_refusal_is_a_warning(cli: Cli):
    async def write() -> None:
        store = await SqliteStore.open(Path(cli.env["KIMI_PROXY_HOME"]), ttl_s=3600, max_bytes=2**30, timeout_s=60)
        await ChatFacts(Notes(store.facts)).save_refused_recall(LOCAL, "ses_1")
        await store.close()

    anyio.run(write)
    _, checks = report(cli, MCP_PRUNER_PORT=free_port())

    assert checks["way back"][0] == "warning"


def test_a_stranger_on_the_port_is_an_error(cli: Cli):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        code, checks = report(cli, MCP_PRUNER_PORT=str(stranger.getsockname()[1]))

    assert (code, checks["port"][0]) == (2, "error")


def test_a_stranger_on_the_proxys_port_is_an_error_too(cli: Cli):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        code, checks = report(cli, KIMI_PROXY_PORT=str(stranger.getsockname()[1]))

    assert (code, checks["port"][0]) == (2, "error")
    assert "KIMI_PROXY_PORT" in checks["port"][1]


def test_one_port_for_both_is_an_error(cli: Cli):
    port = free_port()

    code, checks = report(cli, MCP_PRUNER_PORT=port, KIMI_PROXY_PORT=port)

    assert (code, checks["port"][0]) == (2, "error")


def test_a_sick_store_is_told_by_the_check_alone(cli: Cli, tmp_path: Path):
    (tmp_path / "state").write_text("a file where the directory should be")

    assert cli("doctor").stderr == b""
    assert cli("report").stderr.startswith(b"kimi-proxy: ")


@pytest.mark.parametrize(
    ("env", "name", "level"),
    [
        ({"MCP_PRUNER_HOST": "0.0.0.0"}, "access", "error"),
        ({"KIMI_PROXY_HOST": "0.0.0.0"}, "access", "error"),
        ({"KIMI_PROXY_TOKEN": "short"}, "access", "warning"),
        ({"KIMI_PRUNING_BACKEND": "deepinfra"}, "backend", "warning"),
        ({"KIMI_PRUNING_BACKEND": "deepinfra", "DEEPINFRA_API_KEY": "k"}, "backend", "ok"),
        ({"_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL": "1"}, "claude code", "warning"),
    ],
)
def test_what_is_not_well_comes_with_a_remedy(cli: Cli, env: dict[str, str], name: str, level: str):
    _, checks = report(cli, MCP_PRUNER_PORT=free_port(), **env)

    assert checks[name][0] == level
    assert bool(checks[name][1]) == (level != "ok")


def test_a_setting_that_no_longer_exists_is_a_warning_with_what_to_do_instead(cli: Cli):
    _, checks = report(cli, MCP_PRUNER_PORT=free_port(), KIMI_PROXY__CACHE__KEEP_WARM="true")

    assert checks["settings"][0] == "warning"
    assert checks["settings"][1].endswith("remove the setting")


def test_secrets_are_not_told(cli: Cli):
    done = cli("doctor", env={"KIMI_PROXY_TOKEN": "s3cret", "DEEPINFRA_API_KEY": "k3y-k3y"})

    assert b"s3cret" not in done.stdout + done.stderr
    assert b"k3y-k3y" not in done.stdout + done.stderr


def test_a_dependency_that_does_not_load_is_told_without_a_traceback(cli: Cli, tmp_path: Path):
    (tmp_path / "platformdirs.py").write_text("raise ImportError('libc is too old')")

    done = cli.from_scratch("doctor", env={"PYTHONPATH": str(tmp_path)})

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"kimi-proxy: a dependency cannot be loaded: libc is too old")


def test_status_of_a_server_that_runs(cli: Cli):
    with serving(cli, "start") as (_, address):
        env = {"MCP_PRUNER_PORT": address.rpartition(":")[2]}
        people, program = cli("status", env=env), cli("status", "--json", env=env)

    assert (people.returncode, program.returncode) == (0, 0)
    assert people.stdout.startswith(b"running: mcp-pruner ")
    told = json.loads(program.stdout)
    assert (told["running"], told["url"], told["store"]["state"]) == (True, address, "ok")


def test_status_when_nothing_runs(cli: Cli):
    done = cli("status", env={"MCP_PRUNER_PORT": free_port()})

    assert done.returncode == 3
    assert done.stdout.startswith(b"not running: no response on http://127.0.0.1:")
    assert b"0 originals" in done.stdout


def test_a_scorer_that_was_refused_is_a_warning_with_its_remedy():
    check = checks.scorer(model.load(b"not a model"))

    assert (check.level, check.fix) == ("warning", "reinstall kimi-proxy")
    assert "it is not a model of this version" in check.found


def test_programs_and_windows_that_are_missing_are_named(cli: Cli):
    toml = """
[mcp.servers.desk]
command = "no-such-program-here"
[mcp.servers.json-query]
run = true
[providers.mine]
base_url = "http://127.0.0.1:1"
[models.mystery]
provider = "mine"
[models."mine/claude-opus-5-5"]
provider = "mine"
"""
    (cli.here / "config.toml").write_text(toml)
    (cli.here / ".env").write_text("OPENAI_API_KEY=sk-1\n")
    done = cli("doctor", env={"PATH": str(cli.here), "MCP_PRUNER_PORT": free_port()})
    said = done.stdout.decode()

    assert done.returncode == 2
    assert "desk cannot be started: program 'no-such-program-here' not found" in said
    assert "install Node, which includes npx, or correct command in [mcp.servers.json-query]" in said
    assert "unknown context window of mystery" in said
    assert "unknown context window of mine" not in said
    assert f"config.toml; from {cli.here / '.env'}: OPENAI_API_KEY" in said


def checks_of_auto_mode(cli: Cli, toml: str, variables: dict[str, str]) -> list[dict[str, str]]:
    """What doctor says of auto mode with these providers, to somebody whose Claude Code has these variables."""
    (cli.here / "config.toml").write_text(toml, "utf-8")
    settings = Path(cli.env["HOME"]) / ".claude" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"env": variables}))
    done = cli("doctor", "--json", env={"MCP_PRUNER_PORT": free_port()})
    return [check for check in json.loads(done.stdout)["checks"] if check["name"] == "auto mode"]


KIMI, ANTHROPIC = ('[providers.kimi]\napi_key = ""\n', '[providers.anthropic]\napi_key = ""\n')
CONNECTED = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8000"}
CHECKS_ITSELF = {"CLAUDE_CODE_AUTO_MODE_SERVER": "0"}


@pytest.mark.parametrize(
    ("toml", "variables", "level", "words"),
    [
        (KIMI, CONNECTED, "warning", "stops at the first command"),
        (KIMI, CONNECTED | CHECKS_ITSELF, "ok", "about 35,000 tokens for each checked action"),
        (KIMI, {}, "ok", "CLAUDE_CODE_AUTO_MODE_SERVER=0"),
        (KIMI + ANTHROPIC, CONNECTED, "ok", "CLAUDE_CODE_AUTO_MODE_SERVER=0"),
        (ANTHROPIC, CONNECTED | CHECKS_ITSELF, "warning", "Anthropic does it free"),
    ],
)
def test_doctor_says_who_checks_the_actions_of_claude_code(
    toml: str, variables: dict[str, str], level: str, words: str, cli: Cli
):
    (check,) = checks_of_auto_mode(cli, toml, variables)

    assert check["level"] == level
    assert words in check["found"]
    assert bool(check["fix"]) is (level == "warning")


def test_so_it_does_where_a_key_lets_another_provider_answer_on_demand(cli: Cli):
    keyed = Cli(cli.here, cli.env | {"MOONSHOT_API_KEY": "sk-x"})

    (check,) = checks_of_auto_mode(keyed, "", CONNECTED)

    assert (check["level"], "start Claude Code with CLAUDE_CODE_AUTO_MODE_SERVER=0" in check["found"]) == ("ok", True)


@pytest.mark.parametrize("variables", [CONNECTED, {}])
def test_where_anthropic_answers_doctor_has_nothing_to_say_of_it(variables: dict[str, str], cli: Cli):
    assert checks_of_auto_mode(cli, ANTHROPIC, variables) == []


def test_doctor_and_start_say_what_safety_checks_have_cost_in_the_last_days(cli: Cli):
    def check(id: str, days_ago: float) -> Metric:
        at, why = time.time() - days_ago * 86_400, ("safety_check",)
        counts = {"input_tokens": 35_000, "output_tokens": 9, "cost_usd": 0.07}
        return Metric(id, "ses_1", at, "p", "kimi", "messages", 35_000, 0, why, None, 200, "ok", "", **counts)

    async def write() -> None:
        store = await SqliteStore.open(Path(cli.env["KIMI_PROXY_HOME"]), ttl_s=3600, max_bytes=2**30, timeout_s=60)
        await store.sessions.write((), [check("req_1", 8.0), check("req_2", 6.0), check("req_3", 0.0)])
        await store.close()

    anyio.run(write)
    (cli.here / "config.toml").write_text(KIMI, "utf-8")
    found = json.loads(cli("doctor", "--json", env={"MCP_PRUNER_PORT": free_port()}).stdout)["checks"]
    with serving(cli, "start", name="proxy") as (process, _):
        said = stop(process)[1].decode()

    words = "2 safety checks of Claude Code's auto mode: 70,000 tokens, 0.1400 USD in the last 7 days"
    assert {each["name"]: each["found"] for each in found}["safety checks"] == words
    assert f"({words})" in said


def features(cli: Cli) -> dict[str, bool]:
    """The features that are off by default, and whether they are on."""
    done = cli("doctor", "--all", "--json", env={"MCP_PRUNER_PORT": free_port()})
    return {each["name"]: each["is_on"] for each in json.loads(done.stdout)["optional"]}


def test_all_lists_what_is_off_by_default_with_the_line_that_turns_it_on(cli: Cli):
    done = cli("doctor", "--all", env={"MCP_PRUNER_PORT": free_port()})

    told = done.stdout.decode().partition("\nOff by default")[2]
    assert done.returncode == 0
    assert [each.name for each in OPT_IN if f"off      {each.name} " not in told] == []
    assert [each.turn_on for each in OPT_IN if f"→ {each.turn_on}\n" not in told] == []
    assert b"Off by default" not in cli("doctor", env={"MCP_PRUNER_PORT": free_port()}).stdout


@pytest.mark.parametrize(
    "feature", [each for each in OPT_IN if each.turn_on.startswith("[")], ids=lambda each: each.name
)
def test_the_line_that_is_shown_turns_its_feature_on(feature: OptIn, cli: Cli):
    section, line = feature.turn_on.split(" ", 1)
    (cli.here / "config.toml").write_text(f"{section}\n{line}\n", "utf-8")

    assert features(cli) == {each.name: each == feature for each in OPT_IN}


def test_the_command_that_is_shown_turns_the_memory_server_on(cli: Cli):
    (feature,) = (each for each in OPT_IN if not each.settings)
    program, *arguments = feature.turn_on.split()
    done = cli(*arguments, "--yes")

    assert (program, done.returncode) == ("kimi-proxy", 0)
    assert features(cli) == {each.name: each == feature for each in OPT_IN}


def test_a_built_in_server_that_runs_is_a_feature_that_is_on(cli: Cli):
    (cli.here / "config.toml").write_text("[mcp.servers.json-query]\nrun = true\n", "utf-8")

    assert features(cli) == {each.name: each.name == "built-in MCP servers" for each in OPT_IN}


def test_all_says_nothing_of_features_where_the_settings_are_refused(cli: Cli):
    (cli.here / "config.toml").write_text("[store]\nmax_bites = 1\n", "utf-8")
    done = cli("doctor", "--all", "--json")

    assert done.returncode == 2
    assert "optional" not in json.loads(done.stdout)

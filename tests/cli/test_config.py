"""What is in force and where it comes from; a file to begin with; the models that are known."""

import json
import socket
from pathlib import Path

import pytest
from tests.support.cli.serving import serving
from tests.support.planted import plant
from tests.support.processes import within

from kimi_proxy.core.errors import ConfigError
from kimi_proxy.services.background import running
from kimi_proxy.services.configuration import load

from .conftest import Cli


def settings_of(cli: Cli, **env: str) -> dict[str, tuple[object, str]]:
    ran = cli("config", "--json", env=env)
    assert ran.returncode == 0, ran.stderr
    return {each["setting"]: (each["value"], each["origin"]) for each in json.loads(ran.stdout)["settings"]}


def test_every_setting_is_shown_with_where_it_comes_from(cli: Cli):
    toml = '[store]\nmax_bytes = 5_000_000\n[providers.mine]\nbase_url = "http://x"\n'
    (cli.here / "config.toml").write_text(toml)
    (cli.here / ".env").write_text("export KIMI_PROXY_LOG_LEVEL='error'\n# a remark\nMCP_PRUNER_PORT=1\n")
    shown = settings_of(cli)

    assert shown["store.max_bytes"] == (5_000_000, "file, line 2")
    assert shown["proxy.port"] == (0, "KIMI_PROXY_PORT in the environment")
    assert shown["mcp_pruner.port"] == (0, "MCP_PRUNER_PORT in the environment")
    assert shown["log.level"][0] == "error"
    assert shown["log.level"][1].endswith("/here/.env")
    assert shown["mcp_pruner.host"] == ("127.0.0.1", "default")
    assert shown["providers.mine.base_url"] == ("http://x", "file, line 4")


def test_no_secret_is_shown(cli: Cli):
    ran = cli("config", env={"ANTHROPIC_API_KEY": "sk-ant-hush", "KIMI_PROXY_TOKEN": "a-token-of-ours"})

    assert b"hush" not in ran.stdout
    assert b"a-token-of-ours" not in ran.stdout
    assert b"on demand: anthropic (ANTHROPIC_API_KEY)" in ran.stdout
    assert b"no file; " in ran.stdout


def test_a_file_to_begin_with_switches_on_what_has_a_key_and_is_accepted(cli: Cli):
    ran = cli("config", "init", "--yes", env={"MOONSHOT_API_KEY": "sk-1"})
    file = Path(ran.stdout.decode().strip())
    text = file.read_text()

    assert file == Path(cli.env["HOME"]) / ".config" / "kimi-proxy" / "config.toml"
    assert '[providers.kimi]\napi_key = "${MOONSHOT_API_KEY}"\n' in text
    assert "#[mcp_pruner]" in text
    config = load({**cli.env, "KIMI_PROXY_CONFIG": str(file), "MOONSHOT_API_KEY": "sk-1"}).config
    assert config.providers["kimi"].enabled
    assert cli("config", "init", "--yes").returncode == 78
    assert file.read_text() == text


def test_without_an_answer_no_provider_is_switched_on(cli: Cli):
    target = cli.here / "mine.toml"
    ran = cli("config", "init", "--config", str(target), env={"OPENAI_API_KEY": "sk-1"})

    assert b"OPENAI_API_KEY is set: --yes turns openai on" in ran.stderr
    assert "\n[providers." not in target.read_text()


def test_start_sh_names_its_folder_and_the_current_one_is_not_read_then(tmp_path: Path):
    own, project = tmp_path / "own", tmp_path / "project"
    own.mkdir()
    project.mkdir()
    (project / "config.toml").write_text("[log]\nlevel = 'error'\n")
    env = {"HOME": str(tmp_path), "KIMI_PROXY_HOME": str(tmp_path), "KIMI_PROXY_FOLDER": str(own)}

    assert load(env, project).file is None
    assert load(env, project).place == own / "config.toml"
    (own / "config.toml").write_text("[log]\nlevel = 'debug'\n")
    (own / ".env").write_text('OPENAI_API_KEY="sk # 1" # mine\nKIMI_API_KEY=sk-2 # yours\n')
    loaded = load({**env, "KIMI_API_KEY": "sk-3"}, project)
    assert (loaded.file, loaded.config.log.level) == (own / "config.toml", "debug")
    assert loaded.from_env_file == ("OPENAI_API_KEY",)
    keys = {name: key.get_secret_value() for name, key in loaded.config.provider_keys.items()}
    assert keys == {"openai": "sk # 1", "kimi": "sk-3"}


def test_a_line_of_an_env_file_that_says_nothing_is_named(tmp_path: Path):
    (tmp_path / "config.toml").write_text("")
    (tmp_path / ".env").write_text("A=1\nnonsense\n")

    with pytest.raises(ConfigError, match=r"\.env, line 2: write NAME=value"):
        load({"HOME": str(tmp_path), "KIMI_PROXY_HOME": str(tmp_path)}, tmp_path)


def test_models_are_listed_with_their_source_and_age(cli: Cli):
    ran = cli("models", "claude-opus-5-5")

    assert ran.stdout.startswith(b"anthropic/claude-opus-5-5 ")
    assert b"1,000,000  4 0.2 20 " in ran.stdout
    assert b"platform.claude.com" in ran.stdout
    listed = json.loads(cli("models", "--json").stdout)["models"]
    assert len(listed) > 250
    assert {"provider", "name", "window", "checked", "source"} <= set(listed[0])


def test_models_that_the_running_proxy_offers_are_listed(cli: Cli):
    (cli.here / "config.toml").write_text(
        '[providers.local]\ntype = "openai"\nbase_url = "http://127.0.0.1:9"\n'
        '[models."local/small"]\nprovider = "local"\n[models."local/large"]\nprovider = "local"\n'
    )
    ports = {"KIMI_PROXY_PORT": "0", "MCP_PRUNER_PORT": "0"}
    there = Cli(cli.here, {**cli.env, **ports})
    without = there("models", "--offered")
    with serving(there, "start", name="proxy"):
        every = json.loads(there("models", "--offered", "--json").stdout)["models"]
        some = there("models", "--offered", "LARGE")

    assert (without.returncode, b"the proxy is not running: start it with kimi-proxy start" in without.stderr) == (
        2,
        True,
    )
    assert every == ["local/small", "local/large"]
    assert some.stdout == b"local/large\n"


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ("[mcp_pruner]\nhost = '127.0.0.1'\nprot = 1", r"mcp_pruner.prot \(line 3\): .*did you mean port\?"),
        ("[providers.kimi]\nbaseurl = 'x'", r"providers.kimi.baseurl \(line 2\): .*did you mean base_url\?"),
        ("[sanitizer]\nbudget_ms = 'x'", r"sanitizer.budget_ms \(line 2\)"),
        ("[unheard]\nx = 1", "setting unheard.*: there is no such setting"),
    ],
)
def test_a_setting_that_is_refused_is_named_with_its_line(tmp_path: Path, toml: str, named: str):
    (tmp_path / "config.toml").write_text(toml)

    with pytest.raises(ConfigError, match=named):
        load({"HOME": str(tmp_path), "KIMI_PROXY_HOME": str(tmp_path)}, tmp_path)


def test_a_database_is_shown_without_its_password(cli: Cli):
    shown = settings_of(cli, KIMI_PROXY_DATABASE_URL="postgresql://me:hunter2@db/x?password=hunter2")

    assert shown["store.url"] == ("postgresql://db/…", "KIMI_PROXY_DATABASE_URL in the environment")


def test_commands_that_ask_no_provider_need_no_key(cli: Cli):
    """`config init` writes ${ANTHROPIC_API_KEY}; without it in a terminal, nothing but the servers ran there."""
    (cli.here / "config.toml").write_text('[providers.anthropic]\napi_key = "${ANTHROPIC_API_KEY}"\n')
    codes = {
        command: cli(*command.split()).returncode
        for command in ("config", "memory show", "mcp status", "compress day-1", "team list", "doctor", "start")
    }

    assert codes == {
        "config": 0,
        "memory show": 0,
        "mcp status": 3,
        "compress day-1": 3,
        "team list": 0,
        "doctor": 1,
        "start": 78,
    }
    told = cli("doctor").stdout.decode()
    assert "providers.anthropic.api_key: the environment variable ANTHROPIC_API_KEY is not set" in told


def test_commands_read_the_file_of_the_server_that_runs(cli: Cli, tmp_path: Path):
    """With [team] in ./config.toml, start obeyed, and every team command from elsewhere said that it is off."""
    (cli.here / "config.toml").write_text("[team]\nenabled = true\n")
    elsewhere = Cli(tmp_path / "elsewhere", cli.env)
    elsewhere.here.mkdir()
    off = b"team mode is off"
    before = elsewhere("team", "list").stderr
    with serving(cli, "start"):
        assert within(60, lambda: running(Path(cli.env["KIMI_PROXY_HOME"])) is not None)
        told = [elsewhere(*command).stdout.decode() for command in (("config",), ("doctor",))]
        team = elsewhere("team", "list")

    assert off in before
    assert off not in team.stderr
    assert all(str(cli.here / "config.toml") in each for each in told)
    assert off not in cli("team", "list").stderr


def test_a_server_that_listens_elsewhere_by_an_option_is_found(cli: Cli):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with serving(cli, "start", "--port", str(port)):
        assert within(60, lambda: running(Path(cli.env["KIMI_PROXY_HOME"])) is not None)
        shown = cli("mcp", "status")
        client = cli("init", "claude", "--proxy", "--yes", env={"KIMI_PROXY_PORT": "8000"})

    assert shown.returncode == 0, shown.stderr
    assert f"http://127.0.0.1:{port}".encode() in client.stdout


def test_a_lone_env_file_is_not_ignored_without_a_word(cli: Cli):
    (cli.here / ".env").write_text("OPENAI_API_KEY=sk-1\n")
    told = [cli(command).stdout.decode() for command in ("config", "doctor")]
    (cli.here / "config.toml").write_text("")

    assert all(f"{cli.here / '.env'}" in each for each in told)
    assert "not read" in told[0]
    assert "not read" not in cli("config").stdout.decode()


def test_no_command_that_reads_the_settings_prints_a_password(cli: Cli, tmp_path: Path):
    garden, _ = plant(tmp_path)
    said = {}
    for command in ("config", "config --json", "doctor --json", "status --json", "mcp status"):
        done = cli(*command.split(), env=garden.env)
        said[command] = (done.stdout + done.stderr).decode()

    assert {command: found for command, text in said.items() if (found := garden.passwords_in(text))} == {}
    assert "record.dir" in garden.found_in(said["config"])
    assert "http://127.77.1.100:9/…" in said["config"]


@pytest.mark.parametrize("name", ["config.toml", ".env"])
def test_a_configuration_of_a_hundred_megabytes_is_refused_at_once(cli: Cli, name: str):
    (cli.here / "config.toml").touch()
    with (cli.here / name).open("wb") as written:
        written.truncate(100 * 1024**2)

    ran = cli("config")

    assert ran.returncode != 0
    assert "has over 16777216 bytes" in ran.stderr.decode()

"""The settings of the MCP servers behind the gateway."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from kimi_proxy.core.addresses import Address
from kimi_proxy.core.config import Config, parse
from kimi_proxy.core.errors import ConfigError


def config(toml: str, **env: str) -> Config:
    return parse(toml, env, Path("/nowhere"))


def test_the_known_servers_have_their_ports():
    servers = config("").mcp.servers

    assert {name: server.url.get_secret_value() for name, server in servers.items()} == {
        "sequential-thinking": "http://127.0.0.1:8003/rpc",
        "fast-filesystem": "http://127.0.0.1:8004/rpc",
        "json-query": "http://127.0.0.1:8005/rpc",
        "pruner": "http://127.0.0.1:8006/rpc",
        "shrimp-task-manager": "http://127.0.0.1:8007/rpc",
        "task-master": "",
    }


def test_nothing_is_run_before_somebody_says_so():
    mcp = config("").mcp

    assert (mcp.run, "task-master" in mcp.names) == ((), False)


@pytest.mark.parametrize(
    ("name", "switch", "package"),
    [
        ("sequential-thinking", "run", "@modelcontextprotocol/server-sequential-thinking@2026.8.31"),
        ("fast-filesystem", "run", "fast-filesystem-mcp@3.5.2"),
        ("json-query", "run", "mcp-json@1.0.0"),
        ("shrimp-task-manager", "run", "mcp-shrimp-task-manager@1.0.21"),
        ("task-master", "enabled", "task-master-ai@0.43.1"),
    ],
)
def test_one_line_has_a_known_server_run(name: str, switch: str, package: str):
    mcp = config(f'[mcp.servers.{name}]\n{switch} = true\nroot = "/srv/project"\n').mcp
    server = mcp.servers[name]

    assert mcp.run == (name,)
    assert (server.way, server.url, server.command) == ("stdio", Address(""), "npx")
    assert server.args == (SecretStr("-y"), SecretStr(package))


@pytest.mark.parametrize(("root", "runs"), [("", False), ("/srv/project", True), ("/", True)])
def test_a_server_that_writes_files_is_not_run_before_a_folder_is_named(root: str, runs: bool):
    mcp = config(f'[mcp.servers.fast-filesystem]\nrun = true\nroot = "{root}"\n').mcp

    assert mcp.run == (("fast-filesystem",) if runs else ())
    assert mcp.without_root == (() if runs else ("fast-filesystem",))


def test_a_root_may_begin_in_the_home_folder():
    server = config('[mcp.servers.fast-filesystem]\nrun = true\nroot = "~/project"\n').mcp.servers["fast-filesystem"]

    assert server.folder == Path.home() / "project"
    assert server.arguments[-2:] == ("--allow", str(Path.home() / "project"))


def test_task_master_offers_its_standard_tools():
    env = config("[mcp.servers.task-master]\nenabled = true\n").mcp.servers["task-master"].env

    assert {name: value.get_secret_value() for name, value in env.items()} == {"TASK_MASTER_TOOLS": "standard"}


def test_a_copy_of_the_example_needs_no_more_than_that_line():
    example = (Path(__file__).parents[3] / "config.example.toml").read_text("utf-8")
    server = config(example.replace("run = false ", "run = true ", 1)).mcp.servers["fast-filesystem"]

    assert (server.is_run, server.way) == (True, "stdio")


def test_another_address_for_a_known_server_is_all_that_counts():
    server = config('[mcp.servers.json-query]\nurl = "http://127.0.0.1:1/mcp"\n').mcp.servers["json-query"]

    assert (server.way, server.command, server.start_timeout_s) == ("streamable", "", 30)


def test_a_server_with_an_address_and_a_command_is_run_and_spoken_to_there():
    mcp = config('[mcp.servers.x]\nurl = "http://127.0.0.1:1/mcp"\ncommand = "serve"\n').mcp

    assert (mcp.run, mcp.servers["x"].way) == (("x",), "streamable")


def test_the_pruner_has_an_alias_and_its_answers_are_never_masked():
    mcp = config("").mcp

    assert mcp.switched_on()["mcp-pruner"] is mcp.switched_on()["pruner"]
    assert mcp.servers["pruner"].masking.enabled is False


def test_the_pruner_may_be_configured_by_its_alias():
    mcp = config("[mcp.servers.mcp-pruner]\ntimeout_s = 3\n").mcp

    assert mcp.servers["pruner"].timeout_s == 3
    assert "mcp-pruner" not in mcp.servers


def test_one_server_under_both_of_its_names_is_refused():
    with pytest.raises(ConfigError, match="mcp-pruner is an alias of pruner"):
        config("[mcp.servers.mcp-pruner]\ntimeout_s = 3\n[mcp.servers.pruner]\ntimeout_s = 4\n")


def test_an_address_without_a_host_is_refused():
    with pytest.raises(ConfigError, match="name a host"):
        config('[mcp.servers.x]\nurl = "http:///rpc"')


def test_a_known_server_changes_only_in_the_keys_that_the_file_names():
    mcp = config("[mcp.servers.pruner]\ntimeout_s = 3\n[mcp.servers.pruner.masking]\nmax_chars = 10\n").mcp
    pruner = mcp.servers["pruner"]

    assert (pruner.url, pruner.timeout_s) == (Address("http://127.0.0.1:8006/rpc"), 3)
    assert (pruner.masking.enabled, pruner.masking.max_chars) == (False, 10)


def test_a_command_takes_the_place_of_a_known_address():
    server = config('[mcp.servers.json-query]\ncommand = "mcp-json"\n').mcp.servers["json-query"]

    assert (server.url, server.way) == (Address(""), "stdio")


def test_a_server_that_is_switched_off_is_not_found():
    assert config("[mcp.servers.json-query]\nenabled = false\n").mcp.switched_on().get("json-query") is None


@pytest.mark.parametrize(
    ("line", "way"),
    [
        ('url = "http://127.0.0.1:1/rpc"', "plain"),
        ('url = "http://127.0.0.1:1/rpc/"', "plain"),
        ('url = "http://127.0.0.1:1/mcp"', "streamable"),
        ('url = "http://127.0.0.1:1"', "streamable"),
        ('url = "http://127.0.0.1:1/mcp"\ntransport = "plain"', "plain"),
        ('command = "node"', "stdio"),
    ],
)
def test_the_way_to_speak_follows_from_the_address(line: str, way: str):
    assert config(f"[mcp.servers.x]\n{line}\n").mcp.servers["x"].way == way


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ("[mcp.servers.x]\n", "give a url, or a command to run"),
        ('[mcp.servers.x]\ncommand = "b"\nrun = false\n', "give a url, or a command to run"),
        ('[mcp.servers.x]\nurl = "file:///etc/passwd"\n', "http://"),
        ('[mcp.servers.x]\nurl = "http://a"\ntransport = "stdio"\n', "stdio needs a command"),
        ('[mcp.servers."a/b"]\nurl = "http://a"\n', "not a server's name"),
        ('[mcp.servers.x]\nurl = "http://a"\ntimeout = 3\n', "mcp.servers.x.timeout"),
        ('[mcp.servers.x]\ncommand = "a"\nenv = { GITHUB_TOKEN = "t" }\n', "environment only"),
        ("[mcp]\nservers = 3\n", "mcp.servers"),
        ("[mcp.servers]\nx = 3\n", "mcp.servers.x"),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(toml: str, problem: str):
    with pytest.raises(ConfigError, match=problem):
        config(toml)


def test_the_environment_says_where_the_proxy_listens():
    proxy = config("", KIMI_PROXY_HOST="::1", KIMI_PROXY_PORT="9").proxy

    assert (proxy.host, proxy.port) == ("::1", 9)

"""The settings of the MCP servers behind the gateway."""

from pathlib import Path

import pytest

from kimi_proxy.core.config import Config, parse
from kimi_proxy.core.errors import ConfigError


def config(toml: str, **env: str) -> Config:
    return parse(toml, env, Path("/nowhere"))


def test_the_known_servers_have_their_ports():
    servers = config("").mcp.servers

    assert {name: server.url for name, server in servers.items()} == {
        "sequential-thinking": "http://127.0.0.1:8003/rpc",
        "fast-filesystem": "http://127.0.0.1:8004/rpc",
        "json-query": "http://127.0.0.1:8005/rpc",
        "pruner": "http://127.0.0.1:8006/rpc",
        "shrimp-task-manager": "http://127.0.0.1:8007/rpc",
    }


def test_the_pruner_has_an_alias_and_its_answers_are_never_masked():
    mcp = config("").mcp

    assert mcp.server("mcp-pruner") is mcp.server("pruner")
    assert mcp.servers["pruner"].masking.enabled is False


def test_a_known_server_changes_only_in_the_keys_that_the_file_names():
    mcp = config("[mcp.servers.pruner]\ntimeout_s = 3\n[mcp.servers.pruner.masking]\nmax_chars = 10\n").mcp
    pruner = mcp.servers["pruner"]

    assert (pruner.url, pruner.timeout_s) == ("http://127.0.0.1:8006/rpc", 3)
    assert (pruner.masking.enabled, pruner.masking.max_chars) == (False, 10)


def test_a_command_takes_the_place_of_a_known_address():
    server = config('[mcp.servers.json-query]\ncommand = "mcp-json"\n').mcp.servers["json-query"]

    assert (server.url, server.way) == ("", "stdio")


def test_a_server_that_is_switched_off_is_not_found():
    assert config("[mcp.servers.json-query]\nenabled = false\n").mcp.server("json-query") is None


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
        ("[mcp.servers.x]\n", "either url or command"),
        ('[mcp.servers.x]\nurl = "http://a"\ncommand = "b"\n', "either url or command"),
        ('[mcp.servers.x]\nurl = "file:///etc/passwd"\n', "http://"),
        ('[mcp.servers.x]\nurl = "http://a"\ntransport = "stdio"\n', "stdio goes with command"),
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
    assert config("", KIMI_PROXY_HOST="::1", KIMI_PROXY_PORT="9").proxy.model_dump() == {"host": "::1", "port": 9}

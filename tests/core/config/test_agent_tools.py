"""The settings of the agent tools, under the names that their users know."""

from pathlib import Path

import pytest

from kimi_proxy.core.addresses import Address
from kimi_proxy.core.config import parse
from kimi_proxy.core.config.sections import ToolSettings
from kimi_proxy.core.errors import ConfigError

HOME = Path("/home/me/.kimi-proxy")


def tools(env: dict[str, str], toml: str = "") -> ToolSettings:
    return parse(toml, env, HOME).tools


def test_with_nothing_said_the_tools_are_on_and_prune_here():
    assert tools({}) == ToolSettings()
    assert (ToolSettings().enabled, bool(ToolSettings().pruner_endpoint), ToolSettings().bash_over_http) == (
        True,
        False,
        False,
    )


@pytest.mark.parametrize(
    ("said", "meant"), [("false", False), ("0", False), ("OFF", False), ("true", True), ("1", True), (" Yes ", True)]
)
def test_the_switch_understands_yes_and_no(said: str, meant: bool):
    assert tools({"JEEVES_MCP_PRUNER_ENABLED": said}).enabled is meant


@pytest.mark.parametrize(
    ("variable", "value", "wanted"),
    [
        ("JEEVES_MCP_PRUNER_ENABLED", "perhaps", "true or false"),
        ("PRUNER_TIMEOUT_MS", "soon", "a whole number"),
        ("JEEVES_PRUNER_ENDPOINT", "ftp://here/prune", "http"),
        ("PRUNER_URL", "localhost:8000", "http"),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_name(variable: str, value: str, wanted: str):
    with pytest.raises(ConfigError, match=wanted):
        tools({variable: value})


def test_the_endpoint_has_an_alias_that_loses_to_its_name():
    url, alias = "http://127.0.0.1:1/prune", "http://127.0.0.1:2"

    assert tools({"PRUNER_URL": alias}).pruner_endpoint == Address(alias)
    assert tools({"PRUNER_URL": alias, "JEEVES_PRUNER_ENDPOINT": url}).pruner_endpoint == Address(url)


def test_the_working_directory_and_the_time_limit_come_from_the_environment():
    found = tools({"MCP_PRUNER_CWD": "/project", "PRUNER_TIMEOUT_MS": "700"}, '[tools]\ncwd = "/elsewhere"')

    assert (found.cwd, found.pruner_timeout_ms) == ("/project", 700)

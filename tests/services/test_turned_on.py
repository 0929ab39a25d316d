"""Built-in MCP servers that a command turned on, without a change of the settings file."""

from pathlib import Path

import pytest

from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import ConfigError
from kimi_proxy.services import turned_on


def test_what_was_turned_on_runs_in_its_folder_until_it_is_forgotten(tmp_path: Path):
    turned_on.remember(tmp_path, ["fast-filesystem"], tmp_path / "project")
    turned_on.remember(tmp_path, ["json-query", "no-such"], tmp_path / "other")
    config = turned_on.with_turned_on(parse("", {}, tmp_path))

    assert config.mcp.run == ("fast-filesystem", "json-query")
    assert config.mcp.servers["fast-filesystem"].root == str(tmp_path / "project")
    assert config.mcp.servers["json-query"].root == ""
    assert turned_on.forget(tmp_path, ["fast-filesystem"]) == ["fast-filesystem"]
    assert turned_on.with_turned_on(parse("", {}, tmp_path)).mcp.run == ("json-query",)
    assert turned_on.forget(tmp_path, []) == ["json-query", "no-such"]
    assert turned_on.with_turned_on(parse("", {}, tmp_path)).mcp.run == ()


def test_a_server_of_the_file_stays_as_the_file_says(tmp_path: Path):
    turned_on.remember(tmp_path, ["fast-filesystem"], tmp_path)
    config = parse("[mcp.servers.fast-filesystem]\nenabled = false\n", {}, tmp_path)

    assert turned_on.with_turned_on(config).mcp.run == ()


def test_a_damaged_file_is_named(tmp_path: Path):
    turned_on.file_in(tmp_path).write_text("{")

    with pytest.raises(ConfigError, match=r"mcp-servers\.json"):
        turned_on.read(tmp_path)

"""The page of features: every test and every switch that it names exists, with the default that it shows."""

import ast
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
import pytest
from pydantic import SecretStr
from tests.support.checkout import ROOT

from kimi_proxy.cli import app as cli
from kimi_proxy.core.config import FileSettings, parse
from kimi_proxy.core.config.environment import VARIABLES
from kimi_proxy.core.config.opt_in import OPT_IN

ROW = re.compile(r"^\| \[(.+?)\]\((.+?)\) \| (.+?) \| (.+?) \| (.+) \|$", re.M)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
# A table whose name the user chooses, and what it needs to be one.
NAMED = {"providers": 'base_url = "http://127.0.0.1"', "servers": 'url = "http://127.0.0.1"', "budgets": "requests = 1"}


@dataclass(frozen=True)
class Row:
    feature: str
    switch: str
    tests: tuple[tuple[str, str], ...]


def rows() -> list[Row]:
    page = (ROOT / "docs" / "systems.md").read_text("utf-8")
    return [Row(name, switch, tuple(TEST.findall(tests))) for name, _, _, switch, tests in ROW.findall(page)]


@cache
def functions_in(path: Path) -> frozenset[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, kinds))


def test_every_row_is_read():
    page = (ROOT / "docs" / "systems.md").read_text("utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| feature")]

    assert len(rows()) == len(lines) > 40


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.feature)
def test_every_feature_names_a_test_that_exists(row: Row):
    assert row.tests
    assert [(file, name) for file, name in row.tests if name not in functions_in(ROOT / file)] == []


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.feature)
def test_every_switch_exists_with_the_default_that_is_shown(row: Row):
    if row.switch == "always on":
        return
    shown = row.switch.strip("`")
    if shown.startswith("kimi-proxy "):
        assert is_command(shown)
    elif not shown.startswith("["):
        assert shown in VARIABLES
    else:
        assert default_of(shown) == shown_value(shown)


def is_command(line: str) -> bool:
    """Whether the command line names a command of ours, and options that it has."""
    _, first, *rest = line.split()
    command = cli.get_command(click.Context(cli), first)
    while isinstance(command, click.Group) and rest:
        command = command.get_command(click.Context(command), rest.pop(0))
    options = {option for param in command.params for option in param.opts} if command else set()
    return command is not None and {word for word in rest if word.startswith("-")} <= options


def shown_value(shown: str) -> object:
    _, _, value = shown.partition(" = ")
    return tomllib.loads(f"value = {value}")["value"]


def default_of(shown: str) -> object:
    """The value of a setting, as a user has it who writes only what its table needs."""
    table, _, line = shown.partition("] ")
    path = table.strip("[").split(".")
    key = line.partition(" = ")[0]
    config = FileSettings()
    if "NAME" in path:
        parent = path[path.index("NAME") - 1]
        head = ".".join(path[: path.index("NAME") + 1])
        config = parse(f"[{head}]\n{NAMED[parent]}\n", {}, ROOT)
    value: object = config
    for name in (*path, key):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return list(value) if isinstance(value, tuple) else value


def test_every_feature_that_is_off_by_default_is_on_the_page():
    switches = [row.switch.strip("`") for row in rows()]

    for feature in OPT_IN:
        named = {name.rpartition(".")[::2] for name in feature.settings}
        is_command = feature.turn_on.startswith("kimi-proxy ")
        wanted = [feature.turn_on] if is_command else [f"[{section}] {key} = " for section, key in named]
        assert any(switch.startswith(tuple(wanted)) for switch in switches), feature.name

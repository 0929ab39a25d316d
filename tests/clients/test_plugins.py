"""The plugins, validated and installed by the real programs."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path
from subprocess import DEVNULL

import pytest
from tests.cli.conftest import Cli
from tests.support.cli.serving import serving
from tests.support.clients import agents
from tests.support.clients.fake_llm import fake_llm
from tests.support.clients.servers import INSTALL_S, QUICKLY, ROOT, installed
from tests.support.deep import deep

from kimi_proxy import __version__
from kimi_proxy.connect.hooks import claude_items, plugin_items

PLUGINS = ROOT / "plugins"
CLAUDE, CODEX, DESKTOP = PLUGINS / "claude-code", PLUGINS / "codex", PLUGINS / "desktop"
MANIFESTS = (CLAUDE / ".claude-plugin/plugin.json", CODEX / ".codex-plugin/plugin.json", DESKTOP / "manifest.json")
MCPB = "@anthropic-ai/mcpb@2.1.2"


def run(command: list[str], home: Path, cwd: Path = ROOT) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home / ".codex")}
    (home / ".codex").mkdir(exist_ok=True)
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def checkout(folder: Path) -> Path:
    """What a marketplace is made of, without the rest of the repository."""
    for name in (".claude-plugin", ".agents", "plugins"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.parts[-3])
def test_a_plugin_has_the_version_of_the_package(path: Path):
    assert json.loads(path.read_text())["version"] == __version__


def test_the_bundle_asks_for_the_version_of_the_package():
    project = tomllib.loads((DESKTOP / "pyproject.toml").read_text())["project"]

    assert (project["version"], project["dependencies"]) == (__version__, [f"kimi-proxy=={__version__}"])


def test_the_hooks_are_those_that_init_writes_and_the_one_that_grants_the_plugin_s_recall_tool():
    written = json.loads((CLAUDE / "hooks" / "hooks.json").read_text())["hooks"]

    assert written == {path[-1]: [item] for path, item in plugin_items("http://127.0.0.1:8000").items()}
    assert {path[-1] for path in claude_items("http://127.0.0.1:8000", False)} == set(written) - {"PreToolUse"}


def test_both_plugins_teach_the_same_skill():
    skill = Path("skills/read-with-a-question/SKILL.md")

    assert (CLAUDE / skill).read_text() == (CODEX / skill).read_text()


@deep("test_codex_installs_the_plugin_and_its_server always runs")
def test_claude_code_accepts_the_marketplace_and_installs_the_plugin(tmp_path: Path):
    claude, market = agents.claude(), checkout(tmp_path / "market")
    for path in (market, market / "plugins" / "claude-code"):
        assert "Validation passed" in run([claude, "plugin", "validate", "--strict", str(path)], tmp_path)
    run([claude, "plugin", "marketplace", "add", str(market)], tmp_path)
    run([claude, "plugin", "install", "kimi-proxy@kimi-proxy"], tmp_path)

    (found,) = json.loads(run([claude, "plugin", "list", "--json"], tmp_path))
    assert (found["id"], found["version"], found["enabled"]) == ("kimi-proxy@kimi-proxy", __version__, True)


@deep("the real Claude Code; the commands that it runs are tested in tests/cli")
@pytest.mark.parametrize("runs", [True, False], ids=["running", "not running"])
def test_kimi_status_shows_the_model_what_the_commands_print(runs: bool, tmp_path: Path):
    market, project = checkout(tmp_path / "market"), tmp_path / "project"
    project.mkdir()
    cli = Cli(project, _environment(tmp_path, pruner_port="0" if runs else "9"))
    run([agents.claude(), "plugin", "marketplace", "add", str(market)], tmp_path)
    run([agents.claude(), "plugin", "install", "kimi-proxy@kimi-proxy"], tmp_path)
    server = serving(cli, "start", name="proxy") if runs else nullcontext()
    with fake_llm(lambda answers: "it is well", native=True) as llm, server:
        command = [agents.claude(), "-p", "/kimi-proxy:kimi-status", "--output-format", "json"]
        env = {**cli.env, "ANTHROPIC_BASE_URL": llm.url}
        done = subprocess.run(command, cwd=project, env=env, stdin=DEVNULL, capture_output=True, text=True, timeout=200)

    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["result"] == "it is well"
    said = llm.asked[0].partition("kimi-proxy says of itself:")[2].partition("Sum this up")[0]
    assert ("running: mcp-pruner" if runs else "not running: no response on http://127.0.0.1:9") in said
    assert "ok, 0 originals" in said
    assert "no requests" in said


def _environment(home: Path, pruner_port: str) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "KIMI_PROXY_HOME": str(home / "state"),
        "KIMI_PROXY_PORT": "0",
        "MCP_PRUNER_PORT": pruner_port,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def test_codex_installs_the_plugin_and_its_server(tmp_path: Path):
    codex, market = agents.codex(), checkout(tmp_path / "market")
    run([codex, "plugin", "marketplace", "add", str(market)], tmp_path)
    run([codex, "plugin", "add", "kimi-proxy@kimi-proxy"], tmp_path)

    servers = json.loads(run([codex, "mcp", "list", "--json"], tmp_path))
    assert [(one["name"], one["enabled"], one["transport"]["args"]) for one in servers] == [
        ("pruner", True, ["tools", "--stdio"])
    ]


def test_the_bundle_is_valid_and_holds_what_it_needs(tmp_path: Path):
    mcpb = str(installed("mcpb-2.1.2", _install_mcpb) / "node_modules" / ".bin" / "mcpb")
    run([mcpb, "validate", str(DESKTOP / "manifest.json")], tmp_path)
    run([mcpb, "pack", str(DESKTOP), str(tmp_path / "kimi-proxy.mcpb")], tmp_path)
    shutil.unpack_archive(tmp_path / "kimi-proxy.mcpb", tmp_path / "unpacked", "zip")

    assert {path.name for path in (tmp_path / "unpacked").iterdir()} == {"manifest.json", "pyproject.toml", "server.py"}


def _install_mcpb(place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("there is no npm")
    command = [npm, "install", *QUICKLY, "--prefix", str(place), MCPB]
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S)

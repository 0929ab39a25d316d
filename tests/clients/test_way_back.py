"""Claude Code itself, connected by our own commands, in its default permission mode: cut text is read back unasked.

The commands are those that a person types, from `kimi-proxy start` on. No tool is granted by hand.
"""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.clients.programs.job import DONE, LOG
from tests.clients.programs.recalling import Recaller
from tests.support.api.proxy_world import proxy
from tests.support.api.pruner_world import pruner
from tests.support.clients import agents, terminal
from tests.support.clients.servers import INSTALL_S, ROOT
from tests.support.deep import deep
from tests.support.evil import evil

from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.agent_hooks import TIMEOUT_S

pytestmark = pytest.mark.timeout(INSTALL_S + 600)

KIMI_PROXY = str(Path(sys.executable).with_name("kimi-proxy"))
# The default policy spares a file that was printed: an agent may be about to quote it.
SETTINGS = '[sanitizer]\nbudget_ms = 60000\npolicy = "deep"\n[hooks]\nbudget_ms = 10000\n'


def bash(command: str) -> tuple[str, JsonObject]:
    return "Bash", {"command": command, "description": "one step"}


@dataclass(frozen=True, slots=True)
class Desk:
    """A project and a home of somebody who is here for the first time, and a model that reads back."""

    folder: Path
    model: Recaller
    provider: str
    env: dict[str, str]

    async def type(self, *command: str, **env: str) -> str:
        return await agents.run(self.folder / "home", self.folder / "project", *command, **{**self.env, **env})

    def settle_in(self) -> None:
        """Answer what Claude Code asks a person at its first start in a terminal."""
        known = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": [self.env["ANTHROPIC_API_KEY"][-20:]], "rejected": []},
            "projects": {str(self.folder / "project"): {"hasTrustDialogAccepted": True}},
        }
        (self.folder / "home" / ".claude.json").write_text(json.dumps(known))

    async def ask_claude(self, *before: str, **env: str) -> None:
        asked = (agents.claude(), "-p", LOG.goal, "--output-format", "json")
        assert json.loads(await self.type(*before, *asked, **env))["result"] == DONE


@asynccontextmanager
async def desk(folder: Path, recalls: int = 3) -> AsyncIterator[Desk]:
    for name in ("home", "project"):
        (folder / name).mkdir()
    (folder / "project" / "app.log").write_text(LOG.text)
    state, model = folder / "state", Recaller(bash, recalls=recalls)
    with pruner(state) as pruner_port:
        async with (
            evil(model) as provider,
            proxy(state, provider.toml("anthropic") + SETTINGS) as p,
        ):
            await p.runtime.pruner.warm()
            env = {
                "KIMI_PROXY_HOME": str(state),
                "KIMI_PROXY_PORT": str(p.port),
                "MCP_PRUNER_PORT": str(pruner_port),
                "ANTHROPIC_API_KEY": "sk-of-the-client",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            }
            yield Desk(folder, model, provider.url.removesuffix("/v1"), env)


def check(model: Recaller, tool: str) -> None:
    """Every recall was answered, by this tool, and nothing else of ours may be called."""
    assert len(model.printed) < len(LOG.text) / 2, "it was cut"
    assert model.called == [tool] * 3
    assert model.read_back == [True] * 3, model.answers
    assert model.granted == []


def patient(settings: Path) -> None:
    """Let hooks wait: a busy machine may need longer than the time for which agents do."""
    settings.write_text(settings.read_text().replace(f'"timeout": {TIMEOUT_S}', '"timeout": 60'))


async def test_claude_code_in_a_run_through_the_proxy_reads_back_unasked(tmp_path: Path):
    async with desk(tmp_path) as here:
        await here.ask_claude(KIMI_PROXY, "run", "--proxy")

    check(here.model, "mcp__kimi-proxy__recover_text")


async def test_claude_code_with_hooks_reads_back_unasked(tmp_path: Path):
    async with desk(tmp_path) as here:
        await here.type(KIMI_PROXY, "init", "claude", "--hooks", "--yes")
        patient(tmp_path / "home" / ".claude" / "settings.json")
        await here.ask_claude(ANTHROPIC_BASE_URL=here.provider)

    check(here.model, "mcp__pruner__recover_text")


@deep("the real Claude Code in further setups; the usual one always runs")
@pytest.mark.parametrize("others", [(), ("--hooks",), ("--tools", "--user"), ("--user",), ("--tools", "--project")])
async def test_claude_code_behind_the_proxy_reads_back_unasked_whatever_else_is_set_up(
    tmp_path: Path, others: tuple[str, ...]
):
    async with desk(tmp_path) as here:
        await here.type(KIMI_PROXY, "init", "claude", "--proxy", "--yes")
        if others:
            await here.type(KIMI_PROXY, "init", "claude", *others, "--yes")
            patient(tmp_path / "home" / ".claude" / "settings.json")
        await here.ask_claude()

    is_eager = {"--hooks", "--tools"} & set(others)
    check(here.model, "mcp__pruner__recover_text" if is_eager else "recover_text")


@deep("the real Claude Code in further setups; the usual one always runs")
@pytest.mark.parametrize("way", ["run", "hooks"])
async def test_claude_code_in_a_terminal_reads_back_unasked(tmp_path: Path, way: str):
    """It would wait for a click: nobody is there to give one."""
    claude = await asyncio.to_thread(agents.claude)
    async with desk(tmp_path) as here:
        here.model.tries_others = False
        here.settle_in()
        before: tuple[str, ...] = (KIMI_PROXY, "run", "--proxy")
        env = here.env
        if way == "hooks":
            await here.type(KIMI_PROXY, "init", "claude", "--hooks", "--yes")
            patient(tmp_path / "home" / ".claude" / "settings.json")
            before = ()
            env = {**env, "ANTHROPIC_BASE_URL": here.provider}
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), **env}
        shown = await terminal.watch(
            (*before, claude, LOG.goal), tmp_path / "project", env, lambda shown: len(here.model.recalled) == 3
        )

    assert here.model.read_back == [True] * 3, shown[-3000:]
    check(here.model, "mcp__pruner__recover_text" if way == "hooks" else "mcp__kimi-proxy__recover_text")


@deep("the real Claude Code in further setups; the usual one always runs")
async def test_claude_code_with_our_plugin_reads_back_unasked(tmp_path: Path):
    """Its server is found by the name of our command; a plugin's hooks cannot be told an address, so the copy is."""
    async with desk(tmp_path) as here:
        plugin = tmp_path / "plugin"
        shutil.copytree(ROOT / "plugins" / "claude-code", plugin)
        hooks = plugin / "hooks" / "hooks.json"
        hooks.write_text(hooks.read_text().replace("127.0.0.1:8000", f"127.0.0.1:{here.env['KIMI_PROXY_PORT']}"))
        hooks.write_text(hooks.read_text().replace(f'"timeout": {TIMEOUT_S}', '"timeout": 60'))
        path = f"{Path(KIMI_PROXY).parent}:{os.environ['PATH']}"
        asked = (agents.claude(), "--plugin-dir", str(plugin), "-p", LOG.goal, "--output-format", "json")
        said = await here.type(*asked, ANTHROPIC_BASE_URL=here.provider, PATH=path)

    assert json.loads(said)["result"] == DONE
    check(here.model, "mcp__plugin_kimi-proxy_pruner__recover_text")

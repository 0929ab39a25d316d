"""Agents themselves, in their default permission mode and without a terminal: cut text is read back unasked.

Flags allow an agent its own shell, and no tool of ours. Claude Code's ways are in tests/clients/test_way_back.py. Run
by ./test.sh --deep, because it installs ten agents.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.clients.programs.agents import AGENTS, AgentCase, Command, Place
from tests.clients.programs.job import LOG
from tests.clients.programs.packages import INSTALL_S
from tests.clients.programs.recalling import Recaller
from tests.clients.programs.running import PATIENCE_S, new_place, run
from tests.support.api.proxy_world import proxy
from tests.support.deep import deep
from tests.support.evil import evil

pytestmark = [deep("it installs programs from npm or PyPI: minutes"), pytest.mark.timeout(INSTALL_S + 2 * PATIENCE_S)]

KIMI_PROXY = str(Path(sys.executable).with_name("kimi-proxy"))
SETTINGS = '[sanitizer]\nbudget_ms = 60000\npolicy = "deep"\n'
RECALLS = 2
# The flag that allows everything, and what allows the shell alone.
SHELL_ALONE = {
    "qwen": ("-y", ("--allowed-tools=run_shell_command", "-p")),
    "gemini": ("-y", ("--allowed-tools", "run_shell_command")),
    "gemini-login": ("-y", ("--allowed-tools", "run_shell_command")),
    "kilo": ("--auto", ()),
    "continue": ("--auto", ("--allow", "Bash")),
    "copilot": ("--allow-all-tools", ("--allow-tool", "shell")),
}
# Agents that ask; the others have no such mode, or call all tools without a terminal.
ASKING = {"qwen", "gemini", "copilot"}
BY_NAME = {case.name: case for case in AGENTS}


def asking(case: AgentCase, *steps: tuple[str, ...]) -> AgentCase:
    """Return the agent in its default mode; before it starts, its user does `steps` in the project."""
    flag, instead = SHELL_ALONE.get(case.name, ("", ()))

    def prepare(place: Place) -> Command:
        command = case.prepare(place)
        words = [each for word in command.argv for each in (instead if word == flag else (word,))]
        # The server that the agent starts has the proxy's store.
        own = {**command.env, "KIMI_PROXY_HOME": str(place.home.parent / "state")}
        env = {"PATH": os.environ["PATH"], "HOME": str(place.home), **own}
        for step in steps:
            # Another one is of the agent itself, whose command is an interpreter and a program.
            line = (KIMI_PROXY, *step[1:]) if step[0] == "kimi-proxy" else (*command.argv[:2], *step)
            subprocess.run(line, cwd=place.project, env=env, check=True, capture_output=True, timeout=PATIENCE_S)
        return replace(command, argv=tuple(words), env=own)

    return replace(case, prepare=prepare)


@asynccontextmanager
async def world(case: AgentCase, folder: Path, model: Recaller, is_direct: bool = False) -> AsyncIterator[Place]:
    async with (
        evil(case.provider(model)) as provider,  # type: ignore[arg-type]
        proxy(folder / "state", provider.toml(case.provider_type) + SETTINGS) as p,
    ):
        url = provider.url.removesuffix("/v1") if is_direct else f"http://127.0.0.1:{p.port}"
        yield new_place(folder, url)


def model_of(case: AgentCase) -> Recaller:
    return Recaller(case.shell, recalls=RECALLS, ending=case.ending)


@pytest.mark.parametrize(
    "name",
    [
        *("kimi-code", "opencode", "cline", "continue", "qwen", "codex", "codex-gpt-5.5", "gemini", "gemini-login"),
        *("pi", "kilo", "mini-swe-agent"),
    ],
)
async def test_through_the_proxy_an_agent_reads_back_unasked(tmp_path: Path, name: str):
    case = BY_NAME[name]
    model = model_of(case)
    async with world(case, tmp_path, model) as place:
        outcome = await run(asking(case), place)

    assert len(model.printed) < len(LOG.text) / 2, outcome
    assert model.called == ["recover_text"] * RECALLS
    assert model.read_back == [True] * RECALLS, model.answers


@pytest.mark.parametrize("name", ["kimi-code", "opencode", "cline", "continue", "qwen", "gemini", "kilo"])
async def test_an_agent_calls_the_recall_tool_that_init_gave_it_unasked(tmp_path: Path, name: str):
    case = BY_NAME[name]
    model = model_of(case)
    step = ("kimi-proxy", "init", case.client or name, "--tools", "--user", "--yes")
    async with world(case, tmp_path, model) as place:
        outcome = await run(asking(case, step), place)

    assert len(model.called) == RECALLS, (model.answers, outcome)
    assert all(tool.endswith("recover_text") for tool in model.called)
    assert name == "continue" or "recover_text" not in model.called, "the agent's own was preferred"
    assert model.read_back == [True] * RECALLS, model.answers
    assert name not in ASKING or model.granted == []


async def test_copilot_cli_calls_all_of_our_tools_unasked_but_bash(tmp_path: Path):
    """It puts long results of its own shell into files, so only our tools cut something."""
    case = BY_NAME["copilot"]
    model = model_of(case)
    step = ("kimi-proxy", "init", "copilot", "--tools", "--yes")
    async with world(case, tmp_path, model, is_direct=True) as place:
        outcome = await run(asking(case, step), place)

    assert model.called == ["pruner-recover_text"] * RECALLS, outcome
    assert model.read_back == [True] * RECALLS, model.answers
    assert "Permission denied" in model.answers["call_bash"]


async def test_qwen_code_shows_a_server_of_a_project_after_the_step_that_init_names(tmp_path: Path):
    case = BY_NAME["qwen"]
    hidden, model = model_of(case), model_of(case)
    init = ("kimi-proxy", "init", "qwen", "--tools", "--project", "--yes")
    async with world(case, tmp_path / "hidden", hidden) as place:
        await run(asking(case, init), place)
    async with world(case, tmp_path / "shown", model) as place:
        await run(asking(case, init, ("mcp", "approve", "pruner")), place)

    assert hidden.called == ["recover_text"] * RECALLS and hidden.read_back == [True] * RECALLS
    assert model.called == ["mcp__pruner__recover_text"] * RECALLS and model.read_back == [True] * RECALLS
    assert model.granted == []

"""Claude Code itself in auto mode, with a model of another provider: it checks each command before it runs it.

Run by ./test.sh --deep: it needs the program of npm.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.clients import agents, terminal
from tests.support.clients.servers import INSTALL_S
from tests.support.core.chat.streams import DONE as LAST
from tests.support.core.chat.streams import STOP, TOOL_STOP, USAGE_ALONE, call, delta, said
from tests.support.core.chat.streams import line as chunk
from tests.support.deep import deep
from tests.support.evil import Evil, Heard, Line, evil, http

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.features.accounting import sum_safety_checks

pytestmark = [deep("it installs Claude Code from npm: minutes"), pytest.mark.timeout(INSTALL_S + 600)]

KIMI_PROXY = str(Path(sys.executable).with_name("kimi-proxy"))
KEY = f"sk-ant-api03-{'x' * 30}"
# The network is why both are checked; nothing listens on that port.
COMMANDS = [f"curl -s http://127.0.0.1:9/; mkdir -p made/{name}" for name in ("one", "two")]
UNKNOWN = json.dumps({"error": {"message": "Not found the model", "type": "resource_not_found_error"}}).encode()
# It is asked in one form for a model that Claude Code knows, and for that which takes its place; in another for others.
SEVERITY, BLOCK = "<severity>0</severity>", "<block>no</block>"


@dataclass
class Model:
    """Runs two commands, and judges each of them to be harmless; it knows no model but its own."""

    judged: list[str] = field(default_factory=list)  # what it was asked about, before it ran

    async def __call__(self, heard: Heard, line: Line) -> None:
        asked = json.loads(heard.body)
        if asked["model"] != "kimi-x":
            await line.send(http(UNKNOWN, "404 Not Found"))
        elif "security monitor for autonomous AI coding agents" in heard.body.decode():
            self.judged.append(json.dumps(asked["messages"][-1]))
            verdict = SEVERITY if "<severity>" in self.judged[-1] else BLOCK
            usage = {"prompt_tokens": 35_000, "completion_tokens": 4}
            message = {"role": "assistant", "content": verdict}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            body = {"id": "c", "object": "chat.completion", "model": "kimi-x", "choices": [choice], "usage": usage}
            await line.send(http(json.dumps(body).encode()))
        else:
            await line.stream(self._turn(asked).encode())

    def _turn(self, asked: dict[str, object]) -> str:
        messages = asked["messages"]
        assert isinstance(messages, list)
        ran = sum(message["role"] == "tool" for message in messages)
        if ran == len(COMMANDS) or not asked.get("tools"):
            return said("done") + STOP + chunk(USAGE_ALONE) + LAST
        arguments = json.dumps({"command": COMMANDS[ran], "description": "look"})
        piece = call(0, f"call_{ran}", "Bash", arguments)
        return chunk(delta({"tool_calls": [piece]})) + TOOL_STOP + chunk(USAGE_ALONE) + LAST


class Claude:
    """A model of Anthropic's: it judges the calls of its own answers, and reads something back before the second."""

    def __init__(self) -> None:
        self.judged: list[str] = []

    async def __call__(self, heard: Heard, line: Line) -> None:
        asked = json.loads(heard.body)
        blocks = [each for one in asked["messages"] if isinstance(one["content"], list) for each in one["content"]]
        results = [each["tool_use_id"] for each in blocks if each["type"] == "tool_result"]
        ran = sum(id.startswith("toolu_bash") for id in results)
        if ran == len(COMMANDS) or not asked.get("tools"):
            events = message_events({"type": "text", "text": "done"})
        elif ran and "toolu_own" not in results:
            events = message_events(tool_use("toolu_own", "recover_text", {"id": "prn_0000000000000000"}))
        else:
            events = message_events(tool_use(f"toolu_bash_{ran}", "Bash", {"command": COMMANDS[ran]}))
        if asked.get("safeguards"):
            self.judged.append(heard.header("anthropic-beta"))
        await line.stream(*(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events))


def tool_use(id: str, name: str, arguments: dict[str, str]) -> dict[str, object]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def message_events(block: dict[str, object]) -> list[dict[str, object]]:
    """Return an answer as a stream, with a verdict on the call in it."""
    is_call, usage = block["type"] == "tool_use", {"input_tokens": 1000, "output_tokens": 10}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "kimi-x", "content": [], "usage": usage}
    begun = {**block, "input": {}} if is_call else {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": block.get("text")}
    if is_call:
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    harmless = {str(block.get("id")): {"type": "evaluated", "outcome": "not_flagged"}}
    verdict = [{"type": "dangerous_tool_use", "status": {"type": "available", "tool_uses": harmless}}]
    end = {"stop_reason": "tool_use", "safeguard_results": verdict} if is_call else {"stop_reason": "end_turn"}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": begun},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 10}},
        {"type": "message_stop"},
    ]


@dataclass(frozen=True)
class World:
    """A project, somebody who uses Claude Code, and the proxy in front of Kimi."""

    folder: Path
    proxy: Proxy
    provider: Evil
    model: "Model | Claude"

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "KIMI_PROXY_HOME": str(self.folder / "state"),
            "KIMI_PROXY_CONFIG": str(self.folder / "config.toml"),
            "KIMI_PROXY_PORT": str(self.proxy.port),
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    async def run(self, *command: str, **env: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.project,
            env=self.env | env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        shown, _ = await asyncio.wait_for(process.communicate(), 200)
        return process.returncode, shown.decode()

    @property
    def made(self) -> set[str]:
        return {path.name for path in (self.project / "made").glob("*")}

    async def checks(self) -> int:
        await self.proxy.runtime.sessions.caught_up()
        return sum_safety_checks(await self.proxy.runtime.store.sessions.accounts(LOCAL, 0.0)).requests


@asynccontextmanager
async def world(tmp_path: Path, kind: str = "openai", model: Model | Claude | None = None) -> AsyncIterator[World]:
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    # What the program asks a person once, at its first start.
    known = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(tmp_path / "project"): {"hasTrustDialogAccepted": True}},
    }
    (tmp_path / "home" / ".claude.json").write_text(json.dumps(known))
    model = model or Model()
    async with evil(model) as provider:
        settings = provider.toml(kind) + f'[models.kimi-x]\nprovider = "{kind}-evil"\n'
        (tmp_path / "config.toml").write_text(settings)
        async with proxy(tmp_path / "state", settings) as p:
            yield World(tmp_path, p, provider, model)


async def test_two_checked_commands_run_headless_as_kimi_proxy_run_starts_it(tmp_path: Path):
    claude = await asyncio.to_thread(agents.claude)
    async with world(tmp_path) as at:
        line = (claude, "-p", "go", "--model", "kimi-x", "--permission-mode", "auto")
        code, shown = await at.run(KIMI_PROXY, "run", "--proxy", "--", *line)
        checks = await at.checks()

    assert (code, at.made) == (0, {"one", "two"}), shown
    assert "about 35,000 tokens for each checked action" in shown
    assert [COMMANDS[0] in at.model.judged[0], COMMANDS[1] in at.model.judged[-1]] == [True, True]
    assert checks >= len(COMMANDS)


async def test_two_checked_commands_run_in_a_terminal_as_init_sets_it_up(tmp_path: Path):
    """It begins in auto mode by itself."""
    claude = await asyncio.to_thread(agents.claude)
    async with world(tmp_path) as at:
        code, shown = await at.run(KIMI_PROXY, "init", "claude", "--proxy", "--yes")
        assert code == 0, shown
        shown = await terminal.watch(
            (claude, "--model", "kimi-x", "go"), at.project, at.env, lambda shown: at.made == {"one", "two"}
        )
        checks = await at.checks()

    assert at.made == {"one", "two"}, shown[-3000:]
    assert "Auto mode can't check actions" not in shown
    assert checks >= len(COMMANDS)


@pytest.mark.parametrize("is_headless", [True, False])
async def test_without_the_variable_it_stops_at_the_first_command(is_headless: bool, tmp_path: Path):
    """If this fails, Claude Code needs the variable no longer."""
    claude = await asyncio.to_thread(agents.claude)
    async with world(tmp_path) as at:
        env = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{at.proxy.port}"}
        if is_headless:
            _, shown = await at.run(claude, "-p", "go", "--model", "kimi-x", "--permission-mode", "auto", **env)
        else:
            shown = await terminal.watch(
                (claude, "--model", "kimi-x", "go"),
                at.project,
                at.env | env,
                lambda shown: "Auto mode can't check actions in this session" in shown or bool(at.made),
            )

    assert "Auto mode can't check actions in this session" in shown, shown[-3000:]
    assert at.made == set()


async def test_where_the_provider_checks_two_commands_run_also_after_a_recall(tmp_path: Path):
    claude = await asyncio.to_thread(agents.claude)
    model = Claude()
    async with world(tmp_path, "anthropic", model) as at:
        line = (claude, "-p", "go", "--model", "kimi-x", "--permission-mode", "auto")
        code, shown = await at.run(*line, ANTHROPIC_BASE_URL=f"http://127.0.0.1:{at.proxy.port}")
        checks = await at.checks()

    assert (code, at.made, checks) == (0, {"one", "two"}, 0), shown
    assert sum(b"toolu_own" in heard.body for heard in at.provider.heard) == 1
    assert len(model.judged) == len(at.provider.heard) == 4
    assert all("dangerous-tool-use" in beta for beta in model.judged)

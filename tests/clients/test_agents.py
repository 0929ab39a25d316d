"""Claude Code and Codex read with a question and recover what a marker hides, from the command line to the model."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.api.pruner_world import pruner
from tests.support.clients import agents
from tests.support.clients.fake_llm import Call, FakeLlm, fake_llm
from tests.support.clients.servers import INSTALL_S
from tests.support.deep import deep

pytestmark = pytest.mark.timeout(INSTALL_S + 600)

PATIENCE_S = 90
KIMI_PROXY = str(Path(sys.executable).with_name("kimi-proxy"))
TOOLS = {"read", "grep", "bash", "recover_text"}
QUESTION = "Why was batch 99 refused?"
LINES = [f"2026-01-01 12:{n // 60:02}:{n % 60:02} INFO item {n} of batch {n % 17} was stored" for n in range(240)]
LINES[120] = "2026-01-01 12:02:00 ERROR batch 99 was refused: the quota of tenant 7 is used up"
MARKER = re.compile(r"⟦PRUNÉ: prune_id=(prn_\w+) lignes (\d+)-(\d+)")


def script(answers: list[str]) -> Call | str:
    """grep, read, recover what the first marker hides, run a command; each with a question."""
    asked = {"context_focus_question": QUESTION}
    match len(answers):
        case 0:
            return Call("grep", {"pattern": "batch", **asked})
        case 1:
            return Call("read", {"file_path": "app.log", **asked})
        case 2:
            prune_id, start, end = hidden(answers[1])
            ranges = [{"start_line": start, "end_line": end}]
            return Call("recover_text", {"prune_id": prune_id, "ranges": ranges, "include_line_numbers": False})
        case 3:
            return Call("bash", {"command": "cat app.log; exit 3", **asked})
    return "the quota is used up"


def hidden(answer: str) -> tuple[str, int, int]:
    found = MARKER.search(answer)
    assert found, answer
    return found[1], int(found[2]), int(found[3])


def check(llm: FakeLlm) -> None:
    """The model has seen the lines that matter, markers for the rest, and the rest when it asked for it."""
    searched, read, recovered, ran = llm.answers
    assert f"app.log:121:{LINES[120]}" in searched
    for answer in (searched, read, ran):
        assert LINES[120] in answer
        assert MARKER.search(answer)
        assert len(answer) < len("\n".join(LINES)) / 2
    assert re.search(r"\[kimi-proxy\] \d+ of 241 lines pruned .*recover_text", read)
    assert "exit code 3" in ran
    _, start, end = hidden(read)
    assert json.loads(recovered[recovered.index("{") :])["raw_text"] == "\n".join(LINES[start - 1 : end])


@dataclass(frozen=True)
class World:
    """A project with a log, and somebody who is here for the first time."""

    project: Path
    home: Path
    llm: FakeLlm

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "KIMI_PROXY_HOME": str(self.home / "state"),
            "ANTHROPIC_BASE_URL": self.llm.url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.project, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout.decode()

    def codex(self, server: str) -> list[str]:
        """`codex exec`, which asks the scripted model and nobody for approval."""
        provider = f'{{name = "fake", base_url = "{self.llm.url}/v1", wire_api = "responses"}}'
        settings = [
            'model_provider="fake"',
            f"model_providers.fake={provider}",
            f'mcp_servers.{server}.default_tools_approval_mode="approve"',
        ]
        overrides = [word for setting in settings for word in ("-c", setting)]
        return [agents.codex(), "exec", "-m", "scripted", *overrides, "--skip-git-repo-check", "go"]

    def claude(self, server: str) -> list[str]:
        allowed = ",".join(f"mcp__{server}__{tool}" for tool in sorted(TOOLS))
        return [agents.claude(), "-p", "go", "--output-format", "json", "--allowedTools", allowed]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    (project / "app.log").write_text("\n".join(LINES) + "\n")
    with fake_llm(script) as llm:
        yield World(project, home, llm)


def test_claude_code_runs_with_the_tools_and_with_servers_of_its_own(world: World):
    own = {"mine": {"type": "stdio", "command": KIMI_PROXY, "args": ["pruner", "--stdio"], "alwaysLoad": True}}
    (world.home / "mine.json").write_text(json.dumps({"mcpServers": own}))
    command = [*world.claude("kimi-proxy"), "--mcp-config", str(world.home / "mine.json")]
    said = json.loads(world.run(KIMI_PROXY, "run", "--", *command))

    assert said["result"] == "the quota is used up"
    check(world.llm)
    assert world.llm.offered >= {*TOOLS, "prune_text"}
    assert "kimi-proxy" not in (world.home / ".claude.json").read_text()
    assert not (world.project / ".mcp.json").exists()


@deep("a real agent once more; another one does the same always")
def test_codex_runs_with_the_tools(world: World):
    said = world.run(KIMI_PROXY, "run", "--", *world.codex("kimi-proxy"))

    assert said == "the quota is used up\n"
    check(world.llm)
    assert world.llm.offered == TOOLS
    assert not (world.home / ".codex" / "config.toml").exists()


@deep("a real agent once more; another one does the same always")
def test_claude_code_finds_the_tools_that_init_wrote_down(world: World):
    world.run(KIMI_PROXY, "init", "claude", "--user", "--tools", "--yes")
    world.run(*world.claude("pruner"))

    check(world.llm)
    world.run(KIMI_PROXY, "init", "claude", "--user", "--undo", "--yes")
    assert "pruner" not in json.loads((world.home / ".claude.json").read_text()).get("mcpServers", {})


@deep("a real agent once more; another one does the same always")
def test_codex_finds_the_tools_that_init_wrote_down(world: World):
    world.run(KIMI_PROXY, "init", "codex", "--tools", "--yes")
    written = (world.home / ".codex" / "config.toml").read_text()
    # Without it Codex does not wait for a server before its first question to the model.
    command = [*world.codex("pruner")[:-1], "-c", "mcp_servers.pruner.required=true", "go"]
    world.run(*command)

    check(world.llm)
    assert written in (world.home / ".codex" / "config.toml").read_text()


@deep("a real agent once more; another one does the same always")
def test_claude_code_is_connected_over_stdio_and_over_http(world: World):
    world.run(KIMI_PROXY, "init", "claude", "--user", "--yes")
    assert re.search(r"pruner: .*kimi-proxy pruner --stdio - .*Connected", world.run(agents.claude(), "mcp", "list"))
    with pruner(world.home / "server") as port:
        env = {**world.env, "MCP_PRUNER_PORT": str(port)}
        command = [KIMI_PROXY, "init", "claude", "--user", "--http", "--yes"]
        subprocess.run(command, cwd=world.project, env=env, check=True, capture_output=True)
        listed = world.run(agents.claude(), "mcp", "list")

    assert re.search(rf"pruner: http://127.0.0.1:{port}/mcp .*Connected", listed)


@deep("a real agent once more; another one does the same always")
def test_claude_code_s_own_commands_work_in_a_run(world: World):
    world.run(KIMI_PROXY, "run", "--", agents.claude(), "mcp", "list")

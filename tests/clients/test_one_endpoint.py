"""Claude Code and Codex find and call the tools of several servers through one endpoint."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.clients import agents
from tests.support.clients.fake_llm import Call, FakeLlm, fake_llm
from tests.support.clients.servers import INSTALL_S, node_program
from tests.support.deep import deep

from kimi_proxy.core.markers import read_mask

pytestmark = pytest.mark.timeout(INSTALL_S + 600)

PATIENCE_S = 120
KIMI_PROXY = str(Path(sys.executable).with_name("kimi-proxy"))
FEW = {"search_tools", "describe_tool", "call_read_tool", "call_write_tool", "recover_text"}
LONG = "".join(f"line {n} of a text that is too long to be shown\n" for n in range(2000))


@dataclass(frozen=True)
class World:
    folder: Path
    home: Path
    llm: FakeLlm

    def run(self, *command: str) -> str:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "KIMI_PROXY_HOME": str(self.home / "state"),
            "KIMI_PROXY_CONFIG": str(self.home / "config.toml"),
            "ANTHROPIC_BASE_URL": self.llm.url,
            "ANTHROPIC_API_KEY": "none",
            "ENABLE_TOOL_SEARCH": "false",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        ended = subprocess.run(
            command, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S
        )
        assert ended.returncode == 0, (ended.stdout, ended.stderr)
        return ended.stdout.decode()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    folder, home = tmp_path / "folder", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    (folder / "long.txt").write_text(LONG)
    servers = {
        "files": [node_program("mcp-server-filesystem"), str(folder)],
        "facts": [node_program("mcp-server-memory")],
    }
    tables = (
        f"[mcp.servers.{name}]\ncommand = {json.dumps(words[0])}\nargs = {json.dumps(words[1:])}\n"
        for name, words in servers.items()
    )
    kept = f"[mcp.servers.facts.env]\nMEMORY_FILE_PATH = {json.dumps(str(home / 'facts.json'))}\n"
    (home / "config.toml").write_text("".join((*tables, kept)))

    def script(answers: list[str]) -> Call | str:
        """Search, look at a tool, list, read, recover, write a copy of a line, remember it, read that: eight calls."""
        match len(answers):
            case 0:
                return Call("search_tools", {"query": "show what is inside a file"})
            case 1:
                return Call("describe_tool", {"name": "files__read_text_file"})
            case 2:
                return Call("call_read_tool", {"name": "files__list_directory", "arguments": {"path": str(folder)}})
            case 3:
                name = {"name": "files__read_text_file", "arguments": {"path": str(folder / "long.txt")}}
                return Call("call_read_tool", name)
            case 4:
                marker = read_mask(answers[3])
                assert marker is not None, answers[3][:500]
                one_line = [{"start_line": 1001, "end_line": 1001}]
                return Call("recover_text", {"prune_id": marker.mask_id, "ranges": one_line})
            case 5:
                line = {"path": str(folder / "copy.txt"), "content": "line 1000"}
                return Call("call_write_tool", {"name": "files__write_file", "arguments": line})
            case 6:
                fact = [{"name": "line", "entityType": "text", "observations": ["was copied"]}]
                return Call("call_write_tool", {"name": "facts__create_entities", "arguments": {"entities": fact}})
            case 7:
                return Call("call_read_tool", {"name": "facts__read_graph"})
        return "the line was copied"

    with fake_llm(script) as llm:
        yield World(folder, home, llm)


def check(world: World) -> None:
    found, described, listed, shown, recovered, wrote, noted, graph = world.llm.answers
    assert "files__read_" in found
    assert "path" in described and "long.txt" in listed
    assert len(shown) < len(LONG) / 4
    assert "line 1000 of a text that is too long to be shown" in recovered
    assert (world.folder / "copy.txt").read_text() == "line 1000"
    assert "was copied" in noted
    assert "was copied" in graph
    assert not any("isError" in answer for answer in (wrote, noted))
    assert world.llm.offered >= FEW
    assert not any("write_file" in name for name in world.llm.offered)


@deep("the real Claude Code; another client does the same job always")
def test_claude_code_does_a_job_with_two_servers_behind_one_endpoint(world: World):
    own = {"all": {"type": "stdio", "command": KIMI_PROXY, "args": ["gateway", "--stdio"], "alwaysLoad": True}}
    (world.home / "servers.json").write_text(json.dumps({"mcpServers": own}))
    allowed = ",".join(f"mcp__all__{tool}" for tool in sorted(FEW))
    said = world.run(
        *(agents.claude(), "-p", "go", "--output-format", "json", "--allowedTools", allowed),
        *("--mcp-config", str(world.home / "servers.json"), "--strict-mcp-config"),
    )

    assert json.loads(said)["result"] == "the line was copied"
    check(world)


@deep("the real Codex; another client does the same job always")
def test_codex_does_a_job_with_two_servers_behind_one_endpoint(world: World):
    settings = (
        'model_provider="fake"',
        f'model_providers.fake={{name = "fake", base_url = "{world.llm.url}/v1", wire_api = "responses"}}',
        f"mcp_servers.all.command={json.dumps(KIMI_PROXY)}",
        'mcp_servers.all.args=["gateway", "--stdio"]',
        'mcp_servers.all.env_vars=["KIMI_PROXY_HOME", "KIMI_PROXY_CONFIG"]',
        'mcp_servers.all.default_tools_approval_mode="approve"',
        "mcp_servers.all.required=true",
    )
    overrides = [word for setting in settings for word in ("-c", setting)]
    said = world.run(agents.codex(), "exec", "-m", "scripted", *overrides, "--skip-git-repo-check", "go")

    assert said == "the line was copied\n"
    check(world)

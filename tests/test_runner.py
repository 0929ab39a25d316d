"""What Python programs import to run agents with our tools."""

import asyncio
import json
import os
from pathlib import Path
from urllib.request import Request, urlopen

from tests.support.deep import deep

from kimi_proxy.runner import ClaudeServer, State, pruner_run

LOG = [f"12:{n // 60:02}:{n % 60:02} INFO item {n} was stored" for n in range(300)]
LOG[150] = "12:02:30 ERROR item 150 was refused: quota"


def environment(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "KIMI_PROXY_HOME": str(home / "state"), **more}


def ask(server: ClaudeServer, tool: str, **arguments: object) -> str:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {"Content-Type": "application/json", "Accept": "application/json", **server.get("headers", {})}
    with urlopen(Request(server["url"], json.dumps(call).encode(), headers), timeout=60) as answer:
        text: str = json.load(answer)["result"]["content"][0]["text"]
    return text


async def test_an_agent_that_is_started_inside_reads_the_project_with_a_question(tmp_path: Path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "app.log").write_text("\n".join(LOG))
    async with pruner_run(cwd=project, env=environment(tmp_path)) as run:
        assert run.state is State.RUNNING
        (server,) = run.claude_mcp_servers().values()
        asked = {"file_path": "app.log", "context_focus_question": "Why was an item refused?"}
        shown = await asyncio.to_thread(ask, server, "read", **asked)
        where = await asyncio.to_thread(ask, server, "bash", command="pwd; env")

    assert LOG[150] in shown
    assert "⟦PRUNÉ" in shown
    assert where.startswith(f"{project}\n")
    assert "TOKEN" not in where
    assert run.state is State.SHUTDOWN


async def test_without_the_tools_the_program_goes_on(tmp_path: Path):
    async with pruner_run(cwd=tmp_path, env=environment(tmp_path, JEEVES_MCP_PRUNER_ENABLED="false")) as run:
        assert run.state is State.DISABLED
        assert (run.claude_mcp_servers(), run.codex_config_overrides(), run.env()) == ({}, (), {})
        assert run.command(["codex", "exec"]) == ["codex", "exec"]


@deep("it starts an interpreter of its own; tests/services/test_configuration.py reads the same files")
async def test_a_config_toml_of_the_project_is_not_read_because_it_is_not_the_users(tmp_path: Path):
    (tmp_path / "config.toml").write_text("[tools]\nno_such_key = 1\n")
    async with pruner_run(cwd=tmp_path, env=environment(tmp_path)) as run:
        assert run.state is State.RUNNING


async def test_settings_that_are_refused_leave_the_tools_out_and_say_why(tmp_path: Path):
    named = tmp_path / "named.toml"
    named.write_text("[tools]\nno_such_key = 1\n")
    async with pruner_run(cwd=tmp_path, env=environment(tmp_path, KIMI_PROXY_CONFIG=str(named))) as run:
        assert run.state is State.DISABLED
        assert "no_such_key" in run.problem

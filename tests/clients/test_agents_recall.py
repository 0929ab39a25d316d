"""Claude Code and Codex themselves, behind the proxy: outputs are cut and read back, and the transcript is unharmed.

They are used where they are installed, and installed with ./test.sh --deep (see test_coding_agents.py).
"""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.api.proxy_world import proxy
from tests.support.clients.agents_recall import (
    DONE,
    ID,
    LOG,
    RUN_COMMAND,
    RUN_SCRIPT,
    Reader,
    check,
)
from tests.support.clients.coding_agents import program, run
from tests.support.clients.servers import INSTALL_S
from tests.support.deep import deep
from tests.support.evil import evil
from tests.support.model import Call, Says

from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.json import JsonObject

pytestmark = pytest.mark.timeout(INSTALL_S + 600)

# The default policy spares a file that was printed: an agent may be about to quote it.
SETTINGS = '[sanitizer]\nbudget_ms = 60000\npolicy = "deep"\n'


async def test_claude_code_s_model_reads_back_inside_its_answer(tmp_path: Path):
    claude = await asyncio.to_thread(program, "claude")
    (tmp_path / "app.log").write_text(LOG.text)
    model = Reader(Call("toolu_1", "Bash", {"command": "cat app.log", "description": "print the log"}))
    async with (
        evil(model) as provider,
        proxy(tmp_path / "state", provider.toml("anthropic") + SETTINGS) as p,
    ):
        said = await run(
            tmp_path,
            *(claude, "-p", LOG.goal, "--allowedTools", "Bash", "--output-format", "json"),
            ANTHROPIC_BASE_URL=f"http://127.0.0.1:{p.port}",
            ANTHROPIC_API_KEY="sk-of-the-client",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            # Its first text then changes with every request, unless it is pinned.
            _CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL="1",
        )
        sessions = (await p.http.get("/api/sessions")).json()["sessions"]

    answer = json.loads(said)
    assert answer["result"].endswith(DONE)
    check(model, Wire.MESSAGES)
    assert answer["usage"]["input_tokens"] == 20_000 + 24_000 + 24_100, "its cost has every round once"
    (transcript,) = (tmp_path / "home" / ".claude" / "projects").rglob(f"{answer['session_id']}.jsonl")
    assert "recover_text" not in transcript.read_text() and "PRUN" not in transcript.read_text()
    assert LOG.text.split("\n")[150] in transcript.read_text()
    assert [session["name"] for session in sessions if not session["parent"]] == [answer["session_id"]]


# Without a name Codex takes its default. For its newer models it sends its tools as an item, one of which runs scripts.
MODELS = [
    ("", RUN_SCRIPT, "functions"),
    ("gpt-5.5", RUN_COMMAND, ""),
    *(
        pytest.param(name, RUN_SCRIPT, "", marks=deep("the same recall with another model"))
        for name in ("gpt-5.6-sol", "gpt-6-sol", "gpt-6-astra")
    ),
    *(
        pytest.param(name, RUN_SCRIPT, "", marks=deep("the same recall with another model"))
        for name in ("gpt-6.1-sol", "gpt-6-luna")
    ),
    pytest.param("gpt-x", RUN_COMMAND, "", marks=deep("the same recall with another model")),
]


def connect_codex(home: Path, port: int, model: str, more: str = "") -> Path:
    """Write the settings of a Codex that has our address and a key; return their folder."""
    settings = home / ".codex" / "config.toml"
    settings.parent.mkdir(parents=True)
    named = f'model = "{model}"\n' if model else ""
    # The address alone: Codex then tries a WebSocket first.
    settings.write_text(f'{named}openai_base_url = "http://127.0.0.1:{port}/v1"\n{more}')
    (settings.parent / "auth.json").write_text('{"OPENAI_API_KEY": "sk-of-the-client"}')
    return settings.parent


@pytest.mark.parametrize(("name", "tool", "namespace"), MODELS)
async def test_codex_s_model_reads_back_inside_its_answer(tmp_path: Path, name: str, tool: Call, namespace: str):
    codex = await asyncio.to_thread(program, "codex")
    (tmp_path / "app.log").write_text(LOG.text)
    model = Reader(tool, namespace)
    async with (
        evil(model) as provider,
        proxy(tmp_path / "state", provider.toml("openai") + SETTINGS) as p,
    ):
        settings = connect_codex(tmp_path / "home", p.port, name)
        said = await run(tmp_path, codex, "exec", "--json", "--skip-git-repo-check", LOG.goal)
        sessions = (await p.http.get("/api/sessions")).json()["sessions"]

    happened = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    (thread,) = [each["thread_id"] for each in happened if each["type"] == "thread.started"]
    assert DONE in said and "recover_text" not in said
    check(model, Wire.RESPONSES)
    assert b"/api/mask/" not in model.requests[1], "no address that its sandbox cannot reach"
    (rollout,) = (settings / "sessions").rglob("rollout-*.jsonl")
    assert "recover_text" not in rollout.read_text() and "PRUN" not in rollout.read_text()
    assert [session["name"] for session in sessions if not session["parent"]] == [thread]


@dataclass(slots=True)
class McpReader(Reader):
    """A model that reads back by the tool of an MCP server, which Codex offers in a namespace, or to scripts."""

    most_lines: int = 10**6

    def _says(self, wire: Wire, raw: bytes) -> Says:
        self.requests.append(raw)
        results = [part for m in parse(raw, wire).messages for part in m.parts if part.kind == "tool_result"]
        at, marker = f"resp_{len(self.requests)}", ID.search(raw)
        if not results:
            return Says("", (self.tool,), id=at)
        found = [part.text for part in results if part.call_id == "mcp_1"]
        if marker is not None and not found:
            first = int(marker[2])
            last = min(int(marker[3]), first + self.most_lines - 1)
            asked: JsonObject = {"prune_id": marker[1].decode(), "ranges": [{"start_line": first, "end_line": last}]}
            return Says("Hm.", (self._recover(asked),), id=at)
        self.recovered += found[-1:]
        return Says(DONE, id=at)

    def _recover(self, asked: JsonObject) -> Call:
        if not self.tool.script:
            return Call("mcp_1", "recover_text", asked, namespace="mcp__pruner")
        script = f"text((await tools.mcp__pruner__recover_text({json.dumps(asked)})).content[0].text)"
        return Call("mcp_1", "exec", script=script)


@pytest.mark.parametrize(("name", "tool"), [("", RUN_SCRIPT), ("gpt-5.5", RUN_COMMAND), ("gpt-x", RUN_COMMAND)])
async def test_codex_s_model_may_read_back_by_its_own_mcp_server(tmp_path: Path, name: str, tool: Call):
    """The server's tool has the name of ours, in a namespace or in a script: its calls are Codex's to make.

    What it gives back is as long as what was cut, and is not cut again.
    """
    codex = await asyncio.to_thread(program, "codex")
    (tmp_path / "app.log").write_text(LOG.text)
    # Of a model that it does not know Codex itself cuts long results.
    most_lines = 2 if name == "gpt-x" else 300
    model, state = McpReader(tool, most_lines=most_lines), tmp_path / "state"
    async with (
        evil(model) as provider,
        proxy(state, provider.toml("openai") + SETTINGS) as p,
    ):
        server = (
            f"[mcp_servers.pruner]\ncommand = {json.dumps(sys.executable)}\n"
            'args = ["-m", "kimi_proxy", "pruner", "--stdio"]\nrequired = true\n'
            'default_tools_approval_mode = "approve"\n'
            f"env = {{KIMI_PROXY_HOME = {json.dumps(str(state))}}}\n"
        )
        own = (
            'model_provider = "kimi-proxy"\n[model_providers.kimi-proxy]\nname = "kimi-proxy"\n'
            f'base_url = "http://127.0.0.1:{p.port}/v1"\nwire_api = "responses"\n'
        )
        connect_codex(tmp_path / "home", p.port, name, own + server if name == "gpt-x" else server)
        said = await run(tmp_path, codex, "exec", "--skip-git-repo-check", LOG.goal)

    assert DONE in said
    offered = [each for each in parse(model.requests[0], Wire.RESPONSES).tool_names if "recover_text" in each]
    # Where Codex takes us for OpenAI it loads the tools of a server late, so that ours is offered meanwhile.
    assert offered == (["mcp__pruner__recover_text"] if name == "gpt-x" else ["recover_text"])
    marker = ID.search(model.requests[1])
    assert marker is not None
    (recovered,) = model.recovered
    raw_text = json.loads(recovered[recovered.index("{") :])["raw_text"]
    assert raw_text in LOG.text and raw_text.count("\n") == min(int(marker[3]) - int(marker[2]), most_lines - 1)

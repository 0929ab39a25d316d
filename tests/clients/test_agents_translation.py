"""Claude Code and Codex themselves in front of a provider that speaks chat completions only: outputs are cut, read back
and counted.

They are used where they are installed, and installed with ./test.sh --deep (see test_coding_agents.py).
"""

import asyncio
import json
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.api.proxy_world import proxy
from tests.support.clients.agents_recall import DONE, LOG, RUN_COMMAND, RUN_SCRIPT, Reader, check
from tests.support.clients.coding_agents import program, run
from tests.support.clients.servers import INSTALL_S
from tests.support.core.chat.streams import DONE as LAST
from tests.support.core.chat.streams import STOP, TOOL_STOP, USAGE_ALONE, call, delta, said
from tests.support.core.chat.streams import line as chunk
from tests.support.evil import Heard, Line, evil
from tests.support.model import Call

from kimi_proxy.core.chat import Wire

pytestmark = pytest.mark.timeout(INSTALL_S + 600)

SETTINGS = '[sanitizer]\nbudget_ms = 60000\npolicy = "deep"\n'


CALLS = (
    call(0, "call_a", "Bash", '{"command":"echo one","description":"say one"}'),
    call(1, "call_b", "Bash", '{"command":"echo two","description":"say two"}'),
)
THINKS_AND_CALLS = (
    chunk(delta({"reasoning_content": "I say two words."}))
    + said("Now.")
    + "".join(chunk(delta({"tool_calls": [piece]})) for piece in CALLS)
    + TOOL_STOP
    + chunk(USAGE_ALONE)
    + LAST
)


async def thinks_and_calls(heard: Heard, line: Line) -> None:
    is_answered = b'"role":"tool"' in heard.body
    await line.stream((said(DONE) + STOP + LAST if is_answered else THINKS_AND_CALLS).encode())


async def test_claude_code_sends_thoughts_back_and_makes_calls_side_by_side(tmp_path: Path):
    claude = await asyncio.to_thread(program, "claude")
    async with evil(thinks_and_calls) as provider, proxy(tmp_path / "state", provider.toml("openai")) as p:
        output = await run(
            tmp_path,
            *(claude, "-p", "go", "--model", "kimi-x", "--allowedTools", "Bash"),
            ANTHROPIC_BASE_URL=f"http://127.0.0.1:{p.port}",
            ANTHROPIC_API_KEY="sk-of-the-client",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        )

    assert output.strip() == DONE
    # A busy client may have asked for something else last, or added a reminder of its own.
    asked = [json.loads(heard.body)["messages"] for heard in provider.heard]
    messages = next(each for each in reversed(asked) if any(message["role"] == "tool" for message in each))
    (answered,) = (message for message in messages if message.get("tool_calls"))
    first, second = (message for message in messages if message["role"] == "tool")
    assert (answered["content"], answered["reasoning_content"]) == ("Now.", "I say two words.")
    assert [each["id"] for each in answered["tool_calls"]] == ["call_a", "call_b"]
    assert {each["tool_call_id"]: each["content"] for each in (first, second)} == {"call_a": "one", "call_b": "two"}


async def test_claude_code_works_on_a_provider_of_chat_completions(tmp_path: Path):
    claude = await asyncio.to_thread(program, "claude")
    (tmp_path / "app.log").write_text(LOG.text)
    model = Reader(Call("toolu_1", "Bash", {"command": "cat app.log", "description": "print the log"}))
    async with evil(model) as provider, proxy(tmp_path / "state", provider.toml("openai") + SETTINGS) as p:
        said = await run(
            tmp_path,
            *(claude, "-p", LOG.goal, "--model", "kimi-x", "--allowedTools", "Bash", "--output-format", "json"),
            ANTHROPIC_BASE_URL=f"http://127.0.0.1:{p.port}",
            ANTHROPIC_API_KEY="sk-of-the-client",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        )

    answer = json.loads(said)
    assert answer["result"].endswith(DONE)
    assert {heard.target for heard in provider.heard} == {"/v1/chat/completions"}
    check(model, Wire.CHAT)
    for before, after in zip(model.requests, model.requests[1:], strict=False):
        old, new = (json.loads(raw)["messages"] for raw in (before, after))
        assert new[: len(old)] == old
    (transcript,) = (tmp_path / "home" / ".claude" / "projects").rglob(f"{answer['session_id']}.jsonl")
    assert "recover_text" not in transcript.read_text() and "PRUN" not in transcript.read_text()


# Codex


def codex_settings(tmp_path: Path, port: int, model: str) -> Path:
    settings = tmp_path / "home" / ".codex" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        f'model = "{model}"\nmodel_provider = "kimi-proxy"\nsandbox_mode = "danger-full-access"\n'
        '[model_providers.kimi-proxy]\nname = "kimi-proxy"\n'
        f'base_url = "http://127.0.0.1:{port}/v1"\nwire_api = "responses"\n'
    )
    return settings


# Its default model's tools are an item of the conversation, and scripts are free text: both become functions.
RUN_EXEC = Call("call_1", "exec", {"input": RUN_SCRIPT.script})


def calling(*calls: Call) -> str:
    pieces = (call(at, each.id, each.name, each.written) for at, each in enumerate(calls))
    return "".join(chunk(delta({"tool_calls": [piece]})) for piece in pieces) + TOOL_STOP + chunk(USAGE_ALONE) + LAST


NEW_FILE = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
STEPS = (
    chunk(delta({"reasoning_content": "I say two words."}))
    + said("Now.")
    + calling(
        Call("call_a", "exec_command", {"cmd": "echo one"}),
        Call("call_b", "exec_command", {"cmd": "echo two"}),
    ),
    calling(Call("call_c", "apply_patch", {"input": NEW_FILE})),
    calling(Call("call_d", "tool_search", {"query": "spawn an agent"})),
    said(DONE) + STOP + chunk(USAGE_ALONE) + LAST,
)


async def steps(heard: Heard, line: Line) -> None:
    answered = sum(message["role"] == "assistant" for message in json.loads(heard.body)["messages"])
    await line.stream(STEPS[answered].encode())


async def test_codex_calls_its_tools_of_every_kind_and_sends_thoughts_back(tmp_path: Path):
    """Functions side by side, one for free text, and a search that brings the tools of a namespace."""
    codex = await asyncio.to_thread(program, "codex")
    toml = {"translate": ["responses"]}
    async with evil(steps) as provider, proxy(tmp_path / "state", provider.toml("openai", **toml)) as p:
        codex_settings(tmp_path, p.port, "gpt-5.5")
        output = await run(tmp_path, codex, "exec", "--json", "--skip-git-repo-check", "go")

    happened = [json.loads(each) for each in output.splitlines() if each.startswith("{")]
    (turn,) = [each for each in happened if each["type"] == "turn.completed"]
    assert DONE in output and (tmp_path / "new.txt").read_text() == "hello\n"
    assert (turn["usage"]["input_tokens"], turn["usage"]["cached_input_tokens"]) == (4 * 120, 4 * 100)
    bodies = [json.loads(heard.body) for heard in provider.heard]
    assert {heard.target for heard in provider.heard} == {"/v1/chat/completions"}
    for before, after in pairwise(bodies):
        assert after["messages"][: len(before["messages"])] == before["messages"]
        assert after["tools"][: len(before["tools"])] == before["tools"]
    first, one, two, patch, patched, _, found = bodies[-1]["messages"][len(bodies[0]["messages"]) :]
    assert (first["content"], first["reasoning_content"]) == ("Now.", "I say two words.")
    assert [each["id"] for each in first["tool_calls"]] == ["call_a", "call_b"]
    assert "one" in one["content"] and "two" in two["content"]
    assert json.loads(patch["tool_calls"][0]["function"]["arguments"]) == {"input": NEW_FILE}
    assert "new.txt" in patched["content"] and "spawn_agent" in found["content"]
    names = [each["function"]["name"] for each in bodies[-1]["tools"]]
    assert [name for name in names if "spawn_agent" in name] == ["multi_agent_v1__spawn_agent"]


async def sums_up(heard: Heard, line: Line) -> None:
    """Call a tool, sum the conversation up when asked to, and be done once the summary comes back."""
    *_, last = json.loads(heard.body)["messages"]
    if b"The plan is to stop." in heard.body:
        words = said(DONE) + STOP
    elif last["role"] == "user" and "sum this conversation up" in last["content"]:
        words = said("The plan is to stop.") + STOP
    else:
        words = calling(Call("call_a", "exec_command", {"cmd": "echo one"})).removesuffix(LAST)
    await line.stream((words + chunk(USAGE_ALONE) + LAST).encode())


async def test_codex_s_remote_compaction_is_done_by_the_model_itself(tmp_path: Path):
    """It takes us for OpenAI, whose servers would compact: that is what `init codex --proxy` writes."""
    codex = await asyncio.to_thread(program, "codex")
    toml = {"translate": ["responses"]}
    async with evil(sums_up) as provider, proxy(tmp_path / "state", provider.toml("openai", **toml)) as p:
        settings = tmp_path / "home" / ".codex" / "config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(
            f'model = "kimi-x"\nopenai_base_url = "http://127.0.0.1:{p.port}/v1"\n'
            "model_auto_compact_token_limit = 100\n"
        )
        (settings.parent / "auth.json").write_text('{"OPENAI_API_KEY": "sk-of-the-client"}')
        output = await run(tmp_path, codex, "exec", "--json", "--skip-git-repo-check", "go")

    assert DONE in output
    called, asked, after = (json.loads(heard.body) for heard in provider.heard)
    assert asked["messages"][: len(called["messages"])] == called["messages"]
    assert not any(each["role"] == "tool" for each in after["messages"])


@pytest.mark.parametrize(("name", "tool"), [("kimi-x", RUN_COMMAND), ("gpt-6.1-sol", RUN_EXEC)])
async def test_codex_works_on_a_provider_of_chat_completions(tmp_path: Path, name: str, tool: Call):
    codex = await asyncio.to_thread(program, "codex")
    (tmp_path / "app.log").write_text(LOG.text)
    model = Reader(tool)
    toml = {"translate": ["responses"]}
    async with evil(model) as provider, proxy(tmp_path / "state", provider.toml("openai", **toml) + SETTINGS) as p:
        settings = codex_settings(tmp_path, p.port, name)
        output = await run(tmp_path, codex, "exec", "--json", "--skip-git-repo-check", LOG.goal)
        sessions = (await p.http.get("/api/sessions")).json()["sessions"]

    happened = [json.loads(each) for each in output.splitlines() if each.startswith("{")]
    (thread,) = [each["thread_id"] for each in happened if each["type"] == "thread.started"]
    assert DONE in output and "recover_text" not in output
    assert {heard.target for heard in provider.heard} == {"/v1/chat/completions"}
    check(model, Wire.CHAT)
    (rollout,) = (settings.parent / "sessions").rglob("rollout-*.jsonl")
    assert "recover_text" not in rollout.read_text() and "PRUN" not in rollout.read_text()
    assert [session["name"] for session in sessions if not session["parent"]] == [thread]

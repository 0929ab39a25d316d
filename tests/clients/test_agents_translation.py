"""Claude Code itself in front of a provider that speaks chat completions only: outputs are cut, read back and counted.

It is used where it is installed, and installed with ./test.sh --deep (see test_coding_agents.py).
"""

import asyncio
import json
from pathlib import Path

import pytest
from tests.api.proxy_world import proxy
from tests.clients.servers import INSTALL_S
from tests.clients.test_agents_recall import DONE, LOG, Reader, check
from tests.clients.test_coding_agents import program, run
from tests.core.chat.streams import DONE as LAST
from tests.core.chat.streams import STOP, TOOL_STOP, USAGE_ALONE, call, delta, said
from tests.core.chat.streams import line as chunk
from tests.evil import Heard, Line, evil
from tests.model import Call

from kimi_proxy.core.chat import Wire

pytestmark = pytest.mark.timeout(INSTALL_S + 600)

SETTINGS = "[sanitizer]\nbudget_ms = 60000\n"


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
    *_, answered, first, second = json.loads(provider.heard[-1].body)["messages"]
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

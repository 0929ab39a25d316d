"""What Claude Code's auto mode asks a model before it runs a command, as a class of its own in the account."""

import json
from pathlib import Path

import pytest
from tests.support.evil import Heard, Line, evil, http

from kimi_proxy.assembly.runtime import running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.accounting import as_json, as_text, describe_safety_checks, sum_safety_checks
from kimi_proxy.features.chat.sessions import LOCAL_IDS
from kimi_proxy.services.chat.requests import ChatRequest

RULES = "You are a security monitor for autonomous AI coding agents.\n\n" + "Block what destroys data. " * 300
HEADERS = ((b"x-claude-code-session-id", b"s-1"), (b"user-agent", b"claude-cli/2.1.328 (external, cli)"))
TURN: JsonObject = {
    "model": "kimi-k3",
    "max_tokens": 1000,
    "tools": [{"name": "Bash", "input_schema": {"type": "object"}}],
    "messages": [{"role": "user", "content": "tidy up"}],
}
CHECK: JsonObject = {
    "model": "kimi-k3",
    "max_tokens": 64,
    "stop_sequences": ["</block>"],
    "system": [{"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": '<transcript>\n{"Bash":"make"}\n'}]}],
}


async def answer(heard: Heard, line: Line) -> None:
    is_check = b"security monitor" in heard.body
    usage = {"prompt_tokens": 35_000 if is_check else 2_000, "completion_tokens": 10}
    choice = {"index": 0, "message": {"role": "assistant", "content": "<block>no"}, "finish_reason": "stop"}
    body = {"id": "c", "object": "chat.completion", "model": "kimi-k3", "choices": [choice], "usage": usage}
    await line.send(http(json.dumps(body).encode()))


@pytest.mark.parametrize("mode", ["on", "observe"])
async def test_safety_checks_are_counted_apart(mode: str, tmp_path: Path):
    async with evil(answer) as provider:
        model = '[models.kimi-k3]\nprovider = "openai-evil"\ninput_usd_per_million = 2\noutput_usd_per_million = 10\n'
        settings = f'{provider.toml("openai")}{model}[sanitizer]\nmode = "{mode}"\n'
        async with running(parse(settings, {}, tmp_path), thread_max_chars=10**9) as runtime:
            for asked in (TURN, CHECK, CHECK, TURN):
                raw = json.dumps(asked).encode()
                async with runtime.chat.answer(ChatRequest(LOCAL, Wire.MESSAGES, raw, HEADERS)) as given:
                    assert given.status == 200
            await runtime.sessions.caught_up()
            lines = await runtime.store.sessions.accounts(LOCAL, 0.0)
            session = await runtime.sessions.session(LOCAL, LOCAL_IDS.session_named("s-1/checks").id)

    assert session.title == "Safety checks of auto mode"
    assert session.parent == LOCAL_IDS.session_named("s-1").id
    checks = sum_safety_checks(lines)
    assert (checks.requests, checks.tokens_after, checks.cost_usd) == (2, 70_000, pytest.approx(0.1402))
    assert sum(line.requests for line in lines) == 4
    words = "2 safety checks of Claude Code's auto mode: 70,000 tokens, 0.1402 USD"
    assert describe_safety_checks(checks) == words
    assert f"\nof these, {words}\n" in as_text(lines, None)
    told = as_json(lines, None)["safety_checks"]
    assert isinstance(told, dict)
    assert (told["requests"], told["tokens_after"]) == (2, 70_000)

"""What the provider takes out of a request by itself is not counted as in the window, and no saving of ours."""

import json
from pathlib import Path

import pytest
from tests import outputs
from tests.conversations import Assistant, Call, Item, Result, User, body
from tests.evil import Heard, Line, evil, http
from tests.model import Says, events
from tests.model import body as answer_body

from kimi_proxy.core import tokens
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.config import parse as parse_config
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.context import tokens_of
from kimi_proxy.services.chat.handler import ChatRequest
from kimi_proxy.services.runtime import running

LOG = outputs.pytest_log(300)
EDITS: JsonValue = {"edits": [{"type": "clear_tool_uses_20250919"}]}
APPLIED: JsonObject = {
    "applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 50_000}]
}
ITEMS: list[Item] = [User(LOG.goal), Assistant("", (Call("call_a1"),)), Result("call_a1", LOG.text)]


async def cleared(heard: Heard, line: Line) -> None:
    """Anthropic counts what is left, and says what it took."""
    says = Says("So.", tokens=(10_000, 9))
    if not json.loads(heard.body).get("stream"):
        whole = json.loads(answer_body(Wire.MESSAGES, says))
        await line.send(http(json.dumps({**whole, "context_management": APPLIED}).encode()))
        return
    raw = b"".join(events(Wire.MESSAGES, says))
    said = json.dumps({"context_management": APPLIED})[1:-1].encode()
    await line.stream(raw.replace(b'{"type": "message_delta", ', b'{"type": "message_delta", ' + said + b", "))


@pytest.mark.parametrize("stream", [True, False])
async def test_the_account_is_of_what_was_sent_and_the_window_of_what_was_read(stream: bool, tmp_path: Path):
    filler: list[Item] = [User("words " * 59_000), Assistant("ok"), *ITEMS]
    raw = body(Wire.MESSAGES, filler, stream=stream, context_management=EDITS)
    async with evil(cleared) as provider:
        toml = f"{provider.toml('anthropic')}[sanitizer]\nbudget_ms = 60000\nthreshold_tokens = 1000\n"
        async with running(parse_config(toml, {}, tmp_path)) as runtime:
            async with runtime.chat.answer(ChatRequest(Wire.MESSAGES, raw)) as answer:
                _ = [piece async for piece in answer.rest] if answer.rest else []
            (metric,) = [metric async for page in runtime.sessions.metrics(None) for metric in page]

    account = metric.account
    assert account is not None
    assert metric.tokens == 10_000
    # By the provider's count alone, it would be a sixth of what was cut.
    assert account.tokens_before - account.tokens_after == pytest.approx(metric.tokens_saved, rel=0.1)


def test_what_was_compacted_is_not_counted_any_more():
    block: JsonObject = {"type": "compaction", "content": "what was said so far"}
    later: list[JsonValue] = [
        {"role": "user", "content": "old words " * 1000},
        {"role": "assistant", "content": [block, {"type": "text", "text": "Go on."}]},
        {"role": "user", "content": "next"},
    ]
    asked: JsonObject = {
        "model": "m",
        "messages": later,
        "context_management": {"edits": [{"type": "compact_20260112"}]},
    }
    request = parse(json.dumps(asked).encode(), Wire.MESSAGES)

    assert request.is_cleared and request.read_from == 1
    assert tokens_of(request, tokens.count) < 40


async def test_a_compaction_that_codex_asks_for_passes_untouched(tmp_path: Path):
    """Nothing may follow the trigger, and what was compacted before comes back as it was."""
    value = json.loads(body(Wire.RESPONSES, [User("hi"), Assistant("hello")], tools=()))
    value["input"] += [{"type": "compaction", "encrypted_content": "x" * 9000}, {"type": "compaction_trigger"}]
    raw = json.dumps(value).encode()

    async def answer(heard: Heard, line: Line) -> None:
        await line.send(http(answer_body(Wire.RESPONSES, Says("So."))))

    async with evil(answer) as provider:
        toml = f"{provider.toml()}[reinjection]\nenabled = true\nthreshold = 0.01\n"
        async with (
            running(parse_config(toml, {}, tmp_path)) as runtime,
            runtime.chat.answer(ChatRequest(Wire.RESPONSES, raw)),
        ):
            pass

    assert [heard.body for heard in provider.heard] == [raw]

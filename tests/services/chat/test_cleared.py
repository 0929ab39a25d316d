"""What the provider takes out of a request by itself is not counted as in the window, and no saving of ours."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import outputs
from tests.support.conversations import Assistant, Call, Item, Result, User, body
from tests.support.evil import Heard, Line, evil, http
from tests.support.model import Says, events
from tests.support.model import body as answer_body

from kimi_proxy.assembly.runtime import running
from kimi_proxy.core import tokens
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.config import parse as parse_config
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.chat.context import tokens_of
from kimi_proxy.features.chat.sessions import LOCAL_IDS
from kimi_proxy.features.sanitizer.lossless import readable_before
from kimi_proxy.features.sanitizer.plan import plan
from kimi_proxy.services.chat.requests import ChatRequest

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
            async with runtime.chat.answer(ChatRequest(LOCAL, Wire.MESSAGES, raw)) as answer:
                _ = [piece async for piece in answer.rest] if answer.rest else []
            (metric,) = [metric async for page in runtime.sessions.metrics(LOCAL, None) for metric in page]

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
            runtime.chat.answer(ChatRequest(LOCAL, Wire.RESPONSES, raw)),
        ):
            pass

    assert [heard.body for heard in provider.heard] == [raw]


def compacted_by_openai(**more: JsonValue) -> bytes:
    """A conversation to which the client has added all that came back, the compaction among it."""
    value = json.loads(body(Wire.RESPONSES, [User("old words " * 1000), Assistant("ok"), User("next")]))
    value["input"].insert(2, {"type": "compaction", "id": "cmp_1", "encrypted_content": "x" * 400})
    return json.dumps({**value, **more}).encode()


def test_what_openai_compacted_by_itself_is_not_counted_any_more():
    asked: JsonValue = [{"type": "compaction", "compact_threshold": 200_000}]
    request = parse(compacted_by_openai(context_management=asked), Wire.RESPONSES)

    assert request.is_cleared and request.read_from == 2
    assert tokens_of(request, tokens.count) < 600


def test_what_codex_keeps_before_a_compaction_is_read_by_the_model():
    """It asked for the compaction, and sends the user's messages again in front of it."""
    request = parse(compacted_by_openai(), Wire.RESPONSES)

    assert not request.is_cleared and request.read_from == 0
    assert tokens_of(request, tokens.count) > 2000


COMPACTED: dict[Wire, JsonObject] = {
    Wire.MESSAGES: {"role": "assistant", "content": [{"type": "compaction", "content": "The log was read."}]},
    Wire.RESPONSES: {"type": "compaction", "id": "cmp_1", "encrypted_content": "x" * 400},
}
CLEARING: dict[Wire, JsonValue] = {
    Wire.MESSAGES: {"edits": [{"type": "compact_20260112"}]},
    Wire.RESPONSES: [{"type": "compaction", "compact_threshold": 200_000}],
}


async def answers(heard: Heard, line: Line) -> None:
    wire = Wire.RESPONSES if heard.target.startswith("/v1/responses") else Wire.MESSAGES
    await line.send(http(answer_body(wire, Says("So.", tokens=(500, 9)))))


@pytest.mark.parametrize(("wire", "kind"), [(Wire.MESSAGES, "anthropic"), (Wire.RESPONSES, "openai")])
async def test_a_cut_in_what_was_compacted_is_repeated_and_saves_nothing_any_more(
    wire: Wire, kind: str, tmp_path: Path
):
    first = json.loads(body(wire, ITEMS, context_management=CLEARING[wire]))
    then = json.loads(json.dumps(first))
    next_turn = json.loads(body(wire, [User("and now?")]))[wire.format.conversation]
    then[wire.format.conversation] += [COMPACTED[wire], *next_turn]
    async with evil(answers) as provider:
        toml = f"{provider.toml(kind)}[sanitizer]\nbudget_ms = 60000\nthreshold_tokens = 1000\n"
        async with running(parse_config(toml, {}, tmp_path)) as runtime:
            for value in (first, then):
                async with runtime.chat.answer(ChatRequest(LOCAL, wire, json.dumps(value).encode())) as answer:
                    _ = [piece async for piece in answer.rest] if answer.rest else []
            stats = await runtime.sanitizer.stats(LOCAL)
            both = [metric async for page in runtime.sessions.metrics(LOCAL, None) for metric in page]

    before, after = (parse(heard.body, wire) for heard in provider.heard)
    (cut,), (repeated,) = (
        [part.text for message in each.messages for part in message.parts if part.kind == "tool_result"]
        for each in (before, after)
    )
    assert cut == repeated != LOG.text
    nothing, saved = sorted((metric.tokens_saved for metric in both), key=abs)
    assert abs(nothing) < 100 < saved, "but for our tool, which is offered"
    assert stats["since_start"]["tokens_saved"] == pytest.approx(saved, rel=0.1)


def test_a_result_that_is_gone_or_may_go_is_not_pointed_to():
    once, twice = (
        json.loads(body(Wire.MESSAGES, [*ITEMS[:1], Assistant("", (Call(id),)), Result(id, LOG.text)]))
        for id in ("call_a1", "call_a2")
    )
    messages = [*once["messages"], COMPACTED[Wire.MESSAGES], *twice["messages"]]
    asked: JsonObject = {"model": "m", "messages": messages}
    gone, last = plan(parse(json.dumps(asked).encode(), Wire.MESSAGES), 1000)
    cleared: JsonObject = {**asked, "context_management": EDITS}
    (first, second) = plan(parse(json.dumps(cleared).encode(), Wire.MESSAGES), 1000)

    assert (gone.stays, last.stays, first.stays, second.stays) == (False, True, False, False)
    assert readable_before([gone], {}, last) == []
    assert len(readable_before([replace(gone, stays=True)], {}, last)) == 1


async def test_a_compaction_of_its_own_is_in_the_account_of_its_session(tmp_path: Path):
    raw = body(Wire.RESPONSES, ITEMS)
    compacted = {"id": "resp_9", "object": "response.compaction", "output": [COMPACTED[Wire.RESPONSES]]}
    usage = {"input_tokens": 40_000, "output_tokens": 900, "total_tokens": 40_900}

    async def compact(heard: Heard, line: Line) -> None:
        await line.send(http(json.dumps({**compacted, "usage": usage}).encode()))

    async with evil(compact) as provider, running(parse_config(provider.toml(), {}, tmp_path)) as runtime:
        asked = ChatRequest(LOCAL, Wire.RESPONSES, raw, ((b"session-id", b"mine"),))
        async with runtime.chat.relay(asked, "POST", "/v1/responses/compact") as answer:
            shown = json.loads(answer.body)
        (metric,) = [metric async for page in runtime.sessions.metrics(LOCAL, None) for metric in page]

    assert shown["output"] == compacted["output"]
    assert [(heard.target, heard.body) for heard in provider.heard] == [("/v1/responses/compact", raw)]
    assert (metric.session, metric.tokens) == (LOCAL_IDS.session_named("mine").id, 40_000)
    assert metric.tokens_saved == 0

"""The real libraries put an answer together in which our tool was called, and notice nothing."""

from pathlib import Path

import pytest
from tests.clients import sdks
from tests.support.api.proxy_world import proxy
from tests.support.conversations import body
from tests.support.deep import too
from tests.support.evil import evil
from tests.support.model import Says
from tests.support.services.chat.recall import ITEMS, THEIRS, Model, recovering

from kimi_proxy.core import json
from kimi_proxy.core.chat import Wire

SETTINGS = "[sanitizer]\nbudget_ms = 60000\n"


def told(wire: Wire) -> dict[str, object]:
    value = json.decode(body(wire, ITEMS))
    assert isinstance(value, dict)
    return value


def model(wire: Wire) -> Model:
    first = Says("Hm.", (recovering(),), tokens=(100, 5), id="answer-1")
    return Model(wire, [first, Says(" There.", (THEIRS,), tokens=(120, 7), id="answer-2")])


@pytest.mark.parametrize("stream", [True, False])
async def test_openai_chat(tmp_path: Path, stream: bool):
    async with (
        evil(model(Wire.CHAT)) as provider,
        proxy(tmp_path, provider.toml() + SETTINGS) as p,
        sdks.openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{p.port}/v1", api_key="x", timeout=60) as sdk,
    ):
        if stream:
            options = {"stream_options": {"include_usage": True}}
            async with sdk.chat.completions.stream(**told(Wire.CHAT), **options) as events:
                answer = await events.get_final_completion()
        else:
            answer = await sdk.chat.completions.create(**told(Wire.CHAT))
    (choice,) = answer.choices
    (call,) = choice.message.tool_calls

    assert (choice.message.role, choice.message.content, choice.finish_reason) == (
        "assistant",
        "Hm. There.",
        "tool_calls",
    )
    assert (call.id, call.function.name, call.function.arguments) == (THEIRS.id, "bash", THEIRS.written)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (120, 7, 127)


@pytest.mark.parametrize("stream", [True, too(False)])
@pytest.mark.parametrize(("kind", "spoken"), [("anthropic", Wire.MESSAGES), ("openai", Wire.CHAT)])
async def test_anthropic_messages(tmp_path: Path, stream: bool, kind: str, spoken: Wire):
    """Also where they are translated for a provider that speaks chat completions."""
    async with (
        evil(model(spoken)) as provider,
        proxy(tmp_path, provider.toml(kind) + SETTINGS) as p,
        sdks.anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{p.port}", api_key="x", timeout=60) as sdk,
    ):
        if stream:
            async with sdk.messages.stream(**told(Wire.MESSAGES)) as events:
                answer = await events.get_final_message()
        else:
            answer = await sdk.messages.create(**told(Wire.MESSAGES))

    assert [block.type for block in answer.content] == ["text", "text", "tool_use"]
    assert [block.text for block in answer.content[:2]] == ["Hm.", " There."]
    assert (answer.content[2].id, answer.content[2].input) == (THEIRS.id, THEIRS.arguments)
    assert (answer.stop_reason, answer.usage.input_tokens, answer.usage.output_tokens) == ("tool_use", 120, 7)


@pytest.mark.parametrize("stream", [True, too(False)])
@pytest.mark.parametrize(("translate", "spoken"), [([], Wire.RESPONSES), (["responses"], Wire.CHAT)])
async def test_openai_responses(tmp_path: Path, stream: bool, translate: list[str], spoken: Wire):
    """Also where they are translated for a provider that speaks chat completions."""
    async with (
        evil(model(spoken)) as provider,
        proxy(tmp_path, provider.toml(translate=translate) + SETTINGS) as p,
        sdks.openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{p.port}/v1", api_key="x", timeout=60) as sdk,
    ):
        if stream:
            async with sdk.responses.stream(**told(Wire.RESPONSES)) as events:
                answer = await events.get_final_response()
        else:
            answer = await sdk.responses.create(**told(Wire.RESPONSES))

    assert [item.type for item in answer.output] == ["message", "message", "function_call"]
    assert answer.output_text == "Hm. There."
    assert (answer.output[2].call_id, answer.output[2].arguments) == (THEIRS.id, THEIRS.written)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (120, 7)

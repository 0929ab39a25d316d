"""The vendors' own libraries in front of a provider that speaks chat completions only."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.clients import sdks
from tests.support.api.proxy_world import proxy
from tests.support.clients.provider import Provider
from tests.support.core.chat.streams import DONE, STOP, delta, line
from tests.support.core.chat.streams import said as spoken
from tests.support.evil import Evil, Heard, Line, Script, answering, evil, http

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

READ = {"name": "read", "input_schema": {"type": "object"}}
WHOLE = {
    "id": "c1",
    "model": "kimi",
    "choices": [{"message": {"content": "Voilà"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
}


@asynccontextmanager
async def anthropic(tmp_path: Path, script: Script) -> AsyncIterator[tuple["AsyncAnthropic", Evil]]:
    async with (
        evil(script) as provider,
        proxy(tmp_path, provider.toml("openai")) as p,
        sdks.anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{p.port}", api_key="k", timeout=60) as sdk,
    ):
        yield sdk, provider


@asynccontextmanager
async def openai(tmp_path: Path, script: Script) -> AsyncIterator[tuple["AsyncOpenAI", Evil]]:
    async with (
        evil(script) as provider,
        proxy(tmp_path, provider.toml("openai", translate=["responses"])) as p,
        sdks.openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{p.port}/v1", api_key="k", timeout=60) as sdk,
    ):
        yield sdk, provider


def said(words: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": words}]


async def test_anthropic_s_library_collects_words_and_a_call_and_goes_on(tmp_path: Path):
    async with anthropic(tmp_path, Provider()) as (sdk, provider):
        async with sdk.messages.stream(model="m", max_tokens=9, messages=said("hi"), tools=[READ]) as stream:
            message = await stream.get_final_message()
        words, call = message.content
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "print()"}]
        more = [*said("hi"), {"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
        async with sdk.messages.stream(model="m", max_tokens=9, messages=more, tools=[READ]) as stream:
            await stream.get_final_message()

    assert words.text == "Voilà, 你好 👩‍👩‍👧‍👦"
    assert (call.type, call.id, call.name, call.input) == ("tool_use", "call_1", "read", {"path": "é.py"})
    assert (message.stop_reason, message.usage.output_tokens) == ("tool_use", 30)
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (20, 100)
    first, second = (json.loads(heard.body) for heard in provider.heard)
    assert [heard.target for heard in provider.heard] == ["/v1/chat/completions"] * 2
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert second["messages"][-2]["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path":"é.py"}'}
    assert second["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "print()"}


async def test_a_thought_goes_back_to_the_provider_by_anthropic_s_library(tmp_path: Path):
    stream = line(delta({"reasoning_content": "hm"})) + spoken("so") + STOP + DONE
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

    async def script(heard: Heard, line: Line) -> None:
        await line.send(head, stream.encode())
        line.finish()

    async with anthropic(tmp_path, script) as (sdk, provider):
        async with sdk.messages.stream(model="m", max_tokens=9, messages=said("hi")) as events:
            message = await events.get_final_message()
        more = [*said("hi"), {"role": "assistant", "content": message.content}, *said("go on")]
        async with sdk.messages.stream(model="m", max_tokens=9, messages=more) as events:
            await events.get_final_message()

    answered = json.loads(provider.heard[1].body)["messages"][-2]
    assert answered == {"role": "assistant", "content": "so", "reasoning_content": "hm"}


async def test_anthropic_s_library_reads_an_answer_in_one_piece(tmp_path: Path):
    async with anthropic(tmp_path, answering(http(json.dumps(WHOLE).encode()))) as (sdk, _):
        named = {"user_id": "u"}
        raw = await sdk.messages.with_raw_response.create(model="m", max_tokens=9, messages=said("hi"), metadata=named)
        counted = await sdk.messages.count_tokens(model="m", messages=said("hello"))
    message = await raw.parse()

    assert raw.headers["x-kimi-proxy-dropped"] == "metadata"
    assert (message.content[0].text, message.stop_reason) == ("Voilà", "end_turn")
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (5, 4)
    assert counted.input_tokens > 0


async def test_what_cannot_be_carried_is_the_library_s_own_error(tmp_path: Path):
    search = {"type": "web_search_20250305", "name": "web_search"}
    async with anthropic(tmp_path, Provider()) as (sdk, provider):
        with pytest.raises(sdks.anthropic.BadRequestError, match="web_search_20250305"):
            await sdk.messages.create(model="m", max_tokens=9, messages=said("hi"), tools=[search])

    assert provider.heard == []


async def test_a_stream_that_breaks_off_is_an_exception(tmp_path: Path):
    async with (
        anthropic(tmp_path, Provider()) as (sdk, _),
        sdk.messages.stream(model="m", max_tokens=9, messages=said("break off")) as stream,
    ):
        with pytest.raises(sdks.anthropic.APIStatusError, match="broke off"):
            await stream.get_final_message()


async def test_openai_s_library_collects_words_and_a_call_and_goes_on(tmp_path: Path):
    tools = [{"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False}]
    async with openai(tmp_path, Provider()) as (sdk, provider):
        async with sdk.responses.stream(model="m", input=said("hi"), tools=tools) as stream:
            kinds = [event.type async for event in stream]
            response = await stream.get_final_response()
        _, call = response.output
        results = [{"type": "function_call_output", "call_id": call.call_id, "output": "print()"}]
        items = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
        async with sdk.responses.stream(model="m", input=[*said("hi"), *items, *results], tools=tools) as stream:
            await stream.get_final_response()

    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert response.output_text == "Voilà, 你好 👩‍👩‍👧‍👦"
    assert (call.type, call.call_id, call.name) == ("function_call", "call_1", "read")
    assert json.loads(call.arguments) == {"path": "é.py"}
    assert (response.status, response.usage.input_tokens, response.usage.output_tokens) == ("completed", 120, 30)
    assert response.usage.input_tokens_details.cached_tokens == 100
    first, second = (json.loads(heard.body) for heard in provider.heard)
    assert [heard.target for heard in provider.heard] == ["/v1/chat/completions"] * 2
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert second["messages"][-2]["tool_calls"][0]["function"]["name"] == "read"
    assert second["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "print()"}


async def test_openai_s_library_reads_an_answer_in_one_piece(tmp_path: Path):
    async with openai(tmp_path, answering(http(json.dumps(WHOLE).encode()))) as (sdk, _):
        raw = await sdk.responses.with_raw_response.create(model="m", input="hi", reasoning={"effort": "high"})
        with pytest.raises(sdks.openai.BadRequestError, match="previous_response_id"):
            await sdk.responses.create(model="m", input="more", previous_response_id=raw.parse().id)
    response = raw.parse()

    assert raw.headers["x-kimi-proxy-dropped"] == "reasoning.effort"
    assert (response.output_text, response.status) == ("Voilà", "completed")
    assert (response.usage.input_tokens, response.usage.input_tokens_details.cached_tokens) == (9, 4)


async def test_a_stream_of_openai_s_library_that_breaks_off_is_an_exception(tmp_path: Path):
    async with openai(tmp_path, Provider()) as (sdk, _):
        with pytest.raises(sdks.openai.APIError, match="broke off"):
            async with sdk.responses.stream(model="m", input=said("break off")) as stream:
                await stream.get_final_response()

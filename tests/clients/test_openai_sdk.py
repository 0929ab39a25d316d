"""OpenAI's own library streams words and tool calls through the proxy as if nobody stood between."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.clients import sdks
from tests.support.api.proxy_world import proxy
from tests.support.clients.provider import Provider
from tests.support.evil import Evil, evil

if TYPE_CHECKING:
    from openai import AsyncOpenAI

KEY = "sk-of-the-client"
READ = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


@asynccontextmanager
async def client(tmp_path: Path) -> AsyncIterator[tuple["AsyncOpenAI", Evil]]:
    async with (
        evil(Provider()) as provider,
        proxy(tmp_path, provider.toml()) as p,
        sdks.openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{p.port}/v1", api_key=KEY, timeout=60) as sdk,
    ):
        yield sdk, provider


def said(words: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": words}]


async def test_chunks_never_come_without_a_choice_unless_usage_was_asked_for(tmp_path: Path):
    async with client(tmp_path) as (sdk, provider):
        stream = await sdk.chat.completions.create(model="m", messages=said("hi"), tools=[READ], stream=True)
        chunks = [chunk async for chunk in stream]

    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Voilà, 你好 👩‍👩‍👧‍👦"
    assert (calls[0].id, calls[0].function.name) == ("call_1", "read")
    assert "".join(call.function.arguments or "" for call in calls) == '{"path":"é.py"}'
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert provider.heard[0].header("authorization") == f"Bearer {KEY}"


async def test_usage_comes_to_who_asks(tmp_path: Path):
    async with client(tmp_path) as (sdk, _):
        stream = await sdk.chat.completions.create(
            model="m", messages=said("hi"), stream=True, stream_options={"include_usage": True}
        )
        usage = [chunk.usage async for chunk in stream][-1]

    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (120, 30)


async def test_the_helper_that_collects_a_stream_collects_all_of_it(tmp_path: Path):
    async with (
        client(tmp_path) as (sdk, _),
        sdk.chat.completions.stream(model="m", messages=said("hi"), tools=[READ]) as stream,
    ):
        completion = await stream.get_final_completion()

    calls = completion.choices[0].message.tool_calls
    assert calls is not None
    assert [call.function.arguments for call in calls] == ['{"path":"é.py"}']


async def test_responses_stream_with_their_function_calls(tmp_path: Path):
    async with client(tmp_path) as (sdk, _):
        stream = await sdk.responses.create(model="m", input="hi", stream=True)
        events = [event async for event in stream]

    assert [event.type for event in events][-1] == "response.completed"
    assert "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta") == '{"path":"é.py"}'


async def test_a_stream_that_breaks_off_is_an_exception(tmp_path: Path):
    async with client(tmp_path) as (sdk, _):
        stream = await sdk.chat.completions.create(model="m", messages=said("break off"), stream=True)
        with pytest.raises((sdks.openai.APIConnectionError, httpx.RemoteProtocolError)):
            _ = [chunk async for chunk in stream]


async def test_a_response_that_breaks_off_is_an_exception(tmp_path: Path):
    async with client(tmp_path) as (sdk, _):
        stream = await sdk.responses.create(model="m", input="break off", stream=True)
        with pytest.raises(sdks.openai.APIError, match="broke off"):
            _ = [event async for event in stream]


async def test_the_library_waits_and_asks_again_as_the_provider_told_it(tmp_path: Path):
    async with client(tmp_path) as (sdk, provider):
        stream = await sdk.chat.completions.create(model="m", messages=said("slow down"), stream=True)
        assert len([chunk async for chunk in stream]) > 3

    assert len(provider.heard) == 2


async def test_our_own_errors_are_the_library_s(tmp_path: Path):
    async with (
        proxy(tmp_path, "") as p,
        sdks.openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{p.port}/v1", api_key=KEY) as sdk,
    ):
        with pytest.raises(sdks.openai.BadRequestError, match="no configured provider can answer") as refused:
            await sdk.chat.completions.create(model="m", messages=said("hi"))
        assert [model.id async for model in sdk.models.list()] == []

    assert refused.value.code == "no_provider"

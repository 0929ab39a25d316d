"""Anthropic's own library streams words and tool calls through the proxy as if nobody stood between."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.clients import sdks
from tests.support.api.proxy_world import proxy
from tests.support.clients.provider import Provider
from tests.support.evil import Evil, answering, evil, http

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

KEY = "sk-of-the-client"
READ = {"name": "Read", "input_schema": {"type": "object"}}


@asynccontextmanager
async def client(tmp_path: Path) -> AsyncIterator[tuple["AsyncAnthropic", Evil]]:
    async with (
        evil(Provider()) as provider,
        proxy(tmp_path, provider.toml("anthropic")) as p,
        sdks.anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{p.port}", api_key=KEY, timeout=60) as sdk,
    ):
        yield sdk, provider


def said(words: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": words}]


async def test_words_and_a_tool_call_are_collected(tmp_path: Path):
    async with (
        client(tmp_path) as (sdk, provider),
        sdk.messages.stream(model="m", max_tokens=9, messages=said("hi"), tools=[READ]) as stream,
    ):
        message = await stream.get_final_message()

    words, call = message.content
    assert (words.type, words.text) == ("text", "Voilà, 你好")
    assert (call.type, call.id, call.name, call.input) == ("tool_use", "toolu_1", "Read", {"path": "é.py"})
    assert (message.stop_reason, message.usage.output_tokens) == ("tool_use", 25)
    assert provider.heard[0].target == "/v1/messages"
    assert KEY in dict(provider.heard[0].headers)["authorization"]


async def test_a_stream_that_breaks_off_is_an_exception(tmp_path: Path):
    async with (
        client(tmp_path) as (sdk, _),
        sdk.messages.stream(model="m", max_tokens=9, messages=said("break off")) as stream,
    ):
        with pytest.raises(sdks.anthropic.APIStatusError, match="broke off"):
            await stream.get_final_message()


async def test_the_library_waits_and_asks_again_as_the_provider_told_it(tmp_path: Path):
    async with (
        client(tmp_path) as (sdk, provider),
        sdk.messages.stream(model="m", max_tokens=9, messages=said("slow down")) as stream,
    ):
        await stream.get_final_message()

    assert len(provider.heard) == 2


async def test_tokens_are_counted_by_the_provider(tmp_path: Path):
    async with (
        evil(answering(http(b'{"input_tokens":42}'))) as provider,
        proxy(tmp_path, provider.toml("anthropic")) as p,
        sdks.anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{p.port}", api_key=KEY) as sdk,
    ):
        counted = await sdk.messages.count_tokens(model="m", messages=said("hi"))

    assert counted.input_tokens == 42


async def test_our_own_errors_are_the_library_s(tmp_path: Path):
    async with (
        proxy(tmp_path, "") as p,
        sdks.anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{p.port}", api_key=KEY) as sdk,
    ):
        with pytest.raises(sdks.anthropic.BadRequestError, match="no configured provider"):
            await sdk.messages.create(model="m", max_tokens=9, messages=said("hi"))
        assert [model.id async for model in sdk.models.list()] == []

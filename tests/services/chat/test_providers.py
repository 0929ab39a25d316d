"""A client of one API is answered by a provider that speaks another; where that is switched off, it is refused.

A provider is asked for as many requests at once as its limit allows, then for as many as drain.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.clients.provider import CHAT
from tests.support.core.chat.streams import said
from tests.support.evil import Evil, Heard, Line, Script, answering, evil, http

from kimi_proxy.assembly.addons import AddonForms
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import InvalidParams, NoProvider, UpstreamDisconnected
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.proxy.headers import Header, UpstreamRequest
from kimi_proxy.proxy.upstream import Upstreams
from kimi_proxy.services.chat.handler import Chat
from kimi_proxy.services.chat.observers import ChatObserver
from kimi_proxy.services.chat.providers import Rate, TranslatingClient
from kimi_proxy.services.chat.relay import Answer, Exchange
from kimi_proxy.services.chat.requests import ChatRequest
from kimi_proxy.services.metrics import Metrics

WHOLE = {
    "id": "c1",
    "model": "kimi",
    "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2},
}


class Ends(ChatObserver):
    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def on_end(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)


@asynccontextmanager
async def world(
    script: Script, kind: str = "openai", env: dict[str, str] | None = None, **settings: JsonValue
) -> AsyncIterator[tuple[Chat, Evil, Ends]]:
    ends = Ends()
    async with evil(script) as provider:
        config = parse(provider.toml(kind, **settings), env or {}, Path("home"))
        upstreams = Upstreams(config.providers, config.provider_keys)
        client = TranslatingClient(upstreams, config.providers, upstreams.model_list, AddonForms(config.providers))
        try:
            yield Chat(config, client, Metrics(), observers=[ends]), provider, ends
        finally:
            await upstreams.close()


BODIES: dict[Wire, JsonObject] = {
    Wire.MESSAGES: {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    Wire.RESPONSES: {"model": "m", "max_output_tokens": 9, "input": "hi"},
}
BOTH = ["messages", "responses"]


async def ask(
    chat: Chat, headers: tuple[Header, ...] = (), wire: Wire = Wire.MESSAGES, **more: JsonValue
) -> tuple[Answer, bytes]:
    """The answer, and all of its body."""
    body: JsonObject = {**BODIES[wire], **more}
    question = ChatRequest(LOCAL, wire, json.dumps(body).encode(), headers, "beta=true")
    async with chat.answer(question) as answer:
        rest = [piece async for piece in answer.rest] if answer.rest else []
        return answer, answer.body + b"".join(rest)


def ok(value: JsonValue = WHOLE) -> Script:
    return answering(http(json.dumps(value).encode()))


async def streams(heard: Heard, line: Line) -> None:
    await line.stream(CHAT.encode())


async def breaks_off(heard: Heard, line: Line) -> None:
    await line.stream(said("hi").encode())


async def test_a_request_reaches_the_provider_in_its_own_api():
    sent = ((b"anthropic-version", b"2023-06-01"), (b"anthropic-beta", b"x"), (b"x-api-key", b"secret"))
    async with world(ok()) as (chat, provider, ends):
        answer, body = await ask(chat, sent, top_k=1)

    heard = provider.heard[0]
    assert heard.target == "/v1/chat/completions"
    assert json.loads(heard.body)["messages"] == [{"role": "user", "content": "hi"}]
    assert (heard.header("authorization"), heard.header("x-api-key")) == ("Bearer secret", None)
    assert (heard.header("anthropic-version"), heard.header("anthropic-beta")) == (None, None)
    assert json.loads(body)["content"] == [{"type": "text", "text": "hi"}]
    assert dict(answer.headers)[b"x-kimi-proxy-dropped"] == b"top_k"
    assert ends.exchanges[0].usage is not None
    assert (ends.exchanges[0].outcome, ends.exchanges[0].usage.input_tokens) == ("ok", 9)


async def test_a_stream_is_translated_and_counted():
    async with world(streams) as (chat, provider, ends):
        answer, body = await ask(chat, stream=True)

    assert json.loads(provider.heard[0].body)["stream_options"] == {"include_usage": True}
    assert dict(answer.headers)[b"content-type"] == b"text/event-stream"
    assert b"x-kimi-proxy-dropped" not in dict(answer.headers)
    assert body.startswith(b"event: message_start\n")
    assert body.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
    assert (ends.exchanges[0].outcome, ends.exchanges[0].reply.finish) == ("ok", "tool_use")


async def test_a_request_of_the_responses_api_is_translated_where_the_provider_does_not_speak_it():
    sent = (
        *((b"authorization", b"Bearer secret"), (b"openai-beta", b"x"), (b"x-codex-window-id", b"w")),
        *((b"chatgpt-account-id", b"a"), (b"session-id", b"s")),
    )
    async with world(ok(), translate=BOTH) as (chat, provider, ends):
        answer, body = await ask(chat, sent, Wire.RESPONSES, prompt_cache_key="k")

    heard, shown = provider.heard[0], json.loads(body)
    assert heard.target == "/v1/chat/completions"
    assert json.loads(heard.body) == {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    assert (heard.header("authorization"), heard.header("session-id")) == ("Bearer secret", "s")
    assert [heard.header(name) for name in ("openai-beta", "x-codex-window-id", "chatgpt-account-id")] == [None] * 3
    assert shown["output"][0]["content"][0]["text"] == "hi"
    assert dict(answer.headers)[b"x-kimi-proxy-dropped"] == b"prompt_cache_key"
    assert ends.exchanges[0].usage is not None
    assert (ends.exchanges[0].outcome, ends.exchanges[0].usage.input_tokens) == ("ok", 9)


async def test_a_stream_of_the_responses_api_is_translated_and_counted():
    async with world(streams, translate=BOTH) as (chat, provider, ends):
        answer, body = await ask(chat, wire=Wire.RESPONSES, stream=True)

    assert json.loads(provider.heard[0].body)["stream_options"] == {"include_usage": True}
    assert dict(answer.headers)[b"content-type"] == b"text/event-stream"
    assert body.startswith(b"event: response.created\n")
    assert (ends.exchanges[0].outcome, ends.exchanges[0].reply.finish) == ("ok", "completed")
    assert ends.exchanges[0].usage is not None
    assert ends.exchanges[0].usage.cached_tokens == 100


async def test_a_provider_is_asked_in_the_responses_api_unless_its_settings_say_otherwise():
    async with world(answering(http(b"{}"))) as (chat, provider, _):
        await ask(chat, wire=Wire.RESPONSES)

    assert provider.heard[0].target == "/v1/responses?beta=true"


async def test_what_only_the_responses_api_has_is_not_sent_to_a_provider_that_does_not_speak_it():
    body = b'{"model":"m","input":[]}'
    async with world(ok(), translate=BOTH) as (chat, provider, _):
        with pytest.raises(NoProvider):
            async with chat.relay(ChatRequest(LOCAL, Wire.RESPONSES, body), "POST", "/v1/responses/compact"):
                pass
        with pytest.raises(InvalidParams, match="previous_response_id"):
            await ask(chat, wire=Wire.RESPONSES, previous_response_id="resp_1")

    assert provider.heard == []


async def test_our_key_goes_and_no_login_of_another_provider_does():
    login = ((b"authorization", b"Bearer sk-ant-oat01-x"),)
    async with world(ok()) as (chat, provider, _):
        await ask(chat, login)
    async with world(ok(), env={"KEY": "ours"}, api_key="${KEY}") as (chat, keyed, _):
        await ask(chat, login)

    assert provider.heard[0].header("authorization") is None
    assert keyed.heard[0].header("authorization") == "Bearer ours"


async def test_a_refusal_of_the_provider_keeps_its_status_and_takes_the_client_s_form():
    words = b'{"error":{"message":"slow down"}}'
    refusal = http(words, "429 Too Many Requests", "application/json", "Retry-After: 7")
    async with world(answering(refusal)) as (chat, _, _):
        answer, body = await ask(chat, stream=True)

    error = {"type": "rate_limit_error", "message": "slow down", "code": "upstream_error"}
    assert (answer.status, json.loads(body)) == (429, {"type": "error", "error": error})
    assert dict(answer.headers)[b"retry-after"] == b"7"


async def test_a_stream_that_breaks_off_is_not_given_an_end():
    async with world(breaks_off) as (chat, _, ends):
        with pytest.raises(UpstreamDisconnected):
            await ask(chat, stream=True)

    assert ends.exchanges[0].outcome == "upstream_disconnected"


async def test_a_field_that_cannot_be_carried_is_refused_before_anything_leaves():
    async with world(ok()) as (chat, provider, _):
        with pytest.raises(InvalidParams, match="mcp_servers"):
            await ask(chat, mcp_servers=[{"url": "https://example.com"}])

    assert provider.heard == []


async def test_a_long_request_is_translated_too():
    long = "x" * 400_000
    async with world(ok()) as (chat, provider, _):
        await ask(chat, messages=[{"role": "user", "content": long}])

    assert json.loads(provider.heard[0].body)["messages"][0]["content"] == long


async def test_where_translation_is_switched_off_the_client_is_refused():
    async with world(ok(), translate=[]) as (chat, provider, _):
        with pytest.raises(NoProvider):
            await ask(chat)
        with pytest.raises(NoProvider, match="does not support"):
            await ask(chat, model="openai-evil/m")

    assert provider.heard == []


async def test_tokens_for_such_a_provider_are_counted_here():
    body = b'{"model":"m","messages":[{"role":"user","content":"hello"}]}'
    async with world(ok()) as (chat, provider, _), chat.count_tokens(ChatRequest(LOCAL, Wire.MESSAGES, body)) as answer:
        counted = json.loads(answer.body)

    assert counted["input_tokens"] > 0
    assert provider.heard == []


async def test_a_provider_s_models_are_listed_in_its_own_api():
    asked: list[UpstreamRequest] = []

    async def list_models(name: str, question: UpstreamRequest) -> JsonValue:
        asked.append(question)
        return None

    async with evil(ok()) as provider:
        config = parse(provider.toml(), {}, Path("home"))
        upstreams = Upstreams(config.providers, {})
        client = TranslatingClient(upstreams, config.providers, list_models, AddonForms(config.providers))
        await client.model_list("openai-evil", UpstreamRequest(Wire.MESSAGES, b"", ((b"x-api-key", b"secret"),)))
        await upstreams.close()

    assert asked == [UpstreamRequest(Wire.CHAT, b"", ((b"authorization", b"Bearer secret"),))]


async def test_openai_is_given_the_limit_under_its_newer_name():
    async with evil(ok()) as provider:
        toml = f'[providers.openai]\nbase_url = "{provider.url}"\napi_key = ""\n'
        config = parse(toml, {}, Path("home"))
        upstreams = Upstreams(config.providers, {})
        client = TranslatingClient(upstreams, config.providers, upstreams.model_list, AddonForms(config.providers))
        await ask(Chat(config, client, Metrics()))
        await upstreams.close()

    assert json.loads(provider.heard[0].body)["max_completion_tokens"] == 9


def test_known_providers_without_the_responses_api_are_asked_in_chat_completions():
    toml = '[providers.mine]\nbase_url = "https://api.moonshot.ai/v1/"\napi_key = ""\n'
    providers = parse(toml, {}, Path("home")).providers

    assert {name for name, each in providers.items() if each.translates(Wire.RESPONSES)} == {
        *("mine", "kimi", "kimi-code", "nvidia", "mistral", "zai", "gemini"),
    }
    assert all(
        each.speaks(Wire.RESPONSES) != each.translates(Wire.RESPONSES) or each.type in ("anthropic", "code-assist")
        for each in providers.values()
    )


async def test_a_provider_that_speaks_the_client_s_api_gets_its_bytes():
    async with world(answering(http(b"{}")), "anthropic") as (chat, provider, _):
        answer, _ = await ask(chat, top_k=1)

    assert provider.heard[0].target == "/v1/messages?beta=true"
    assert b"x-kimi-proxy-dropped" not in dict(answer.headers)


def test_a_full_bucket_is_spent_at_once_and_refills_with_time():
    rate = Rate(6)
    for _ in range(6):
        assert rate.wait_s(100.0) == 0
        rate = rate.with_request(100.0)

    assert rate.wait_s(100.0) == pytest.approx(10)
    assert rate.wait_s(105.0) == pytest.approx(5)
    assert rate.wait_s(110.0) == pytest.approx(0)
    assert rate.with_request(110.0).wait_s(110.0) == pytest.approx(10)
    assert rate.wait_s(1000.0) == 0


def test_no_limit_is_no_limit():
    rate = Rate(0)
    for _ in range(1000):
        rate = rate.with_request(1.0)

    assert rate.wait_s(1.0) == 0


def test_a_clock_that_jumps_back_blocks_nobody_for_long():
    rate = Rate(60).with_request(1000.0)

    assert rate.wait_s(0.0) == 0

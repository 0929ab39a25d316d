"""The life of a chat request: what a step changed leaves, and a step that fails changes nothing."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.fakes import Clock
from tests.support.services.chat.handling import BODY, LONG, world

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, edit
from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import NoProvider
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.services.chat.handler import Chat
from kimi_proxy.services.chat.relay import Answer
from kimi_proxy.services.chat.requests import ChatRequest
from kimi_proxy.services.metrics import Metrics


async def cuts(draft: Draft) -> Draft:
    request = edit.with_texts(draft.request, {(0, 0): "short"})
    return replace(draft, request=request, answer_headers=((b"x-kimi-proxy-cut", b"1"),))


class Breaks:
    async def stage(self, draft: Draft) -> Draft:
        raise RuntimeError


async def ask(chat: Chat, body: bytes = BODY) -> Answer:
    async with chat.answer(ChatRequest(LOCAL, Wire.CHAT, body)) as answer:
        return answer


async def test_what_a_stage_changed_leaves_and_the_answer_says_so():
    async with world(cuts) as (chat, provider, _):
        answer = await ask(chat)

    assert (answer.status, answer.body) == (200, b"{}")
    assert (b"x-kimi-proxy-cut", b"1") in answer.headers
    assert provider.heard[0].body == BODY.replace(LONG.encode(), b"short")


async def test_an_answer_says_how_long_its_request_was_held_and_a_stream_does_not():
    clock = Clock()

    async def takes_its_time(draft: Draft) -> Draft:
        clock.advance(0.0123)
        return draft

    async with world(takes_its_time, now=clock) as (chat, _, _):
        answer = await ask(chat)
        stream = await ask(chat, BODY[:-1] + b',"stream":true}')

    assert dict(answer.headers)[b"x-kimi-proxy-overhead-ms"] == b"12.3"
    assert b"x-kimi-proxy-overhead-ms" not in dict(stream.headers)


async def test_a_stage_that_fails_changes_nothing_and_is_counted():
    async with world(Breaks().stage) as (chat, provider, metrics):
        answer = await ask(chat)

    assert (answer.status, provider.heard[0].body) == (200, BODY)
    assert 'kimi_proxy_chat_faults_total{code="RuntimeError",stage="breaks"} 1.0' in metrics.text().decode()


async def test_without_a_provider_nobody_is_asked():
    chat = Chat(parse("", {}, Path("home")), None, Metrics())

    with pytest.raises(NoProvider):
        await ask(chat)

"""The life of a chat request: what stages change leaves, but never before its originals are kept."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.evil import Evil, answering, evil, http
from tests.fakes import MemoryStore

from kimi_proxy.core.chat import Wire, edit
from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import NoProvider, StoreUnavailable
from kimi_proxy.features.pipeline import Draft, Kept, Stage
from kimi_proxy.proxy.upstream import Upstreams
from kimi_proxy.services.chat import Asked, Chat
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.relay import Answer

LONG = "a long tool result"
BODY = json.dumps({"model": "m", "messages": [{"role": "tool", "content": LONG}]}).encode()


def cuts(draft: Draft) -> Draft:
    kept = Kept("msk_0123456789abcdef", LONG, {"what": "test"})
    return replace(draft, request=edit.with_texts(draft.request, {(0, 0): "short"}), kept=(kept,))


def breaks(draft: Draft) -> Draft:
    raise RuntimeError


@asynccontextmanager
async def world(*stages: Stage) -> AsyncIterator[tuple[Chat, Evil, MemoryStore, Metrics]]:
    store, metrics = MemoryStore(), Metrics()
    async with evil(answering(http(b"{}"))) as provider:
        config = parse(provider.toml(), {}, Path("home"))
        upstreams = Upstreams(config.providers, config.provider_keys)
        try:
            yield Chat(config, upstreams, store, metrics, chosen=stages), provider, store, metrics
        finally:
            await upstreams.close()


async def ask(chat: Chat, body: bytes = BODY) -> Answer:
    async with chat.answer(Asked(Wire.CHAT, body)) as answer:
        return answer


async def test_what_a_stage_changed_leaves_once_its_original_is_kept():
    async with world(cuts) as (chat, provider, store, _):
        answer = await ask(chat)

    assert (answer.status, answer.body) == (200, b"{}")
    assert provider.heard[0].body == BODY.replace(LONG.encode(), b"short")
    assert [original.text.decode() for original in store.originals.values()] == [LONG]


@pytest.mark.parametrize("is_stuck", [False, True])
async def test_what_cannot_be_kept_leaves_whole(is_stuck: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kimi_proxy.services.chat.KEEP_S", 0.2)
    async with world(cuts) as (chat, provider, store, metrics):
        store.illness, store.is_stuck = StoreUnavailable("ill"), is_stuck
        await ask(chat)

    assert provider.heard[0].body == BODY
    assert 'kimi_proxy_chat_faults_total{code="recovery_unavailable",stage="keep"} 1.0' in metrics.text().decode()


async def test_a_stage_that_fails_changes_nothing_and_is_counted():
    async with world(breaks) as (chat, provider, _, metrics):
        answer = await ask(chat)

    assert (answer.status, provider.heard[0].body) == (200, BODY)
    assert 'kimi_proxy_chat_faults_total{code="RuntimeError",stage="breaks"} 1.0' in metrics.text().decode()


async def test_without_a_provider_nobody_is_asked():
    chat = Chat(parse("", {}, Path("home")), None, MemoryStore(), Metrics())

    with pytest.raises(NoProvider):
        await ask(chat)

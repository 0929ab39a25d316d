"""Observers of chat requests: a failure of one costs neither the request nor the others their end."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.conversations import User, body
from tests.support.evil import Heard, Line, evil, http
from tests.support.model import Says
from tests.support.model import body as answer_body

from kimi_proxy.assembly.runtime import running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.proxy.headers import Header
from kimi_proxy.services.chat.observers import ChatObserver
from kimi_proxy.services.chat.relay import Exchange
from kimi_proxy.services.chat.requests import ChatRequest


class Failing(ChatObserver):
    """Fails in one of its methods."""

    def __init__(self, fails_in: str) -> None:
        self._fails_in = fails_in

    def _fail(self, method: str) -> None:
        if method == self._fails_in:
            raise RuntimeError(method)

    def on_start(self, received: Draft, outgoing: Draft) -> None:
        self._fail("on_start")

    def headers_for(self, outgoing: Draft) -> tuple[Header, ...]:
        self._fail("headers_for")
        return ((b"x-first", b"1"),)

    def on_end(self, exchange: Exchange) -> None:
        self._fail("on_end")


class Noting(ChatObserver):
    """Notes the ids of the requests that began and ended."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []

    def on_start(self, received: Draft, outgoing: Draft) -> None:
        self.begun.append(outgoing.id)

    def headers_for(self, outgoing: Draft) -> tuple[Header, ...]:
        return ((b"x-second", outgoing.id.encode()),)

    def on_end(self, exchange: Exchange) -> None:
        self.ended.append(exchange.draft.id)


async def answers(heard: Heard, line: Line) -> None:
    await line.send(http(answer_body(Wire.CHAT, Says("So."))))


async def ask(home: Path, observers: Sequence[ChatObserver], count: int = 1) -> list[Heard]:
    """Send requests at the same time; each must be answered, and be in the journal with its end."""
    async with (
        evil(answers) as provider,
        running(parse(provider.toml(), {}, home), observers=observers, thread_max_chars=10**9) as runtime,
    ):

        async def one() -> None:
            async with runtime.chat.answer(ChatRequest(LOCAL, Wire.CHAT, body(Wire.CHAT, [User("go")]))) as answer:
                assert answer.status == 200
                async for _ in answer.pieces():
                    pass

        await asyncio.gather(*(one() for _ in range(count)))
        await runtime.sessions.caught_up()
        metrics = [metric async for page in runtime.sessions.metrics(LOCAL, None) for metric in page]
        assert [metric.outcome for metric in metrics] == ["ok"] * count
        return provider.heard


@pytest.mark.parametrize("fails_in", ["on_start", "headers_for", "on_end"])
async def test_an_observer_that_fails_costs_neither_the_request_nor_its_end(tmp_path: Path, fails_in: str):
    noting = Noting()

    (heard,) = await ask(tmp_path, [Failing(fails_in), noting])

    assert len(noting.begun) == 1 and noting.ended == noting.begun
    assert heard.header("x-second") == noting.begun[0], "the other's header is sent"
    assert heard.header("x-first") == (None if fails_in == "headers_for" else "1")


async def test_each_request_begins_and_ends_under_one_id_of_its_own(tmp_path: Path):
    noting = Noting()

    heard = await ask(tmp_path, [noting], count=20)

    assert len(set(noting.begun)) == 20 and sorted(noting.ended) == sorted(noting.begun)
    assert {each.header("x-second") for each in heard} == set(noting.begun)

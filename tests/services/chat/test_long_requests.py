"""Long requests take turns, and short ones pass them."""

import asyncio
import json
from collections import Counter

import pytest
from tests.support.processes import until
from tests.support.services.chat.handling import BODY, world

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.services.chat.handler import Chat
from kimi_proxy.services.chat.long_requests import LONG_BYTES
from kimi_proxy.services.chat.requests import ChatRequest

LONG = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * LONG_BYTES}]}).encode()
ADA, BEN = Caller("person/a", "ada", person_id="psn_a"), Caller("person/b", "ben", person_id="psn_b")


class Gate:
    """A stage that waits, and notes whose long requests are in it."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.is_open = asyncio.Event()

    async def stage(self, draft: Draft) -> Draft:
        if len(draft.request.body) <= LONG_BYTES:
            return draft
        who = draft.caller.person
        self.inside[who] += 1
        self.most[who] = max(self.most[who], self.inside[who])
        self.most["all"] = max(self.most["all"], self.inside.total())
        await self.is_open.wait()
        await asyncio.sleep(0.01)
        self.inside[who] -= 1
        return draft


async def ask(chat: Chat, who: Caller, body: bytes) -> int:
    async with chat.answer(ChatRequest(who, Wire.CHAT, body)) as answer:
        return answer.status


@pytest.mark.parametrize(
    ("people", "most"),
    [([ADA] * 8, {"ada": 1}), ([ADA] * 4 + [BEN] * 4, {"ada": 1, "ben": 1}), ([LOCAL] * 8, {"": 2})],
)
async def test_two_long_requests_are_prepared_at_once_and_one_of_each_person(
    people: list[Caller], most: dict[str, int]
):
    """Eight of 27 MB made everyone wait for nine seconds: all were read and shortened at the same time."""
    gate = Gate()
    async with world(gate.stage) as (chat, _, _):
        asking = [asyncio.create_task(ask(chat, who, LONG)) for who in people]
        await until(lambda: gate.inside.total() == min(2, sum(most.values())))
        assert await ask(chat, BEN, BODY) == 200, "a short one passes them"
        gate.is_open.set()
        statuses = [await one for one in asking]

    assert statuses == [200] * 8
    assert dict(gate.most) == {**most, "all": sum(most.values())}


async def test_a_client_that_hangs_up_while_it_waits_takes_no_turn():
    gate = Gate()
    async with world(gate.stage) as (chat, _, _):
        first = asyncio.create_task(ask(chat, ADA, LONG))
        await until(lambda: gate.inside.total() == 1)
        gone = asyncio.create_task(ask(chat, ADA, LONG))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        gate.is_open.set()

        assert await first == 200
        assert await ask(chat, ADA, LONG) == 200

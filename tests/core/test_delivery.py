"""Whoever wrote an answer hears once whether it was sent."""

import asyncio

from kimi_proxy.core import jsonrpc


def test_without_a_door_an_answer_counts_as_sent():
    told: list[bool] = []

    jsonrpc.when_sent(told.append)

    assert told == [True]


async def test_a_door_tells_its_own_listeners_once():
    told: list[tuple[str, bool]] = []

    async def answer(name: str, sent: bool) -> None:
        listeners = jsonrpc.collect()
        await asyncio.sleep(0)
        # A tool may answer from a task below the door's.
        await asyncio.create_task(register(name))
        assert (name, sent) not in told
        jsonrpc.report(listeners, sent)
        jsonrpc.report(listeners, not sent)

    async def register(name: str) -> None:
        jsonrpc.when_sent(lambda sent: told.append((name, sent)))

    await asyncio.gather(answer("a", True), answer("b", False))

    assert sorted(told) == [("a", True), ("b", False)]

"""Envelopes as strangers fold them."""

import asyncio

import pytest

from kimi_proxy.core import json, jsonrpc
from kimi_proxy.core.errors import InvalidRequest


@pytest.mark.parametrize("number", ["1e400", "-1e400"])
def test_an_id_beyond_all_numbers_is_refused_since_no_answer_could_repeat_it(number: str):
    message = json.decode(f'{{"jsonrpc":"2.0","method":"ping","id":{number}}}'.encode())

    with pytest.raises(InvalidRequest, match="id must be a string or a number"):
        jsonrpc.read(message)
    assert jsonrpc.id_of(message) is None


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "123456789012345678901234567890"])
def test_any_other_number_is_an_id(number: str):
    message = json.decode(f'{{"jsonrpc":"2.0","method":"ping","id":{number}}}'.encode())
    call = jsonrpc.read(message)

    assert call is not None
    assert json.encode(jsonrpc.success(call.id, {})) == f'{{"jsonrpc":"2.0","id":{number},"result":{{}}}}'.encode()


# Whoever wrote an answer hears once whether it was sent.


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

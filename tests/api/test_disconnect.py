"""Work for a client is cancelled when the client disconnects, and not before."""

import asyncio

import pytest
from starlette.types import Message

from kimi_proxy.api.disconnect import until_disconnect


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def taken(message: Message) -> None:
    pass


async def test_work_that_ends_in_time_is_left_alone():
    async with until_disconnect(never, taken) as client:
        await client.send(b"x", more=False)
        done = True

    assert done


async def test_work_ends_when_the_client_hangs_up():
    hangs_up = asyncio.Event()

    async def receive() -> Message:
        await hangs_up.wait()
        return {"type": "http.disconnect"}

    reached = False
    async with until_disconnect(receive, taken):
        hangs_up.set()
        await asyncio.Event().wait()
        reached = True

    assert not reached
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_work_ends_when_the_client_does_not_read_any_longer():
    async def send(message: Message) -> None:
        await asyncio.Event().wait()

    reached = False
    async with until_disconnect(never, send, stall_s=0.05) as client:
        await client.send(b"x", more=True)
        reached = True

    assert not reached


async def test_a_client_that_waits_for_us_is_not_stalled():
    async with until_disconnect(never, taken, stall_s=0.05) as client:
        await client.send(b"x", more=True)
        await asyncio.sleep(0.2)
        await client.send(b"y", more=False)


async def test_a_server_that_stops_is_heard():
    begun = asyncio.Event()

    async def work() -> None:
        async with until_disconnect(never, taken):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_goes_wrong_in_the_work_is_heard():
    with pytest.raises(ValueError, match="wrong"):
        async with until_disconnect(never, taken):
            raise ValueError("wrong")

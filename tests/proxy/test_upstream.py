"""Answers of providers: fast ones take turns."""

import asyncio

from kimi_proxy.proxy.upstream import FairTurns


async def test_of_many_fast_answers_a_few_go_on_in_one_turn_of_the_loop():
    turns, went_on, per_loop_turn = FairTurns(per_turn=2), 0, []

    async def answer() -> None:
        nonlocal went_on
        for _ in range(5):
            await turns.take()
            went_on += 1

    tasks = [asyncio.create_task(answer()) for _ in range(6)]
    while not all(task.done() for task in tasks):
        before = went_on
        await asyncio.sleep(0)
        per_loop_turn.append(went_on - before)

    assert went_on == 30
    assert max(per_loop_turn) == 2


async def test_turns_are_given_in_the_order_in_which_they_were_asked_for():
    turns, order = FairTurns(per_turn=1), []

    async def answer(name: str) -> None:
        for _ in range(3):
            await turns.take()
            order.append(name)

    await asyncio.gather(answer("a"), answer("b"), answer("c"))

    assert "".join(order) == "abcabcabc"


async def test_an_answer_whose_client_hung_up_holds_no_other_back():
    turns = FairTurns(per_turn=1)
    gone, waiting = asyncio.create_task(turns.take()), asyncio.create_task(turns.take())
    await asyncio.sleep(0)
    gone.cancel()

    await asyncio.wait_for(waiting, 30)
    await asyncio.wait_for(turns.take(), 30)

    assert gone.cancelled()

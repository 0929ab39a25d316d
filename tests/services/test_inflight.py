import asyncio

import pytest

from kimi_proxy.services.pruner import InFlight


class Work:
    """Counts how often it begins, and ends when it is told to."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> str:
        self.begun += 1
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return f"answer {self.begun}"


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_equal_questions_share_one_answer() -> None:
    inflight, work = InFlight[str, str](), Work()
    callers = [asyncio.create_task(inflight.share("q", work)) for _ in range(8)]
    await _settled()
    work.may_end.set()
    assert await asyncio.gather(*callers) == ["answer 1"] * 8


async def test_a_question_asked_after_the_answer_begins_anew() -> None:
    inflight, work = InFlight[str, str](), Work()
    work.may_end.set()
    assert [await inflight.share("q", work), await inflight.share("q", work)] == ["answer 1", "answer 2"]


async def test_other_questions_are_not_shared() -> None:
    inflight, work = InFlight[str, str](), Work()
    work.may_end.set()
    await asyncio.gather(inflight.share("q", work), inflight.share("r", work))
    assert work.begun == 2


async def test_a_caller_who_gives_up_leaves_the_work_to_the_others() -> None:
    inflight, work = InFlight[str, str](), Work()
    first = asyncio.create_task(inflight.share("q", work))
    second = asyncio.create_task(inflight.share("q", work))
    await _settled()
    first.cancel()
    await _settled()
    work.may_end.set()
    assert await second == "answer 1"
    assert (first.cancelled(), work.cancelled) == (True, 0)


async def test_the_last_caller_to_give_up_ends_the_work_before_leaving() -> None:
    inflight, work = InFlight[str, str](), Work()
    callers = [asyncio.create_task(inflight.share("q", work)) for _ in range(3)]
    await _settled()
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    assert work.cancelled == 1
    work.may_end.set()
    assert await inflight.share("q", work) == "answer 2"


async def test_a_failure_reaches_every_caller() -> None:
    async def fails() -> str:
        await asyncio.sleep(0)
        raise LookupError("no")

    inflight = InFlight[str, str]()
    found = await asyncio.gather(*(inflight.share("q", fails) for _ in range(3)), return_exceptions=True)
    assert [type(f) for f in found] == [LookupError] * 3
    with pytest.raises(LookupError):
        await inflight.share("q", fails)

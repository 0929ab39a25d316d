"""A result is shown as a repeat only of what the model can still read."""

import asyncio
import gc
import time
from pathlib import Path

import pytest
from tests.support import outputs
from tests.support.conversations import Assistant, Call, Item, Result, User, request, results
from tests.support.deep import too
from tests.support.services.chat.sanitizing import Clock, world

from kimi_proxy.core import tokens
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config.sections import SanitizerSettings as Settings
from kimi_proxy.features.sanitizer.policy import POLICIES

BY_POLICY = Settings(budget_ms=60_000)
QUOTING = ("bash", "read_file", "edit_file")  # such an agent reads files whole up to 8,000 tokens
FILE = outputs.source_file().text.split("\n")


def read(*texts: str, first: int = 0, path: str = "a.py") -> list[Item]:
    """The same file, read several times in one turn."""
    ids = [f"c{first + n}" for n in range(len(texts))]
    calls = tuple(Call(id, "read_file", {"path": path}) for id in ids)
    return [Assistant("", calls), *(Result(id, text) for id, text in zip(ids, texts, strict=True))]


async def test_a_result_that_is_cut_in_the_same_request_is_not_pointed_to(tmp_path: Path):
    text = "\n".join(FILE[:700])
    items = [User("go"), *read(text, f"{text}\n# the end")]
    async with world(tmp_path, BY_POLICY) as here:
        await here.send(request(Wire.CHAT, items[:1]))
        draft = await here.send(request(Wire.CHAT, items))
        first, second = results(draft.request)["c0"], results(draft.request)["c1"]

    assert tokens.count(text) > 4000
    assert "⟦PRUNÉ" in first
    assert "déjà montré" not in second and "# the end" in second


async def test_a_huge_repeat_is_shown_within_bounds_when_what_it_points_to_goes(tmp_path: Path):
    shorter, longer = "\n".join(FILE[:700]), "\n".join(FILE[:1200])
    small = [
        item
        for n in range(2, POLICIES["careful"].keep_newest + 1)
        for item in read(f"# {n}\n" + "x = 1\n" * 300, first=n, path=f"{n}.py")
    ]
    clock, items = Clock(), [User("go"), *read(shorter), *read(longer, first=1)]
    async with world(tmp_path, Settings(budget_ms=60_000, policy="careful"), clock=clock) as here:
        for until in (items[:1], items[:3], items):
            warm = await here.send(request(Wire.CHAT, until, QUOTING))
        clock.now += 3600
        cold = await here.send(request(Wire.CHAT, [*items, *small, User("next")], QUOTING))
        shown = results(cold.request)

    assert tokens.count(shorter) < 8_000 < tokens.count(longer)
    assert "déjà montré plus haut" in results(warm.request)["c1"]
    assert "résultat ancien" in shown["c0"] and "déjà montré" not in shown["c1"]
    assert tokens.count(shown["c1"]) <= 8_000


async def test_without_our_tool_an_old_result_ends_with_how_to_read_it(tmp_path: Path):
    items: list[Item] = [User("go")]
    for n in range(6):
        items += read("\n".join(FILE[90 * n : 90 * n + 90]), first=n, path=f"{n}.py")
    async with world(tmp_path, Settings(budget_ms=60_000, policy="deep")) as here:
        draft = await here.send(request(Wire.CHAT, [*items, Assistant("ok"), User("next")], tools=()))
        first = results(draft.request)["c0"]

    assert "résultat ancien" in first
    assert first.endswith("?lines=START-END]") and "/api/mask/prn_" in first


@pytest.mark.parametrize("count", [1000, too(5000)])
async def test_thousands_of_results_do_not_hold_the_event_loop(tmp_path: Path, count: int):
    log = outputs.pytest_log(600).text
    pieces = (f"run {at}\n{log[at * 37 % 20_000 :][:5000]}" for at in range(count))
    items = [item for at, text in enumerate(pieces) for item in read(text, first=at)]
    long = request(Wire.CHAT, [User("find the test that fails"), *items])
    worst, is_done = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal worst
        last = time.thread_time()
        while not is_done.is_set():
            await asyncio.sleep(0)
            last, before = time.thread_time(), last
            worst = max(worst, last - before)

    async with world(tmp_path, Settings()) as here:
        await here.send(request(Wire.CHAT, [User("go"), *read(log)]))  # loads what is loaded only once
        gc.freeze()  # as a server does once it is up: what the tests hold is not looked through
        watching = asyncio.create_task(watch())
        await asyncio.sleep(0)
        for _ in range(2):
            await here.send(long)
        is_done.set()
        await watching

    # In CPU time of the loop's own thread, because the machine may be busy with other things.
    assert worst < 0.05


async def test_a_copy_that_a_client_repeats_unasked_points_to_the_first_although_that_was_cut(tmp_path: Path):
    """As aider does, which reports what a test printed after each of its edits."""
    log = outputs.pytest_log(800).text
    report = f"I ran this command:\n\npytest\n\nAnd got this output:\n\n{log}"
    items: list[Item] = [User("Fix the test."), Assistant("Ok.")]
    async with world(tmp_path, BY_POLICY) as here:
        for turn in range(4):
            items += [User(report), Assistant(f"Edit {turn}.")]
            draft = await here.send(request(Wire.CHAT, items[:-1]))
    said = [part.text for message in draft.request.messages for part in message.parts if "I ran" in part.text]

    assert "⟦PRUNÉ" in said[0] and "déjà montré" not in said[0]
    assert all("déjà montré plus haut" in text and len(text) < 500 for text in said[1:])

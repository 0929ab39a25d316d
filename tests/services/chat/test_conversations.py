"""Conversations that begin in the same words are kept apart by what the model answers."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from tests.support.conversations import Assistant, Call, Item, Result, User, body, request
from tests.support.evil import Heard, Line, evil, http
from tests.support.fakes import MemoryFacts
from tests.support.model import Says
from tests.support.model import body as answer_body

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.features.chat.sessions import LOCAL_IDS, Session, session_of
from kimi_proxy.services.chat.requests import ChatRequest
from kimi_proxy.services.chat.session_lookup import Conversations, SessionsByAnswer

in_process = partial(running, thread_max_chars=10**9)

FIRST: list[Item] = [User("do it")]


async def answers(heard: Heard, line: Line) -> None:
    if b"overloaded" in heard.body:
        await line.send(http(b"{}", "529 Overloaded"))
        return
    await line.send(http(answer_body(Wire.CHAT, Says("So."))))


@asynccontextmanager
async def world(home: Path) -> AsyncIterator[Runtime]:
    async with evil(answers) as provider, in_process(parse(provider.toml(), {}, home)) as runtime:
        yield runtime


async def ask(runtime: Runtime, items: Sequence[Item], tools: Sequence[str] = ("bash",), user: str = "") -> str:
    """Return the session of the request."""
    raw = body(Wire.CHAT, items, tools=tuple(tools), **({"user": user} if user else {}))
    async with runtime.chat.answer(ChatRequest(LOCAL, Wire.CHAT, raw)) as answer:
        _ = [piece async for piece in answer.rest] if answer.rest else []
    newest = [metric async for page in runtime.sessions.metrics(LOCAL, None) for metric in page]
    return max(newest, key=lambda metric: metric.at).session


def run(name: str, turns: int, result: str = "ok") -> list[Item]:
    """A run of an agent after that many answers, whose calls have ids of their own."""
    items = [*FIRST]
    for turn in range(turns):
        id = f"call_{name}_{turn}"
        items += [Assistant("", (Call(id),)), Result(id, result)]
    return items


async def test_two_runs_with_the_same_prompt_are_two_sessions_also_after_a_restart(tmp_path: Path):
    async with world(tmp_path) as runtime:
        one = [await ask(runtime, run("a", turns)) for turns in range(3)]
        two = [await ask(runtime, run("b", turns)) for turns in range(3)]
    async with world(tmp_path) as runtime:
        again = [await ask(runtime, run(name, 3)) for name in "ab"]
        third = [await ask(runtime, run("c", turns)) for turns in range(2)]

    assert (len(set(one)), len(set(two)), len(set(third))) == (1, 1, 1)
    assert len({one[0], two[0], third[0]}) == 3
    assert again == [one[0], two[0]]


async def test_runs_side_by_side_do_not_mix_once_they_were_answered(tmp_path: Path):
    async with world(tmp_path) as runtime:
        begun = {await ask(runtime, FIRST) for _ in "ab"}
        went_on = [await ask(runtime, run(name, turns)) for turns in (1, 2, 3) for name in "ab"]

    assert len(begun) == 2
    assert set(went_on[0::2]) | set(went_on[1::2]) == begun
    assert (len(set(went_on[0::2])), len(set(went_on[1::2]))) == (1, 1)


async def test_runs_whose_provider_numbers_calls_anew_are_told_apart_by_their_results(tmp_path: Path):
    async with world(tmp_path) as runtime:
        begun = {await ask(runtime, FIRST) for _ in "ab"}
        went_on = [await ask(runtime, run("x", turns, at)) for turns in (1, 2, 3) for at in ("10:00", "10:01")]
    async with world(tmp_path) as runtime:
        restarted = [await ask(runtime, run("x", 4, at)) for at in ("10:00", "10:01")]

    assert (len(set(went_on[0::2])), len(set(went_on[1::2]))) == (1, 1)
    assert set(went_on) == begun and restarted == went_on[:2]


async def test_runs_that_are_the_same_to_the_byte_are_two_sessions_if_one_follows_the_other(tmp_path: Path):
    async with world(tmp_path) as runtime:
        one = [await ask(runtime, run("x", turns)) for turns in range(4)]
        two = [await ask(runtime, run("x", turns)) for turns in range(4)]

    assert (len(set(one)), len(set(two)), len({*one, *two})) == (1, 1, 2)


async def test_a_second_request_that_is_repeated_after_a_failure_stays_in_its_session(tmp_path: Path):
    async with world(tmp_path) as runtime:
        begun = {await ask(runtime, FIRST) for _ in "ab"}
        failed = await ask(runtime, run("a", 1), user="overloaded")
        repeated = [await ask(runtime, run("a", turns)) for turns in (1, 2)]
        other = await ask(runtime, run("b", 1))

    assert {failed, *repeated} == {failed}
    assert {failed, other} == begun


async def test_a_request_that_is_repeated_after_a_failure_stays_in_its_session(tmp_path: Path):
    async with world(tmp_path) as runtime:
        failed = await ask(runtime, FIRST, user="overloaded")
        repeated = [await ask(runtime, FIRST), await ask(runtime, run("a", 1))]

    assert {failed, *repeated} == {failed}


async def test_a_question_without_tools_that_is_asked_again_is_no_new_conversation(tmp_path: Path):
    async with world(tmp_path) as runtime:
        plain = {await ask(runtime, FIRST, tools=()) for _ in range(3)}
        agents = [await ask(runtime, [User("do it now")]) for _ in range(3)]

    assert len(plain) == 1
    assert len(set(agents)) == 3


async def test_a_client_that_drops_its_oldest_answers_goes_on_in_its_session(tmp_path: Path):
    async with world(tmp_path) as runtime:
        await ask(runtime, FIRST)
        whole = [await ask(runtime, run("a", turns)) for turns in (1, 12, 13)]
        await ask(runtime, FIRST)
        sliding = [await ask(runtime, [*FIRST, *run("a", turns)[-12:]]) for turns in (14, 15, 16)]

    assert len({*whole, *sliding}) == 1


async def test_a_conversation_of_named_sessions_is_as_its_client_says(tmp_path: Path):
    async with world(tmp_path) as runtime:
        raw = json.loads(body(Wire.CHAT, FIRST, tools=("bash",)))
        for _ in range(2):
            named = json.dumps({**raw, "metadata": {"session_id": "mine"}}).encode()
            async with runtime.chat.answer(ChatRequest(LOCAL, Wire.CHAT, named)):
                pass
        both = {metric.session async for page in runtime.sessions.metrics(LOCAL, None) for metric in page}

    assert len(both) == 1


async def test_a_conversation_goes_on_in_its_session_on_another_day_also_after_a_restart(tmp_path: Path):
    def reminded(day: str, turns: int) -> list[Item]:
        return [User(f"<system-reminder>\n{day}\n</system-reminder>\ndo it"), *run("a", turns)[1:]]

    async with world(tmp_path) as runtime:
        monday = [await ask(runtime, reminded("Monday", turns)) for turns in range(3)]
    async with world(tmp_path) as runtime:
        tuesday = [await ask(runtime, reminded("Tuesday", turns)) for turns in (3, 4)]

    assert len({*monday, *tuesday}) == 1


async def test_a_session_whose_beginning_had_reminders_in_an_older_version_goes_on():
    asked = request(Wire.CHAT, [User("<system-reminder>\nMonday\n</system-reminder>\ndo it"), *run("a", 1)[1:]])
    now, former = (session_of(asked, {}, "kimi", LOCAL_IDS, with_reminders) for with_reminders in (False, True))

    async def before() -> Session:
        return former

    facts = MemoryFacts()
    answers = SessionsByAnswer(facts)
    begun = await Conversations(answers).session(LOCAL, former, asked, before)
    await answers.close()
    answers = SessionsByAnswer(facts)
    found = [await Conversations(answers).session(LOCAL, now, asked, before) for _ in range(2)]
    await answers.close()

    assert now.id != former.id == begun.id
    assert [each.id for each in found] == [former.id, former.id]

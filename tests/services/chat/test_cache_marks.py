"""Marks for the provider's prompt cache: for clients that set none, and one more where a client leaves room."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, request
from tests.support.fakes import Clock

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.config.sections import CacheSettings
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.prompt_cache import digests
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target
from kimi_proxy.services.chat.prompt_cache import CacheMarks, PromptCaches

OPUS = Target("anthropic", "claude-opus-5")
LONG = "Tidy up the importer. " * 200
FIRST: list[Item] = [User(LONG)]
SECOND: list[Item] = [*FIRST, Assistant("", (Call("c1", "bash"),)), Result("c1", "done")]
THIRD: list[Item] = [*SECOND, Assistant("", (Call("c2", "bash"),)), Result("c2", "done")]
MARK: JsonObject = {"type": "ephemeral"}
HOUR: JsonObject = {"type": "ephemeral", "ttl": "1h"}


async def sent(
    caches: PromptCaches,
    asked: Request,
    session: str = "s",
    target: Target = OPUS,
    settings: CacheSettings | None = None,
) -> Draft:
    draft = Draft(asked, target, Session(session), LOCAL)
    return await CacheMarks(settings).change(replace(draft, cache=await caches.observe(draft)))


def marked_messages(draft: Draft) -> dict[int, JsonObject]:
    """Return the marks on the last blocks of messages."""
    messages = json.loads(draft.request.body)["messages"]
    blocks = {at: one["content"][-1] for at, one in enumerate(messages) if isinstance(one["content"], list)}
    return {at: block["cache_control"] for at, block in blocks.items() if "cache_control" in block}


async def test_a_client_without_marks_gets_two_from_its_second_request_on():
    caches = PromptCaches(now=Clock())
    drafts = [await sent(caches, request(Wire.MESSAGES, items)) for items in (FIRST, SECOND, THIRD)]

    assert [draft.is_marked for draft in drafts] == [False, True, True]
    assert [marked_messages(draft) for draft in drafts] == [{}, {0: MARK, 2: MARK}, {2: MARK, 4: MARK}]
    assert drafts[0].request.body == request(Wire.MESSAGES, FIRST).body


async def test_marks_change_nothing_that_a_cache_matches():
    asked = request(Wire.MESSAGES, THIRD)
    caches = PromptCaches(now=Clock())
    await sent(caches, request(Wire.MESSAGES, SECOND))
    left = (await sent(caches, asked)).request

    assert left.body != asked.body
    assert digests(left) == digests(asked)


async def test_a_conversation_that_we_mark_is_warm_from_then_on():
    clock = Clock()
    caches = PromptCaches(now=clock)
    cold: list[bool] = []
    for items in (FIRST, SECOND, THIRD):
        draft = await sent(caches, request(Wire.MESSAGES, items))
        cold.append(draft.cache is not None and draft.cache.is_cold)
        clock.advance(100)
    clock.advance(300)
    later = await sent(caches, request(Wire.MESSAGES, [*THIRD, Assistant("ok"), User("next")]))

    assert cold == [True, True, False]
    assert later.cache is not None and later.cache.is_cold


async def test_a_conversation_that_begins_as_another_did_has_what_they_share_marked():
    caches = PromptCaches(now=Clock())
    drafts = [await sent(caches, request(Wire.MESSAGES, [User(LONG + name)]), name) for name in ("a", "b")]
    systems = [json.loads(draft.request.body)["system"] for draft in drafts]

    assert isinstance(systems[0], str)
    assert systems[1] == [{"type": "text", "text": systems[0], "cache_control": MARK}]
    assert marked_messages(drafts[1]) == {}


@pytest.mark.parametrize(
    "draft",
    [
        (request(Wire.MESSAGES, THIRD, cache_control=MARK), OPUS, CacheSettings(anchor=False)),
        (request(Wire.MESSAGES, THIRD), OPUS, CacheSettings(marks=False)),
        (request(Wire.MESSAGES, THIRD), Target("kimi", "kimi-k3"), CacheSettings()),
        (request(Wire.CHAT, THIRD), OPUS, CacheSettings()),
        (request(Wire.MESSAGES, [User("short"), Assistant("ok"), User("next")]), OPUS, CacheSettings()),
    ],
    ids=("the client marks", "switched off", "a provider without marks", "an API without marks", "too short to cache"),
)
async def test_all_other_requests_leave_as_they_came(draft: tuple[Request, Target, CacheSettings]):
    asked, target, settings = draft
    caches = PromptCaches(now=Clock(), settings=settings)
    drafts = [await sent(caches, asked, target=target, settings=settings) for _ in range(2)]

    assert all(one.request is asked for one in drafts)


def turns(last: Sequence[JsonObject], system: JsonObject | None, first_user: JsonObject | None = None) -> Request:
    """Return two turns of the user's, the second with results; `last` are the marks on the newest blocks."""
    results = [
        {"type": "tool_result", "tool_use_id": f"c{at}", "content": "ok", "cache_control": mark}
        for at, mark in enumerate(last)
    ]
    calls = [{"type": "tool_use", "id": f"c{at}", "name": "bash", "input": {}} for at in range(len(last))]
    begin = {"type": "text", "text": "first", **({"cache_control": first_user} if first_user else {})}
    messages = [
        {"role": "user", "content": [begin]},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "second"},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
    ]
    prompt = {"type": "text", "text": "You are an agent.", **({"cache_control": system} if system else {})}
    body = {"model": "claude-opus-5", "system": [prompt], "messages": messages, "max_tokens": 1}
    return parse(json.dumps(body).encode(), Wire.MESSAGES)


async def test_an_anchor_stands_at_the_start_of_the_last_turn_with_the_life_of_the_mark_behind_it():
    five = await sent(PromptCaches(now=Clock()), turns([MARK], HOUR))
    hour = await sent(PromptCaches(now=Clock()), turns([HOUR], HOUR))

    assert marked_messages(five) == {2: MARK, 4: MARK}
    assert marked_messages(hour) == {2: HOUR, 4: HOUR}
    assert not five.is_marked


async def test_in_a_new_turn_the_anchor_stands_where_it_stood_before():
    asked = json.loads(turns([MARK], MARK).body)
    new = {"role": "user", "content": [{"type": "text", "text": "third", "cache_control": MARK}]}
    asked["messages"] += [{"role": "assistant", "content": "ok"}, new]
    draft = await sent(PromptCaches(now=Clock()), parse(json.dumps(asked).encode(), Wire.MESSAGES))

    assert marked_messages(draft) == {2: MARK, 4: MARK, 6: MARK}


async def test_there_is_never_a_fifth_mark_nor_one_where_the_conversation_is_not_cached():
    four = turns([MARK, MARK, MARK], MARK)
    only_system = parse(turns([], MARK).body, Wire.MESSAGES)

    assert (await sent(PromptCaches(now=Clock()), four)).request is four
    assert (await sent(PromptCaches(now=Clock()), only_system)).request is only_system

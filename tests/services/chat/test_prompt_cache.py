"""When the provider's prompt cache of a conversation is cold."""

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.conversations import Assistant, Item, User, request
from tests.support.fakes import Clock

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.reply import ReplyFacts, Usage
from kimi_proxy.core.config.sections import CacheSettings
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.prompt_cache import CacheMoment
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target
from kimi_proxy.services.chat.prompt_cache import MAX_BODIES, PromptCaches
from kimi_proxy.services.chat.relay import Exchange

NOW = 1_000_000.0
BEGUN: Sequence[Item] = [User("go"), Assistant("Done."), User("next")]


def last_at(at: float | None) -> PromptCaches:
    """Caches of a process that has just started; the session last sent something at that time."""

    async def last_request(who: Caller, session: str) -> float | None:
        return at

    return PromptCaches(last_request, now=lambda: NOW)


async def is_cold(caches: PromptCaches, items: Sequence[Item], wire: Wire = Wire.CHAT, **more: JsonValue) -> bool:
    draft = Draft(request(wire, items, **more), Target("kimi", "kimi-k2"), Session("s-1"), LOCAL)
    return (await caches.observe(draft)).is_cold


@pytest.mark.parametrize(("at", "cold"), [(NOW - 325, False), (NOW - 335, True), (None, True)])
async def test_after_a_restart_the_sessions_last_request_says(at: float | None, cold: bool):
    assert await is_cold(last_at(at), BEGUN) is cold


async def test_a_conversation_without_an_answer_is_new_in_a_session_that_is_busy():
    caches = last_at(NOW - 1)
    first = await is_cold(caches, BEGUN[:1])
    again = await is_cold(caches, BEGUN[:1])

    assert (first, again) == (True, False)


async def test_of_a_request_that_is_remembered_only_its_bytes_stay_in_memory():
    """What was parsed from them took several times their room, for each of thousands of conversations."""
    caches = last_at(None)
    draft = Draft(request(Wire.CHAT, BEGUN), Target("kimi", "kimi-k2"), Session("s-1"), LOCAL)
    await caches.observe(draft)
    parsed = weakref.ref(draft.request)
    del draft
    gc.collect()

    assert parsed() is None


async def test_the_bytes_of_the_newest_conversations_alone_stay_in_memory():
    """That the cached beginning changed is known of older ones, too; not which words of it did."""
    caches, target = last_at(NOW - 1), Target("kimi", "kimi-k2")

    async def send_as(session: str, said: str) -> CacheMoment:
        items: Sequence[Item] = [User("go"), Assistant(said), User("next")]
        return await caches.observe(Draft(request(Wire.CHAT, items), target, Session(session), LOCAL))

    for number in range(MAX_BODIES + 1):
        await send_as(f"s-{number}", "Done.")
    oldest, newest = await send_as("s-0", "No."), await send_as(f"s-{MAX_BODIES}", "No.")

    assert oldest.difference is not None and oldest.difference.detail == ""
    assert newest.difference is not None and "character 0" in newest.difference.detail


async def test_a_conversation_that_the_provider_keeps_is_the_same_when_it_goes_on():
    caches = last_at(NOW - 1)
    began = await is_cold(caches, BEGUN[:1], Wire.RESPONSES)
    goes_on = await is_cold(caches, [User("next")], Wire.RESPONSES, previous_response_id="resp_1")

    assert began and not goes_on


async def send(
    caches: PromptCaches, items: Sequence[Item], target: Target, usage: Usage | None = None, **more: JsonValue
) -> CacheMoment:
    """Let a request pass, with what the provider counts for it."""
    draft = Draft(request(Wire.MESSAGES, items, **more), target, Session("s-1"), LOCAL)
    moment = await caches.observe(draft)
    caches.on_end(Exchange(replace(draft, cache=moment), 200, "ok", ReplyFacts(usage=usage), 0.1, 1.0))
    return moment


OPUS = Target("anthropic", "claude-opus-5")
HOUR: JsonValue = {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.parametrize(("pause_s", "cold"), [(3608, False), (3629, False), (3631, True)])
async def test_a_cache_is_cold_half_a_minute_after_its_life(pause_s: float, cold: bool):
    clock = Clock()
    caches = PromptCaches(now=clock)
    await send(caches, BEGUN, OPUS, cache_control=HOUR)
    clock.advance(pause_s)

    assert (await send(caches, BEGUN, OPUS, cache_control=HOUR)).is_cold is cold


@pytest.mark.parametrize(
    ("provider", "model", "warm_s", "cold_s"),
    [
        ("openai", "gpt-5.5", 86_000, 86_500),
        ("openai", "gpt-5.6-terra", 1_800, 1_900),
        ("openai", "gpt-5", 3_600, 3_700),
        ("kimi", "kimi-k3", 300, 400),
        ("groq", "openai/gpt-oss-120b", 7_200, 7_300),
    ],
)
async def test_every_provider_has_a_life_of_its_own(provider: str, model: str, warm_s: float, cold_s: float):
    for pause_s, cold in ((warm_s, False), (cold_s, True)):
        clock = Clock()
        caches = PromptCaches(now=clock)
        await send(caches, BEGUN, Target(provider, model))
        clock.advance(pause_s)

        assert (await send(caches, BEGUN, Target(provider, model))).is_cold is cold


async def test_a_life_counts_from_the_end_of_the_answer_unless_the_provider_says_otherwise():
    async def is_cold_after(target: Target, **more: JsonValue) -> bool:
        clock = Clock()
        caches = PromptCaches(now=clock)
        draft = Draft(request(Wire.MESSAGES, BEGUN, **more), target, Session("s-1"), LOCAL)
        moment = await caches.observe(draft)
        clock.advance(120)
        caches.on_end(Exchange(replace(draft, cache=moment), 200, "ok", ReplyFacts(), 0.1, 120.0))
        clock.advance(300)
        return (await send(caches, BEGUN, target, **more)).is_cold

    assert not await is_cold_after(Target("kimi", "kimi-k3"))
    assert await is_cold_after(OPUS, cache_control={"type": "ephemeral"})


async def test_a_hit_after_a_long_pause_proves_that_the_cache_lives_longer():
    clock, kimi = Clock(), Target("kimi", "kimi-k3")
    caches = PromptCaches(now=clock)
    cold: list[bool] = []
    for cached in (0, 19_000, 19_000):
        cold.append((await send(caches, BEGUN, kimi, Usage(20_000, 10, cached))).is_cold)
        clock.advance(1_000)

    assert cold == [True, True, False]


async def test_after_a_change_of_the_clients_own_what_follows_it_is_cold():
    caches = PromptCaches(now=Clock())
    items = [User("go"), Assistant("a"), User("b"), Assistant("c"), User("d")]
    changed = [User("go"), Assistant("a"), User("B"), Assistant("c"), User("d"), Assistant("e"), User("f")]
    moments = [await send(caches, each, OPUS, cache_control=HOUR) for each in (items, changed, changed)]
    off = PromptCaches(now=Clock(), settings=CacheSettings(cut_after_change=False))
    left_alone = [await send(off, each, OPUS, cache_control=HOUR) for each in (items, changed)]

    assert [moment.cold_from for moment in moments] == [0, 2, None]
    assert [moment.cold_from for moment in left_alone] == [0, None]

"""When the provider's prompt cache of a conversation is cold."""

from collections.abc import Sequence

import pytest
from tests.conversations import Assistant, Item, User, request

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.models import Target
from kimi_proxy.features.pipeline import Draft
from kimi_proxy.features.sessions import Session
from kimi_proxy.services.chat.prompt_cache import PromptCaches

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


@pytest.mark.parametrize(("at", "cold"), [(NOW - 590, False), (NOW - 610, True), (None, True)])
async def test_after_a_restart_the_sessions_last_request_says(at: float | None, cold: bool):
    assert await is_cold(last_at(at), BEGUN) is cold


async def test_a_conversation_without_an_answer_is_new_in_a_session_that_is_busy():
    caches = last_at(NOW - 1)
    first = await is_cold(caches, BEGUN[:1])
    again = await is_cold(caches, BEGUN[:1])

    assert (first, again) == (True, False)


async def test_a_conversation_that_the_provider_keeps_is_the_same_when_it_goes_on():
    caches = last_at(NOW - 1)
    began = await is_cold(caches, BEGUN[:1], Wire.RESPONSES)
    goes_on = await is_cold(caches, [User("next")], Wire.RESPONSES, previous_response_id="resp_1")

    assert began and not goes_on

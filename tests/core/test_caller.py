"""Who calls: in a request, in the tasks that it makes, and in what is remembered for it."""

import asyncio

from kimi_proxy.core import caller
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import Caller
from kimi_proxy.features.sessions import session_named

ADA, BEN = Caller("person/ada", "ada", is_admin=False), Caller("person/ben", "ben", is_admin=False)


def test_without_a_team_everything_is_in_the_one_scope():
    assert (caller.current(), caller.scope()) == (caller.LOCAL, "local")


async def test_a_task_made_for_a_request_acts_for_its_caller_after_the_request_is_over():
    go_on = asyncio.Event()

    async def later() -> str:
        await go_on.wait()
        return caller.scope()

    with caller.acting(ADA):
        task = asyncio.create_task(later())
    go_on.set()

    assert (await task, caller.scope()) == ("person/ada", "local")


def test_what_is_remembered_for_one_person_no_other_finds_changes_or_clears():
    cache: LruCache[str, str] = LruCache(10)
    with caller.acting(ADA):
        cache.put("key", "ada's")
    with caller.acting(BEN):
        assert (cache.get("key"), "key" in cache, cache.items()) == (None, False, [])
        cache.put("key", "ben's")
        cache.clear()
        assert cache.get("key") is None
    with caller.acting(ADA):
        assert cache.items() == [("key", "ada's")]
        cache.forget("key")
        assert cache.get("key") is None


def test_what_says_nothing_about_anyone_is_shared():
    cache: LruCache[str, int] = LruCache(10, shared=True)
    with caller.acting(ADA):
        cache.put("window", 131_072)

    assert cache.get("window") == 131_072


def test_two_people_who_give_the_same_name_have_two_sessions():
    def named(who: Caller) -> str:
        with caller.acting(who):
            return session_named("my-session").id

    assert len({named(ADA), named(BEN), named(caller.LOCAL)}) == 3
    assert named(ADA) == named(ADA)

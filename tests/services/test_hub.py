"""Everybody hears everything in order, and nobody waits for somebody who does not listen."""

import asyncio
import json
from contextlib import ExitStack

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.json import JsonObject
from kimi_proxy.services.events import HISTORY, MAX_VIEWERS, MAX_VIEWERS_EACH, QUEUE, Hub, Viewer


def tell(hub: Hub, *numbers: int) -> None:
    for number in numbers:
        hub.publish(LOCAL, "metric", {"n": number})


async def heard(viewer: Viewer, count: int) -> list[JsonObject]:
    async with asyncio.timeout(60):
        return [json.loads(await viewer.next()) for _ in range(count)]


async def numbers(viewer: Viewer, count: int) -> list[object]:
    return [event.get("n", event["type"]) for event in await heard(viewer, count)]


def a_hub() -> Hub:
    return Hub(lambda: 5.0)


async def test_every_viewer_hears_every_event_in_its_order():
    hub = a_hub()
    with hub.join(LOCAL) as one, hub.join(LOCAL) as other:
        tell(hub, 1, 2, 3)

        assert await heard(one, 3) == await heard(other, 3)
        tell(hub, 4)
        assert await heard(one, 1) == [{"type": "metric", "seq": 5004, "at": "1970-01-01T00:00:05.000Z", "n": 4}]


async def test_who_waits_is_woken():
    hub = a_hub()
    with hub.join(LOCAL) as viewer:
        waiting = asyncio.create_task(viewer.next())
        await asyncio.sleep(0)
        tell(hub, 1)
        async with asyncio.timeout(60):
            assert json.loads(await waiting)["n"] == 1


async def test_who_falls_behind_loses_the_oldest_and_is_told():
    hub = a_hub()
    with hub.join(LOCAL) as viewer:
        tell(hub, *range(QUEUE + 10))
        gap, first = await heard(viewer, 2)

        assert gap == {"type": "gap", "seq": 5010, "missed": 10}
        assert (first["n"], first["seq"]) == (10, 5011)
        assert await numbers(viewer, QUEUE - 1) == list(range(11, QUEUE + 10))


async def test_who_comes_back_gets_what_it_missed():
    hub = a_hub()
    with hub.join(LOCAL) as viewer:
        tell(hub, 1, 2)
        last = (await heard(viewer, 1))[0]["seq"]
    tell(hub, 3)

    assert isinstance(last, int)
    with hub.join(LOCAL, last) as again:
        assert again.is_up_to_date
        tell(hub, 4)
        assert await numbers(again, 3) == [2, 3, 4]


async def test_who_missed_nothing_hears_only_news():
    hub = a_hub()
    tell(hub, 1)
    with hub.join(LOCAL, 5001) as viewer:
        assert viewer.is_up_to_date
        tell(hub, 2)
        assert await numbers(viewer, 1) == [2]


async def test_who_was_away_too_long_has_to_begin_again():
    hub = a_hub()
    tell(hub, *range(HISTORY + 5))

    for since in (5000, 5000 + HISTORY - QUEUE):
        with hub.join(LOCAL, since) as viewer:
            assert not viewer.is_up_to_date


async def test_a_number_of_another_life_is_not_taken_for_one_of_this():
    tell(before := Hub(lambda: 5.0), 1, 2, 3)
    after = Hub(lambda: 6.0)
    tell(after, 1)

    assert before is not after
    for since in (5003, 0, 10**14):
        with after.join(LOCAL, since) as viewer:
            assert not viewer.is_up_to_date


async def test_who_left_is_told_nothing_more():
    hub = a_hub()
    with hub.join(LOCAL) as viewer:
        pass
    tell(hub, 1)
    try:
        async with asyncio.timeout(0.05):
            await viewer.next()
    except TimeoutError:
        return
    raise AssertionError("it heard something")


async def test_a_crowd_is_noticed():
    hub = a_hub()
    watching = [hub.join(LOCAL) for _ in range(MAX_VIEWERS)]
    for viewer in watching:
        assert not hub.is_crowded(LOCAL)
        viewer.__enter__()

    assert hub.is_crowded(LOCAL)
    watching[0].__exit__(None, None, None)
    assert not hub.is_crowded(LOCAL)


def test_one_member_of_a_team_leaves_room_for_the_others():
    hub, ada, ben = a_hub(), Caller("person/a", person_id="a"), Caller("person/b", person_id="b")
    with ExitStack() as watching:
        for _ in range(MAX_VIEWERS_EACH):
            assert not hub.is_crowded(ada)
            watching.enter_context(hub.join(ada))
        assert (hub.is_crowded(ada), hub.is_crowded(ben)) == (True, False)

"""How a part of a conversation left is remembered, and who comes first stays."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes import Clock
from tests.services.store.making import TTL_S, an_original, opened

from kimi_proxy.services.store.sqlite.decisions import Pin, Totals

HERE, THERE = b"h" * 32, b"t" * 32
CUT = Pin(HERE, "pruned", "kept ⟦…⟧\n".encode(), ("prn_1", "prn_2"), "kept and more", "s-1", 900, 90)
WHOLE = Pin(THERE, "unread", session="s-1", tokens_before=1200, tokens_after=1200)


def timeless(pin: Pin) -> Pin:
    return replace(pin, created=0.0, last_used=0.0)


async def test_pins_come_back_after_a_restart(tmp_path: Path):
    async with opened(tmp_path) as store:
        standing = await store.pinboard.pin("local", [CUT, WHOLE])
    async with opened(tmp_path) as store:
        found = await store.pinboard.pinned("local", [HERE, b"nobody" * 5, THERE])

    assert {place: timeless(pin) for place, pin in standing.items()} == {HERE: CUT, THERE: WHOLE}
    assert found == standing


async def test_whoever_came_first_stays_pinned_and_the_others_are_told(tmp_path: Path):
    async with opened(tmp_path) as store:
        await store.pinboard.pin("local", [CUT])
        standing = await store.pinboard.pin("local", [replace(CUT, shown=b"other", why="masked")])

    assert timeless(standing[HERE]) == CUT


async def test_a_pin_that_is_given_up_makes_room_for_another(tmp_path: Path):
    async with opened(tmp_path) as store:
        await store.pinboard.pin("local", [CUT])
        standing = await store.pinboard.pin("local", [replace(WHOLE, place=HERE)], gone=[HERE])

    assert timeless(standing[HERE]) == replace(WHOLE, place=HERE)


async def test_scopes_know_nothing_of_each_other(tmp_path: Path):
    async with opened(tmp_path) as store:
        await store.pinboard.pin("local", [CUT])

        assert await store.pinboard.pinned("other", [HERE]) == {}
        assert await store.pinboard.newest_cuts("other", 10) == []


async def test_a_session_and_a_preview_may_hold_any_characters(tmp_path: Path):
    odd = replace(CUT, preview="\ud800\x00é", session="\udcff")
    async with opened(tmp_path) as store:
        standing = await store.pinboard.pin("local", [odd])

    assert timeless(standing[HERE]) == odd


async def test_what_was_cut_is_listed_newest_first_and_summed_up(tmp_path: Path):
    async with opened(tmp_path) as store:
        await store.pinboard.pin("local", [CUT, WHOLE, replace(CUT, place=b"x" * 32, tokens_after=100)])
        listed = await store.pinboard.newest_cuts("local", 10)
        totals = await store.pinboard.totals("local")

    assert [pin.place for pin in listed] == [b"x" * 32, HERE]
    assert totals == Totals({"pruned": 2, "unread": 1}, 1800, 190)


async def test_an_idle_pin_goes_and_a_used_one_stays(tmp_path: Path):
    clock = Clock()
    async with opened(tmp_path, now=clock) as store:
        await store.pinboard.pin("local", [CUT, WHOLE])
        for _ in range(3):
            clock.advance(TTL_S * 0.6)
            await store.pinboard.pinned("local", [HERE])
            await store.pinboard.pin("local", [])
        found = await store.pinboard.pinned("local", [HERE, THERE])

    assert set(found) == {HERE}


@pytest.mark.parametrize("used", [True, False])
async def test_naming_an_original_again_keeps_it_alive(tmp_path: Path, used: bool):
    clock = Clock()
    original = an_original()
    async with opened(tmp_path, now=clock) as store:
        await store.keep(original)
        for _ in range(3):
            clock.advance(TTL_S * 0.6)
            live = await store.live("local", [original.id, "prn_unknown"]) if used else frozenset()
        assert live == ({original.id} if used else frozenset())
        assert await store.live("local", [original.id]) == live
        assert await store.live("other", [original.id]) == frozenset()

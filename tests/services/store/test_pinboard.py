"""How a part of a conversation left is remembered, and who comes first stays."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes import Clock
from tests.services.store.making import TTL_S, an_original, opened

from kimi_proxy.services.store import NEWEST, DecisionRecord, DecisionTotals

HERE, THERE = b"h" * 32, b"t" * 32
CUT = DecisionRecord(HERE, "pruned", "kept ⟦…⟧\n".encode(), ("prn_1", "prn_2"), "kept and more", "s-1", 900, 90)
WHOLE = DecisionRecord(THERE, "unread", session="s-1", tokens_before=1200, tokens_after=1200)


def timeless(pin: DecisionRecord) -> DecisionRecord:
    return replace(pin, created=0.0, last_used=0.0)


async def test_pins_come_back_after_a_restart(tmp_path: Path):
    async with opened(tmp_path) as store:
        standing = await store.decisions.add("local", [CUT, WHOLE])
    async with opened(tmp_path) as store:
        found = await store.decisions.get("local", [HERE, b"nobody" * 5, THERE])

    assert {place: timeless(pin) for place, pin in standing.items()} == {HERE: CUT, THERE: WHOLE}
    assert found == standing


async def test_whoever_came_first_stays_pinned_and_the_others_are_told(tmp_path: Path):
    async with opened(tmp_path) as store:
        await store.decisions.add("local", [CUT])
        standing = await store.decisions.add("local", [replace(CUT, shown=b"other", why="masked")])

    assert timeless(standing[HERE]) == CUT


async def test_a_pin_that_is_given_up_makes_room_for_another(tmp_path: Path):
    async with opened(tmp_path) as store:
        await store.decisions.add("local", [CUT])
        standing = await store.decisions.add("local", [replace(WHOLE, key=HERE)], forget=[HERE])

    assert timeless(standing[HERE]) == replace(WHOLE, key=HERE)


async def test_scopes_know_nothing_of_each_other(tmp_path: Path):
    async with opened(tmp_path) as store:
        await store.decisions.add("local", [CUT])

        assert await store.decisions.get("other", [HERE]) == {}
        assert await store.decisions.of_original("other", "prn_1") is None


async def test_a_session_and_a_preview_may_hold_any_characters(tmp_path: Path):
    odd = replace(CUT, preview="\ud800\x00é", session="\udcff")
    async with opened(tmp_path) as store:
        standing = await store.decisions.add("local", [odd])

    assert timeless(standing[HERE]) == odd


async def test_what_was_cut_is_listed_newest_first_and_summed_up(tmp_path: Path):
    later = replace(CUT, key=b"x" * 32, original_ids=("prn_3",), tokens_after=100)
    async with opened(tmp_path) as store:
        for id in ("prn_1", "prn_2", "prn_3"):
            await store.originals.keep(replace(an_original(id.encode()), id=id))
        await store.decisions.add("local", [CUT, WHOLE, later])
        listed = await store.originals.page("local", NEWEST, 10)
        totals = await store.decisions.totals("local")

    decided = [(original.id, original.decision and timeless(original.decision)) for original in listed]
    assert decided == [("prn_3", replace(later, shown=None)), ("prn_2", None), ("prn_1", replace(CUT, shown=None))]
    assert totals == DecisionTotals({"pruned": 2, "unread": 1}, 1800, 190)


async def test_an_idle_pin_goes_and_a_used_one_stays(tmp_path: Path):
    clock = Clock()
    async with opened(tmp_path, now=clock) as store:
        await store.decisions.add("local", [CUT, WHOLE])
        for _ in range(3):
            clock.advance(TTL_S * 0.6)
            await store.decisions.get("local", [HERE])
            await store.decisions.add("local", [])
        found = await store.decisions.get("local", [HERE, THERE])

    assert set(found) == {HERE}


@pytest.mark.parametrize("used", [True, False])
async def test_naming_an_original_again_keeps_it_alive(tmp_path: Path, used: bool):
    clock = Clock()
    original = an_original()
    async with opened(tmp_path, now=clock) as store:
        await store.originals.keep(original)
        for _ in range(3):
            clock.advance(TTL_S * 0.6)
            live = await store.originals.live("local", [original.id, "prn_unknown"]) if used else frozenset()
        assert live == ({original.id} if used else frozenset())
        assert await store.originals.live("local", [original.id]) == live
        assert await store.originals.live("other", [original.id]) == frozenset()

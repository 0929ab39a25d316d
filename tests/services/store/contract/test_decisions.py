"""What a store promises of decisions: the first one for a key stays, and is repeated until it expires."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.services.store.contract.conftest import Opening
from tests.support.fakes import Clock
from tests.support.services.store.making import TTL_S, an_original

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.services.store.protocols import (
    NEWEST,
    CompressionRecord,
    CompressionTotals,
    DecisionRecord,
    Decisions,
    DecisionTotals,
    Originals,
)

HERE, THERE = b"h" * 32, b"t" * 32
CUT = DecisionRecord(HERE, "pruned", "kept ⟦…⟧\n".encode(), ("prn_1", "prn_2"), "kept and more", "s-1", 900, 90)
WHOLE = DecisionRecord(THERE, "nothing_to_cut", session="s-1", tokens_before=1200, tokens_after=1200)
MADE = CompressionRecord(
    *("cmp_1", "ses_a", 100.0, 9000, 900, 12, (2, 5), b"f" * 32),
    *("read this \ud800", "summary é", "prn_1", "provider", "compression", False),
)


def timeless(record: DecisionRecord) -> DecisionRecord:
    return replace(record, created=0.0, last_used=0.0)


async def test_decisions_come_back_after_a_restart(tmp_path: Path, opened: Opening):
    async with opened(tmp_path) as store:
        decided = await store.decisions.add(LOCAL, [CUT, WHOLE])
    async with opened(tmp_path) as store:
        found = await store.decisions.get(LOCAL, [HERE, b"nobody" * 5, THERE])

    assert {key: timeless(record) for key, record in decided.items()} == {HERE: CUT, THERE: WHOLE}
    assert found == decided


async def test_the_first_decision_for_a_key_stays_and_is_returned_to_later_ones(decisions: Decisions):
    await decisions.add(LOCAL, [CUT])
    decided = await decisions.add(LOCAL, [replace(CUT, shown=b"other", why="masked")])

    assert timeless(decided[HERE]) == CUT


async def test_a_decision_that_is_forgotten_makes_room_for_another(decisions: Decisions):
    await decisions.add(LOCAL, [CUT])
    decided = await decisions.add(LOCAL, [replace(WHOLE, key=HERE)], forget=[HERE])

    assert timeless(decided[HERE]) == replace(WHOLE, key=HERE)


async def test_a_decision_is_replaced_only_while_it_is_the_one_that_was_read(decisions: Decisions):
    await decisions.add(LOCAL, [CUT])
    read = await decisions.times(LOCAL, [HERE, THERE])
    first = await decisions.add(LOCAL, [replace(CUT, shown=b"first")], replaces=read)
    second = await decisions.add(LOCAL, [replace(CUT, shown=b"second")], replaces=read)

    assert list(read) == [HERE]
    assert (first[HERE].shown, second[HERE].shown) == (b"first", b"first")
    assert (await decisions.times(LOCAL, [HERE]))[HERE] == second[HERE].created != read[HERE]


async def test_a_use_is_written_twice_within_the_ttl_and_not_with_every_request(tmp_path: Path, opened: Opening):
    clock, other = Clock(), replace(WHOLE, key=b"o" * 32)
    async with opened(tmp_path, clock) as store:
        made = (await store.decisions.add(LOCAL, [CUT]))[HERE].last_used
        uses = []
        for seconds, new in ((TTL_S / 4, WHOLE), (TTL_S / 2, other)):
            clock.advance(seconds)
            await store.decisions.get(LOCAL, [HERE])
            await store.decisions.add(LOCAL, [new])  # with it earlier uses are written
            uses.append((await store.decisions.get(LOCAL, [HERE]))[HERE].last_used)

    assert uses == [made, made + TTL_S * 3 / 4]


async def test_scopes_know_nothing_of_each_other(decisions: Decisions):
    await decisions.add(LOCAL, [CUT])

    assert await decisions.get(Caller("other"), [HERE]) == {}
    assert await decisions.of_original(Caller("other"), "prn_1") is None


async def test_a_decision_is_found_by_the_original_of_its_part_and_by_no_other(decisions: Decisions):
    await decisions.add(LOCAL, [CUT, WHOLE])
    found = await decisions.of_original(LOCAL, "prn_1")

    assert found is not None
    assert timeless(found) == CUT
    assert [await decisions.of_original(LOCAL, id) for id in ("prn_2", "prn_", "prn_11")] == [None] * 3


async def test_a_session_and_a_preview_may_hold_any_characters(decisions: Decisions):
    odd = replace(CUT, preview="\ud800\x00é", session="\udcff")
    decided = await decisions.add(LOCAL, [odd])

    assert timeless(decided[HERE]) == odd


async def test_what_was_cut_is_listed_newest_first_and_summed_up(tmp_path: Path, opened: Opening):
    later = replace(CUT, key=b"x" * 32, original_ids=("prn_3",), tokens_after=100)
    async with opened(tmp_path) as store:
        for id in ("prn_1", "prn_2", "prn_3"):
            await store.originals.keep(replace(an_original(id.encode()), id=id))
        await store.decisions.add(LOCAL, [CUT, WHOLE, later])
        listed = await store.originals.page(LOCAL, NEWEST, 10)
        rest = await store.originals.page(LOCAL, listed[0].seq, 10)
        totals = await store.decisions.totals(LOCAL)

    decided = [(original.id, original.decision and timeless(original.decision)) for original in listed]
    assert decided == [("prn_3", replace(later, shown=None)), ("prn_2", None), ("prn_1", replace(CUT, shown=None))]
    assert rest == listed[1:]
    assert totals == DecisionTotals({"pruned": 2, "nothing_to_cut": 1}, 1800, 190)


async def test_texts_come_newest_first_in_pages(originals: Originals):
    kept = [an_original(b"text %d" % n) for n in range(5)]
    for original in [*kept, an_original(b"elsewhere", scope="other")]:
        await originals.keep(original)
    first = await originals.texts(LOCAL, NEWEST, 3)
    second = await originals.texts(LOCAL, first[-1].seq, 3)

    assert [(found.id, found.text) for found in (*first, *second)] == [(o.id, o.text) for o in reversed(kept)]


async def test_an_idle_decision_goes_and_a_used_one_stays(tmp_path: Path, opened: Opening):
    clock = Clock()
    async with opened(tmp_path, now=clock) as store:
        await store.decisions.add(LOCAL, [CUT, WHOLE])
        for _ in range(3):
            clock.advance(TTL_S * 0.6)
            await store.decisions.get(LOCAL, [HERE])
            await store.decisions.add(LOCAL, [])
        found = await store.decisions.get(LOCAL, [HERE, THERE])

    assert set(found) == {HERE}


@pytest.mark.parametrize("used", [True, False])
async def test_naming_an_original_again_keeps_it_alive(tmp_path: Path, opened: Opening, used: bool):
    clock = Clock()
    original = an_original()
    async with opened(tmp_path, now=clock) as store:
        await store.originals.keep(original)
        for _ in range(3):
            clock.advance(TTL_S * 0.6)
            live = await store.originals.live(LOCAL, [original.id, "prn_unknown"]) if used else frozenset()
        assert live == ({original.id} if used else frozenset())
        assert await store.originals.live(LOCAL, [original.id]) == live
        assert await store.originals.live(Caller("other"), [original.id]) == frozenset()


async def test_of_compressions_that_are_made_at_once_the_first_wins(tmp_path: Path, opened: Opening):
    others = [replace(MADE, id=f"cmp_{number}") for number in range(2, 6)]
    async with opened(tmp_path) as store:
        won = await asyncio.gather(*(store.decisions.add_compression(LOCAL, one) for one in (MADE, *others)))
        (found,) = await store.decisions.compressions(LOCAL, "ses_a")
        assert won == [one.id == found.id for one in (MADE, *others)]
        again = replace(MADE, id="cmp_6")
        assert not await store.decisions.add_compression(LOCAL, again, "cmp_unknown")
        await store.decisions.undo_compression(LOCAL, found.id, 300.0)
        assert not await store.decisions.add_compression(LOCAL, again, found.id)
        assert await store.decisions.add_compression(LOCAL, again)


async def test_compressions_come_back_newest_first_and_can_be_undone(tmp_path: Path, opened: Opening):
    later = replace(MADE, id="cmp_2", at=200.0, is_automatic=True)
    async with opened(tmp_path) as store:
        assert await store.decisions.add_compression(LOCAL, MADE)
        for _ in range(2):
            assert await store.decisions.add_compression(LOCAL, later, MADE.id)
        await store.decisions.undo_compression(LOCAL, "cmp_1", 300.0)
    async with opened(tmp_path) as store:
        found = await store.decisions.compressions(LOCAL, "ses_a")
        elsewhere = await store.decisions.compressions(LOCAL, "ses_b")
        compressed = await store.decisions.compressed_sessions(LOCAL)
        totals = [await store.decisions.compression_totals(LOCAL, session) for session in ("ses_a", None, "ses_b")]

    assert (found, elsewhere) == ([later, replace(MADE, undone=300.0)], [])
    assert compressed == {"ses_a"}
    assert totals == [CompressionTotals(2, 1, 18000, 1800)] * 2 + [CompressionTotals(0, 0, 0, 0)]

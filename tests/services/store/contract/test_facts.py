"""What a store promises of facts: the first one for a key stays, until it is deleted or not used any more."""

import asyncio
from pathlib import Path

import pytest
from tests.services.store.contract.conftest import Opening
from tests.support.fakes import Clock
from tests.support.services.store.making import TTL_S

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.services.store.protocols import FactStore

HERE, THERE = b"h" * 32, b"t" * 32
VALUE = "kept ⟦…⟧\n\ud800\0".encode("utf-8", "surrogatepass")


async def test_facts_come_back_after_a_restart(tmp_path: Path, opened: Opening):
    async with opened(tmp_path) as store:
        put = await store.facts.put_if_absent(LOCAL, "memory", {HERE: VALUE, THERE: b""})
    async with opened(tmp_path) as store:
        found = await store.facts.get(LOCAL, "memory", [HERE, b"nobody", THERE])

    assert put == found == {HERE: VALUE, THERE: b""}


async def test_the_first_fact_for_a_key_stays_and_is_returned_to_later_ones(facts: FactStore):
    await facts.put_if_absent(LOCAL, "routed", {HERE: b"first"})

    assert await facts.put_if_absent(LOCAL, "routed", {HERE: b"second", THERE: b"new"}) == {
        HERE: b"first",
        THERE: b"new",
    }


async def test_of_facts_that_are_put_at_once_all_callers_get_the_first(facts: FactStore):
    keys = [bytes([number]) * 32 for number in range(20)]
    puts = (facts.put_if_absent(LOCAL, "claimed", dict.fromkeys(keys, b"%d" % n)) for n in range(8))
    won = await asyncio.gather(*puts)

    assert won == [await facts.get(LOCAL, "claimed", keys)] * 8


async def test_a_fact_that_is_deleted_makes_room_for_another(facts: FactStore):
    await facts.put_if_absent(LOCAL, "routed", {HERE: b"first", THERE: b"other"})
    await facts.delete(LOCAL, "routed", [HERE, b"nobody"])

    assert await facts.put_if_absent(LOCAL, "routed", {HERE: b"second"}) == {HERE: b"second"}
    assert await facts.get(LOCAL, "routed", [THERE]) == {THERE: b"other"}


async def test_kinds_and_scopes_know_nothing_of_each_other(facts: FactStore):
    await facts.put_if_absent(LOCAL, "memory", {HERE: b"mine"})
    await facts.delete(LOCAL, "tool", [HERE])
    await facts.delete(Caller("other"), "memory", [HERE])

    assert await facts.get(LOCAL, "tool", [HERE]) == await facts.get(Caller("other"), "memory", [HERE]) == {}
    assert await facts.get(LOCAL, "memory", [HERE]) == {HERE: b"mine"}


async def test_more_facts_than_a_statement_may_name_are_put_read_and_deleted(facts: FactStore):
    many = {number.to_bytes(32, "big"): b"%d" % number for number in range(1200)}

    assert await facts.put_if_absent(LOCAL, "answered", many) == many
    assert await facts.get(LOCAL, "answered", list(many)) == many
    await facts.delete(LOCAL, "answered", list(many))
    assert await facts.get(LOCAL, "answered", list(many)) == {}


@pytest.mark.parametrize("sessions", [["ses_1", "ses_3"], None])
async def test_facts_with_the_text_of_a_session_are_deleted_with_it(facts: FactStore, sessions: list[str] | None):
    for key, session in ((HERE, "ses_1"), (THERE, "ses_2"), (b"none", "")):
        await facts.put_if_absent(LOCAL, "memory", {key: b"text"}, session)
    await facts.forget_sessions(Caller("other"), sessions)
    before = await facts.get(LOCAL, "memory", [HERE, THERE, b"none"])
    await facts.forget_sessions(LOCAL, sessions)
    after = await facts.get(LOCAL, "memory", [HERE, THERE, b"none"])

    assert set(before) == {HERE, THERE, b"none"}
    assert set(after) == ({THERE, b"none"} if sessions else {b"none"})


async def test_the_keys_of_one_kind_are_listed_up_to_a_limit(facts: FactStore):
    keys = [bytes([n]) * 32 for n in range(5)]
    await facts.put_if_absent(LOCAL, "answered", dict.fromkeys(keys[:3], b"x"))
    await facts.put_if_absent(LOCAL, "tool", dict.fromkeys(keys[3:], b"x"))

    assert {*await facts.keys(LOCAL, "answered", 10)} == {*keys[:3]}
    assert len(await facts.keys(LOCAL, "answered", 2)) == 2
    assert await facts.keys(LOCAL, "memory", 10) == []


async def test_an_idle_fact_goes_and_a_used_one_stays(tmp_path: Path, opened: Opening):
    clock = Clock()
    async with opened(tmp_path, now=clock) as store:
        await store.facts.put_if_absent(LOCAL, "memory", {HERE: b"used", THERE: b"idle"})
        for _ in range(3):
            clock.advance(TTL_S * 0.6)
            await store.facts.get(LOCAL, "memory", [HERE])
            await store.sweep()
        found = await store.facts.get(LOCAL, "memory", [HERE, THERE])

    assert found == {HERE: b"used"}

"""What a store promises of originals."""

import asyncio
import os
from hashlib import sha256
from pathlib import Path

import pytest
from tests.services.store.contract.conftest import Opening
from tests.support.deep import IS_DEEP
from tests.support.services.store.making import an_original, reason

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.protocols import Original, Originals


async def test_what_was_kept_comes_back_whole(originals: Originals) -> None:
    original = Original("prn_0", "local", b"k" * 32, b"a\r\nb\x00\xed\xa0\x80\xe2\x80\xa8c", b'{"n":1}')
    await originals.keep(original)
    assert await originals.get(LOCAL, "prn_0") == original


async def test_the_note_of_an_original_is_read_without_its_text(originals: Originals) -> None:
    await originals.keep(Original("prn_0", "local", b"k" * 32, b"text", b'{"n":1}'))
    assert await originals.note(LOCAL, "prn_0") == b'{"n":1}'
    assert await originals.note(LOCAL, "prn_1") is None
    assert await originals.note(Caller("other"), "prn_0") is None


@pytest.mark.parametrize("text", [b"", b"\n", b"\x00", os.urandom(70_000), b"line\n" * 2_000_000])
async def test_any_size_comes_back_whole(originals: Originals, text: bytes) -> None:
    original = an_original(text)
    await originals.keep(original)
    assert await originals.get(LOCAL, original.id) == original


async def test_an_id_that_was_never_given_out_is_unknown(originals: Originals) -> None:
    for id in ("prn_0000000000000000", "", "prn_\ud800", "prn_\x00", "' OR 1=1 --", "x" * 100_000):
        assert await reason(originals, id) == "unknown"


async def test_scopes_neither_see_nor_share_each_others_originals(originals: Originals) -> None:
    mine, theirs = an_original(b"same text", scope="mine"), an_original(b"same text", scope="theirs")
    await originals.keep(mine)
    await originals.keep(theirs)
    assert await reason(originals, mine.id, "theirs") == "unknown"
    assert await originals.find(Caller("theirs"), mine.key) == theirs.id
    assert await originals.find(Caller("nobody"), mine.key) is None
    assert await originals.get(Caller("mine"), mine.id) == mine


async def test_one_id_may_name_different_texts_in_different_scopes(originals: Originals) -> None:
    here, there = (Original("prn_0", s, b"k" * 32, repr(s).encode(), b"{}") for s in ("a", "b\ud800"))
    await originals.keep(here)
    await originals.keep(there)
    assert await originals.get(Caller("a"), "prn_0") == here
    assert await originals.get(Caller("b\ud800"), "prn_0") == there


async def test_find_gives_the_newest_id_of_a_question(originals: Originals) -> None:
    older, newer = an_original(key=b"q" * 32), an_original(key=b"q" * 32)
    assert await originals.find(LOCAL, b"q" * 32) is None
    await originals.keep(older)
    await originals.keep(newer)
    assert await originals.find(LOCAL, b"q" * 32) == newer.id


async def test_a_content_hash_finds_ones_own_newest_text_and_never_anothers(originals: Originals) -> None:
    text = "the same é\udc80\n".encode("utf-8", "surrogatepass")
    mine, newer, theirs = an_original(text, scope="mine"), an_original(text, scope="mine"), an_original(text, scope="x")
    for original in (mine, newer, theirs):
        await originals.keep(original)
    digest = sha256(text).digest()

    assert await originals.find_hash(Caller("mine"), digest) == newer.id
    assert await originals.find_hash(Caller("mine"), sha256(b"other").digest()) is None
    assert await originals.find_hash(Caller("nobody"), digest) is None
    assert await originals.find_hash(Caller("nobody", also_reads=("mine",)), digest) is None


async def test_hundreds_of_ids_are_recovered_after_a_restart(tmp_path: Path, opened: Opening) -> None:
    originals = [an_original(b"text %d\n" % n * (n % 50)) for n in range(1000 if IS_DEEP else 200)]
    async with opened(tmp_path) as store:
        await asyncio.gather(*map(store.originals.keep, originals))
    async with opened(tmp_path) as store:
        assert [await store.originals.get(LOCAL, o.id) for o in originals] == originals


async def test_keeping_the_same_original_twice_is_keeping_it_once(tmp_path: Path, opened: Opening) -> None:
    original = an_original()
    async with opened(tmp_path) as store:
        await store.originals.keep(original)
        await store.originals.keep(original)
        assert (await store.usage()).originals == 1


async def test_an_id_never_changes_its_meaning(tmp_path: Path, opened: Opening) -> None:
    original = an_original(b"first")
    async with opened(tmp_path) as store:
        await store.originals.keep(original)
        with pytest.raises(StoreUnavailable, match="is already the id of another original"):
            await store.originals.keep(Original(original.id, "local", original.key, b"second", original.about))
        assert await store.originals.get(LOCAL, original.id) == original
        assert (await store.usage()).state == "ok"


async def test_an_original_that_is_kept_again_gets_the_newer_note(tmp_path: Path, opened: Opening) -> None:
    original = an_original()
    renewed = Original(original.id, "local", original.key, original.text, b'{"goal":"x","cuts":[]}')
    async with opened(tmp_path) as store:
        await store.originals.keep(original)
        await store.originals.keep(renewed)
        assert await store.originals.get(LOCAL, original.id) == renewed
        assert (await store.usage()).originals == 1


async def test_a_closed_store_says_so(tmp_path: Path, opened: Opening) -> None:
    async with opened(tmp_path) as store:
        pass
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.originals.keep(an_original())
    assert (await store.usage()).state == "degraded: the store is closed"


async def test_reading_from_two_stores_in_one_process_is_like_from_two_processes(
    tmp_path: Path, opened: Opening
) -> None:
    original = an_original()
    async with opened(tmp_path) as one, opened(tmp_path) as other:
        await one.originals.keep(original)
        assert await other.originals.get(LOCAL, original.id) == original
        assert await other.originals.find(LOCAL, original.key) == original.id

"""What a store promises when nothing is wrong."""

import asyncio
import os
import sqlite3
import threading
from pathlib import Path

import pytest
from tests.fakes import Clock
from tests.services.store.making import an_original, opened, reason

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store import Original, open_store
from kimi_proxy.services.store.sqlite.file import connect
from kimi_proxy.services.store.sqlite.store import store_path


async def test_what_was_kept_comes_back_whole(tmp_path: Path) -> None:
    original = Original("prn_0", "local", b"k" * 32, b"a\r\nb\x00\xed\xa0\x80\xe2\x80\xa8c", b'{"n":1}')
    async with opened(tmp_path) as store:
        await store.originals.keep(original)
        assert await store.originals.get("local", "prn_0") == original


@pytest.mark.parametrize("text", [b"", b"\n", b"\x00", os.urandom(70_000), b"line\n" * 2_000_000])
async def test_any_size_comes_back_whole(tmp_path: Path, text: bytes) -> None:
    original = an_original(text)
    async with opened(tmp_path) as store:
        await store.originals.keep(original)
        assert await store.originals.get("local", original.id) == original


async def test_a_thousand_ids_are_recovered_after_a_restart(tmp_path: Path) -> None:
    originals = [an_original(b"text %d\n" % n * (n % 50)) for n in range(1000)]
    async with opened(tmp_path) as store:
        await asyncio.gather(*map(store.originals.keep, originals))
    async with opened(tmp_path) as store:
        assert [await store.originals.get("local", o.id) for o in originals] == originals


async def test_an_id_that_was_never_given_out_is_unknown(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for id in ("prn_0000000000000000", "", "prn_\ud800", "prn_\x00", "' OR 1=1 --", "x" * 100_000):
            assert await reason(store, id) == "unknown"


async def test_scopes_neither_see_nor_share_each_others_originals(tmp_path: Path) -> None:
    mine, theirs = an_original(b"same text", scope="mine"), an_original(b"same text", scope="theirs")
    async with opened(tmp_path) as store:
        await store.originals.keep(mine)
        await store.originals.keep(theirs)
        assert await reason(store, mine.id, "theirs") == "unknown"
        assert await store.originals.find("theirs", mine.key) == theirs.id
        assert await store.originals.find("nobody", mine.key) is None
        assert await store.originals.get("mine", mine.id) == mine


async def test_one_id_may_name_different_texts_in_different_scopes(tmp_path: Path) -> None:
    here, there = (Original("prn_0", s, b"k" * 32, repr(s).encode(), b"{}") for s in ("a", "b\ud800"))
    async with opened(tmp_path) as store:
        await store.originals.keep(here)
        await store.originals.keep(there)
        assert await store.originals.get("a", "prn_0") == here
        assert await store.originals.get("b\ud800", "prn_0") == there


async def test_find_gives_the_newest_id_of_a_question(tmp_path: Path) -> None:
    older, newer = an_original(key=b"q" * 32), an_original(key=b"q" * 32)
    async with opened(tmp_path) as store:
        assert await store.originals.find("local", b"q" * 32) is None
        await store.originals.keep(older)
        await store.originals.keep(newer)
        assert await store.originals.find("local", b"q" * 32) == newer.id


async def test_the_same_text_under_many_ids_is_stored_once(tmp_path: Path) -> None:
    text = os.urandom(1_000_000)
    async with opened(tmp_path) as store:
        originals = [an_original(text, key=b"%032d" % n) for n in range(10)]
        for original in originals:
            await store.originals.keep(original)
        assert (await store.usage()).bytes_on_disk < 1_200_000
        assert [await store.originals.get("local", o.id) for o in originals] == originals


async def test_keeping_the_same_original_twice_is_keeping_it_once(tmp_path: Path) -> None:
    original = an_original()
    async with opened(tmp_path) as store:
        await store.originals.keep(original)
        await store.originals.keep(original)
        assert (await store.usage()).originals == 1


async def test_an_id_never_changes_its_meaning(tmp_path: Path) -> None:
    original = an_original(b"first")
    async with opened(tmp_path) as store:
        await store.originals.keep(original)
        with pytest.raises(StoreUnavailable, match="already names another original"):
            await store.originals.keep(Original(original.id, "local", original.key, b"second", original.about))
        assert await store.originals.get("local", original.id) == original
        assert (await store.usage()).state == "ok"


async def test_an_original_that_is_kept_again_gets_the_newer_note(tmp_path: Path) -> None:
    original = an_original()
    renewed = Original(original.id, "local", original.key, original.text, b'{"goal":"x","cuts":[]}')
    async with opened(tmp_path) as store:
        await store.originals.keep(original)
        await store.originals.keep(renewed)
        assert await store.originals.get("local", original.id) == renewed
        assert (await store.usage()).originals == 1


async def test_usage_tells_what_there_is(tmp_path: Path) -> None:
    clock = Clock(5_000.0)
    async with opened(tmp_path, clock) as store:
        empty = await store.usage()
        await store.originals.keep(an_original())
        clock.advance(10)
        await store.originals.keep(an_original(b"other"))
        usage = await store.usage()
    assert (empty.originals, empty.oldest, empty.commits) == (0, None, 0)
    assert (usage.originals, usage.oldest, usage.commits) == (2, 5_000.0, 2)
    assert (usage.state, usage.set_aside) == ("ok", ())
    assert usage.path == str(tmp_path / "store" / "originals.sqlite3")
    assert usage.bytes_on_disk == store_path(tmp_path).stat().st_size


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        pass
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.originals.keep(an_original())
    assert (await store.usage()).state == "degraded: the store is closed"


async def test_open_store_works_in_a_relative_home_with_odd_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    original = an_original()
    store = await open_store(Path("a b?c#d%20é/home"), ttl_s=60, max_bytes=1024**2)
    await store.originals.keep(original)
    assert await store.originals.get("local", original.id) == original
    await store.close()
    assert (tmp_path / "a b?c#d%20é" / "home" / "store" / "originals.sqlite3").stat().st_size > 0


async def test_the_event_loop_is_free_while_the_disk_is_slow(tmp_path: Path) -> None:
    original, disk_answers = an_original(), threading.Event()
    disk_answers.set()

    def slow(path: Path, patience_s: float) -> sqlite3.Connection:
        assert disk_answers.wait(60)
        return connect(path, patience_s)

    async with opened(tmp_path, connect=slow) as store:
        for work in (store.originals.keep(original), store.originals.get("local", original.id), store.usage()):
            disk_answers.clear()
            task = asyncio.ensure_future(work)
            await asyncio.sleep(0.05)
            assert not task.done()
            disk_answers.set()  # only a loop that runs gets here
            await task


async def test_reading_from_two_stores_in_one_process_is_like_from_two_processes(tmp_path: Path) -> None:
    original = an_original()
    async with opened(tmp_path) as one, opened(tmp_path) as other:
        await one.originals.keep(original)
        assert await other.originals.get("local", original.id) == original
        assert await other.originals.find("local", original.key) == original.id

"""A damaged file is set aside, loudly, and never takes what is healthy with it."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.support.faults.symptoms import keeps_again
from tests.support.services.store.making import an_original, opened

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import PruneIdNotFound, StoreUnavailable
from kimi_proxy.services.store.protocols import Original
from kimi_proxy.services.store.sqlite.database import set_aside_files
from kimi_proxy.services.store.sqlite.store import SqliteStore, store_path


@pytest.mark.parametrize(
    "garbage", [b"not a database at all" * 1000, b"SQLite format 3\x00" + b"\xff" * 20_000, b"\x00" * 8192]
)
async def test_a_damaged_file_is_set_aside_and_a_fresh_one_begun(
    tmp_path: Path, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = store_path(tmp_path)
    path.parent.mkdir()
    path.write_bytes(garbage)
    path.with_name(f"{path.name}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + b"\x01" * 2000)
    async with opened(tmp_path) as store:
        await keeps_again(store)
        (aside,) = (await store.usage()).set_aside
    assert [p.read_bytes() for p in path.parent.glob("originals.sqlite3.corrupt-*Z")] == [garbage]
    assert aside.startswith(f"{path}.corrupt-")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == ["store_damaged"]


async def test_damage_under_a_running_store_is_noticed_by_the_next_write(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for _ in range(20):
            await store.originals.keep(an_original(os.urandom(1000)))
        with store_path(tmp_path).open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (store_path(tmp_path).stat().st_size - 4096))
        await keeps_again(store)
        assert len((await store.usage()).set_aside) == 1


async def test_several_that_find_the_same_damage_set_it_aside_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as a, opened(tmp_path) as b, opened(tmp_path) as c:
        for round in range(5):
            store_path(tmp_path).write_bytes(b"x" * 10_000)
            kept = [(store, an_original()) for store in (a, b, c)]
            outcomes = await asyncio.gather(*(s.originals.keep(o) for s, o in kept), return_exceptions=True)
            for (store, original), outcome in zip(kept, outcomes, strict=True):
                if outcome is None:
                    assert await store.originals.get(LOCAL, original.id) == original
                else:
                    assert isinstance(outcome, StoreUnavailable)
            assert None in outcomes
            assert len((await a.usage()).set_aside) == round + 1


async def test_one_damaged_text_hurts_no_other_and_is_mended_when_kept_again(tmp_path: Path) -> None:
    text = os.urandom(50_000)
    bad, good = an_original(text), an_original()
    async with opened(tmp_path) as store:
        await store.originals.keep(bad)
        await store.originals.keep(good)
        raw = store_path(tmp_path).read_bytes()
        at = raw.index(text[20_000:20_100])
        with store_path(tmp_path).open("r+b") as file:
            file.seek(at)
            file.write(b"\x00" * 100)
        with pytest.raises(StoreUnavailable, match="damaged"):
            await store.originals.get(LOCAL, bad.id)
        assert await store.originals.get(LOCAL, good.id) == good
        await store.originals.keep(an_original(text, key=b"again"))
        assert await store.originals.get(LOCAL, bad.id) == bad


@pytest.mark.parametrize("pages", [1, 2])
async def test_ids_are_read_from_a_file_that_was_set_aside(tmp_path: Path, pages: int) -> None:
    """One damaged page at the end took 30 of 30 ids along."""
    async with opened(tmp_path) as store:
        originals = [an_original(b"%d " % number + os.urandom(3000)) for number in range(30)]
        for original in originals:
            await store.originals.keep(original)
        size = store_path(tmp_path).stat().st_size
        with store_path(tmp_path).open("r+b") as file:
            file.seek(size - pages * 4096)
            file.write(b"\xff" * pages * 4096)
        for _ in range(100):
            await keeps_again(store)
            if (await store.usage()).set_aside:
                break
            await asyncio.gather(
                *(store.originals.keep(an_original(os.urandom(3000))) for _ in range(5)), return_exceptions=True
            )
        found = [await readable(store, original) for original in originals]
        live = await store.originals.live(LOCAL, [original.id for original in originals])

    assert len(set_aside_files(store_path(tmp_path))) == 1
    assert sum(found) >= 28, "all but what was on the damaged pages"
    assert len(live) >= sum(found)


async def readable(store: SqliteStore, original: Original) -> bool:
    try:
        return await store.originals.get(LOCAL, original.id) == original
    except (PruneIdNotFound, StoreUnavailable):
        return False


@pytest.mark.parametrize("at", [3, 9, 14])
async def test_a_schema_that_is_no_text_any_more_is_damage_too(tmp_path: Path, at: int) -> None:
    """SQLite quotes it in its message, which Python cannot decode then."""
    async with opened(tmp_path) as store:
        await store.originals.keep(an_original())
    file = store_path(tmp_path)
    raw = bytearray(file.read_bytes())
    raw[raw.index(b"CREATE TABLE") + at] = 0xFF
    file.write_bytes(raw)

    kept = an_original(b"after it")
    async with opened(tmp_path) as store:
        await store.originals.keep(kept)
        assert (await store.originals.get(LOCAL, kept.id)).text == b"after it"
    assert len(set_aside_files(file)) == 1

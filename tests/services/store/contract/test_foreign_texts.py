"""A store with texts that only an earlier version reads is refused with the way out; none of them is lost."""

from pathlib import Path

import pytest
from tests.services.store.contract.conftest import Opening
from tests.support.fakes import Clock
from tests.support.services.store.making import an_original

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import ConfigError, StoreUnavailable
from kimi_proxy.services.store.protocols import Store
from kimi_proxy.services.store.sql import ENDS, READABLE_BY

WAY_OUT = f"`kimi-proxy store decrypt` of commit {READABLE_BY}"


async def replace_frame(store: Store, id: str, frame: bytes) -> None:
    """Let a text be one that an earlier version wrote."""
    database = store.decisions.database  # type: ignore[attr-defined]
    statement = "UPDATE text SET frame = ? WHERE seq = (SELECT text FROM record WHERE id = ?) RETURNING 1"
    assert len(await database.change(statement, (frame, id.encode()))) == 1


@pytest.mark.parametrize("place", [0, -1], ids=["oldest", "newest"])
@pytest.mark.parametrize(("mark", "named"), [(b"KPO1", "in object storage"), (b"KPE1", "encrypted")])
async def test_a_store_with_such_texts_is_refused(opened: Opening, tmp_path: Path, place: int, mark: bytes, named: str):
    originals = [an_original(b"text %d" % number, key=b"%032d" % number) for number in range(3)]
    async with opened(tmp_path, now=Clock()) as store:
        for original in originals:
            await store.originals.keep(original)
        await replace_frame(store, originals[place].id, mark + b"0123/4567")
    with pytest.raises(ConfigError, match=named) as refused:
        async with opened(tmp_path, now=Clock()):
            pass

    assert WAY_OUT in str(refused.value)


async def test_such_a_text_among_thousands_of_others_says_so_when_it_is_read(opened: Opening, tmp_path: Path):
    originals = [an_original(b"text %d" % number, key=b"%032d" % number) for number in range(2 * ENDS + 1)]
    async with opened(tmp_path, now=Clock()) as store:
        for original in originals:
            await store.originals.keep(original)
        await replace_frame(store, originals[ENDS].id, b"KPO1" + b"0123/4567")
    async with opened(tmp_path, now=Clock()) as store:
        assert await store.originals.get(LOCAL, originals[0].id) == originals[0]
        with pytest.raises(StoreUnavailable, match=WAY_OUT):
            await store.originals.get(LOCAL, originals[ENDS].id)

"""How the tests of faults look at a store."""

import os

import pytest
from tests.services.store.making import an_original

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.originals import Original
from kimi_proxy.services.store.sqlite import SqliteStore


async def refusal(store: SqliteStore, original: Original | None = None) -> str:
    with pytest.raises(StoreUnavailable) as error:
        await store.keep(original or an_original(os.urandom(100_000)))
    return str(error.value)


async def keeps_again(store: SqliteStore) -> None:
    original = an_original(os.urandom(100_000))
    await store.keep(original)
    assert await store.original("local", original.id) == original
    assert (await store.usage()).state == "ok"

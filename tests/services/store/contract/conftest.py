"""One suite for every implementation of the store: a new one is one line in STORES."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

import pytest
from tests.fakes import MemoryDecisions, MemoryOriginals
from tests.services.store import making

from kimi_proxy.services.store.protocols import Decisions, Originals, Store


class SweptStore(Store, Protocol):
    async def sweep(self) -> int:
        """Delete all that has expired; return how many originals went."""


# Home, then `now`, `ttl_s`, `max_bytes` and `timeout_s`; what was kept in a home is there when it is opened again.
Opening = Callable[..., AbstractAsyncContextManager[SweptStore]]
STORES: Mapping[str, Opening] = {"sqlite": making.opened}
MEMORY = "memory"  # the fakes of the tests: what they do, they do alike


@pytest.fixture(params=STORES)
def opened(request: pytest.FixtureRequest) -> Opening:
    return STORES[request.param]


@pytest.fixture(params=[*STORES, MEMORY])
async def originals(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Originals]:
    if request.param == MEMORY:
        yield MemoryOriginals()
        return
    async with STORES[request.param](tmp_path) as store:
        yield store.originals


@pytest.fixture(params=[*STORES, MEMORY])
async def decisions(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Decisions]:
    if request.param == MEMORY:
        yield MemoryDecisions()
        return
    async with STORES[request.param](tmp_path) as store:
        yield store.decisions

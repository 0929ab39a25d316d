"""One suite for every implementation of the store: a new one is one more name in STORES."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
from tests.support.fakes import MemoryDecisions, MemoryFacts, MemoryOriginals
from tests.support.services.store import making, postgres_server

from kimi_proxy.services.store.protocols import Decisions, FactStore, Originals, Store


class SweptStore(Store, Protocol):
    async def sweep(self) -> int:
        """Delete all that has expired; return how many originals went."""


# Home, then `now`, `ttl_s`, `max_bytes` and `timeout_s`; what was kept in a home is there when it is opened again.
Opening = Callable[..., AbstractAsyncContextManager[SweptStore]]
STORES = ("sqlite", "postgres")
MEMORY = "memory"  # the fakes of the tests: what they do, they do alike


@pytest.fixture(scope="session")
def opening() -> Iterator[Callable[[str], Opening]]:
    """How a store of this name is opened; one PostgreSQL serves all the tests of a worker."""
    with ExitStack() as stack:
        servers: list[str] = []

        def named(name: str) -> Opening:
            if name == "sqlite":
                return making.opened
            if not servers:
                servers.append(stack.enter_context(postgres_server.serving()))
            return partial(postgres_server.opened, servers[0])

        yield named


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "opened" in metafunc.fixturenames:
        metafunc.parametrize("opened", STORES, indirect=True)


@pytest.fixture
def opened(request: pytest.FixtureRequest, opening: Callable[[str], Opening]) -> Opening:
    return opening(request.param)


@pytest.fixture(params=[*STORES, MEMORY])
async def originals(
    request: pytest.FixtureRequest, opening: Callable[[str], Opening], tmp_path: Path
) -> AsyncIterator[Originals]:
    if request.param == MEMORY:
        yield MemoryOriginals()
        return
    async with opening(request.param)(tmp_path) as store:
        yield store.originals


@pytest.fixture(params=[*STORES, MEMORY])
async def decisions(
    request: pytest.FixtureRequest, opening: Callable[[str], Opening], tmp_path: Path
) -> AsyncIterator[Decisions]:
    if request.param == MEMORY:
        yield MemoryDecisions()
        return
    async with opening(request.param)(tmp_path) as store:
        yield store.decisions


@pytest.fixture(params=[*STORES, MEMORY])
async def facts(
    request: pytest.FixtureRequest, opening: Callable[[str], Opening], tmp_path: Path
) -> AsyncIterator[FactStore]:
    if request.param == MEMORY:
        yield MemoryFacts()
        return
    async with opening(request.param)(tmp_path) as store:
        yield store.facts

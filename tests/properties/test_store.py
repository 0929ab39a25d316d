"""What holds for every text and every history of a store."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.deep import too
from tests.support.fakes import Clock
from tests.support.services.store import postgres_server
from tests.support.services.store.making import MAX_BYTES

from kimi_proxy.core.addresses import Address
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import PruneIdNotFound
from kimi_proxy.core.markers import new_id
from kimi_proxy.services.store.protocols import Original
from kimi_proxy.services.store.sqlite.store import SqliteStore
from kimi_proxy.team.store.postgres.store import PostgresStore

TTL_S = 100.0

pytestmark = pytest.mark.timeout(7200 if os.environ.get("KIMI_PROXY_DEEP") == "1" else 600)

any_text = st.text(st.characters(exclude_categories=()) | st.sampled_from("\n\r\x00\x0c\u2028\ud800"))
any_bytes = any_text.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary()


class OpenStore(Protocol):
    """Opens the store under test; what was kept is there when it is opened again."""

    async def __call__(self, now: Callable[[], float] = time.time) -> SqliteStore | PostgresStore: ...


@pytest.fixture
def open_it(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    limits = {"ttl_s": TTL_S, "max_bytes": MAX_BYTES, "timeout_s": 30}
    if request.param == "sqlite":
        yield lambda now=time.time: SqliteStore.open(tmp_path, now=now, **limits)
        return
    with postgres_server.serving() as server:
        url = postgres_server.url_of(server, tmp_path)
        yield lambda now=time.time: PostgresStore.open(Address(url), now=now, **limits)


@pytest.mark.parametrize("open_it", ["sqlite", "postgres"], indirect=True)
def test_whatever_is_kept_comes_back_byte_for_byte(open_it: OpenStore) -> None:
    with asyncio.Runner() as runner:
        store = runner.run(open_it())

        @given(any_bytes, any_text, st.binary(max_size=40), st.binary(max_size=200))
        def holds(text: bytes, scope: str, key: bytes, about: bytes) -> None:
            original = Original(new_id("prn"), scope, key, text, about)
            runner.run(store.originals.keep(original))
            assert runner.run(store.originals.get(Caller(scope), original.id)) == original
            assert runner.run(store.originals.find(Caller(scope), key)) == original.id

        try:
            holds()
        finally:
            runner.run(store.close())


class History:
    """One store, and what it must answer."""

    def __init__(self, open_it: OpenStore, runner: asyncio.Runner) -> None:
        self._open_it, self.runner = open_it, runner
        self.clock = Clock(1_700_000_000.0)
        self.open()

    def open(self) -> None:
        self.store = self.runner.run(self._open_it(self.clock))

    def close(self) -> None:
        self.runner.run(self.store.close())

    def begin(self) -> None:
        self.scope = new_id("prn")
        self.used: dict[int, float] = {}
        self.keep(-1)  # so that no history begins with a leap of the clock

    def name(self, n: int) -> str:
        return f"{self.scope}-{n}"

    def original(self, n: int) -> Original:
        return Original(self.name(n), self.scope, b"%d" % n, b"text %d" % (n // 2), b"{}")

    def is_live(self, n: int) -> bool:
        return self.clock() - self.used[n] <= TTL_S

    def keep(self, n: int) -> None:
        if n not in self.used:
            self.runner.run(self.store.originals.keep(self.original(n)))
            self.used[n] = self.clock()

    def recall(self, n: int) -> None:
        try:
            found: object = self.runner.run(self.store.originals.get(Caller(self.scope), self.name(n)))
        except PruneIdNotFound as e:
            found = e.reason
        if n not in self.used:
            assert found == "unknown"
        elif not self.is_live(n):
            assert found == "expired"
        else:
            assert found == self.original(n)
            self.used[n] = self.clock()

    def find(self, n: int) -> None:
        found = self.runner.run(self.store.originals.find(Caller(self.scope), b"%d" % n))
        if n in self.used and self.is_live(n):
            assert found == self.name(n)
            self.used[n] = self.clock()
        else:
            assert found is None

    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)

    def sweep(self, _: int) -> None:
        self.runner.run(self.store.sweep())

    def restart(self, _: int) -> None:
        self.close()
        self.open()


few = st.integers(0, 5)
steps = st.one_of(
    st.tuples(st.just("keep"), few),
    st.tuples(st.just("recall"), few),
    st.tuples(st.just("find"), few),
    st.tuples(st.just("advance"), st.sampled_from((1, 49, 50, 51, 99, 100, 101))),
    st.tuples(st.just("sweep"), few),
    st.tuples(st.just("restart"), few),
)


@pytest.mark.parametrize("open_it", ["sqlite", too("postgres")], indirect=True)
def test_every_history_honours_the_ttl(open_it: OpenStore) -> None:
    with asyncio.Runner() as runner:
        history = History(open_it, runner)

        @given(st.lists(steps, max_size=25))
        def holds(happenings: list[tuple[str, int]]) -> None:
            history.begin()
            for what, n in happenings:
                getattr(history, what)(n)
            for n in range(6):
                history.recall(n)

        try:
            holds()
        finally:
            history.close()

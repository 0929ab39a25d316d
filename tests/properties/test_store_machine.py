"""Any order of work, faults, crashes and damage: what was acknowledged comes back, or has expired in its time."""

import asyncio
import os
import sqlite3
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.fakes import Clock
from tests.support.faults.symptoms import Disk, integrity
from tests.support.services.store.making import MAX_BYTES, an_original

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.errors import PruneIdNotFound, StoreUnavailable
from kimi_proxy.services.store.protocols import Original
from kimi_proxy.services.store.sqlite.database import connect
from kimi_proxy.services.store.sqlite.store import SqliteStore, store_path

TTL_S = 100.0
DEEP = os.environ.get("KIMI_PROXY_DEEP") == "1"


class SickDisk(Disk):
    """May also be locked; then nobody waits long, so that the machine stays quick."""

    is_locked = False

    def __call__(self, path: Path, patience_s: float) -> sqlite3.Connection:
        return connect(path, 0.005) if self.is_locked else super().__call__(path, patience_s)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = ExitStack()
        self.home = Path(self.world.enter_context(tempfile.TemporaryDirectory()))
        self.runner = self.world.enter_context(asyncio.Runner())
        self.clock, self.disk = Clock(1_700_000_000.0), SickDisk()
        self.lock: sqlite3.Connection | None = None
        self.kept: dict[str, Original] = {}
        self.used: dict[str, float] = {}  # the last use
        self.written: dict[str, float] = {}  # the last use that a crash can't undo
        self.open()

    @property
    def is_healthy(self) -> bool:
        return not (self.disk.is_full or self.disk.is_read_only or self.disk.is_locked)

    def open(self) -> None:
        opening = SqliteStore.open(
            self.home, ttl_s=TTL_S, max_bytes=MAX_BYTES, timeout_s=30, now=self.clock, connect=self.disk
        )
        self.store = self.runner.run(opening)

    @rule(text=st.binary(max_size=50) | st.sampled_from([b"a" * 100_000, os.urandom(20_000)]))
    def keep(self, text: bytes) -> None:
        original = an_original(text, key=os.urandom(32))
        try:
            self.runner.run(self.store.originals.keep(original))
        except StoreUnavailable:
            assert not self.is_healthy
            return
        self.kept[original.id] = original
        self.used[original.id] = self.clock()
        self.written = dict(self.used)

    @precondition(lambda self: self.kept)
    @rule(chance=st.randoms(use_true_random=False))
    def recall(self, chance: object) -> None:
        # In the order in which they were kept: their ids are another each time, and so would be the one that is chosen.
        self.check(chance.choice(list(self.kept)))  # type: ignore[attr-defined]

    def check(self, id: str) -> None:
        try:
            assert self.runner.run(self.store.originals.get(LOCAL, id)) == self.kept[id]
        except StoreUnavailable:
            assert self.disk.is_locked
        except PruneIdNotFound as e:
            assert e.reason == "expired"
            assert self.clock() - self.written[id] > TTL_S
            self.forget(id)
        else:
            assert self.clock() - self.used[id] <= TTL_S
            self.used[id] = self.clock()

    def forget(self, id: str) -> None:
        for names in (self.kept, self.used, self.written):
            del names[id]

    @rule(seconds=st.sampled_from((1, 30, 50, 99, 101)))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def sweep(self) -> None:
        try:
            self.runner.run(self.store.sweep())
        except StoreUnavailable:
            assert not self.is_healthy
        else:
            self.written = dict(self.used)

    @precondition(lambda self: self.is_healthy)
    @rule(fault=st.sampled_from(("full", "read-only", "locked")))
    def fall_ill(self, fault: str) -> None:
        self.disk.is_full = fault == "full"
        self.disk.is_read_only = fault == "read-only"
        if fault == "locked":
            self.lock = sqlite3.connect(store_path(self.home), isolation_level=None)
            self.lock.execute("BEGIN EXCLUSIVE")
            self.disk.is_locked = True

    @precondition(lambda self: not self.is_healthy)
    @rule()
    def recover_health(self) -> None:
        self.disk.is_full = self.disk.is_read_only = self.disk.is_locked = False
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    @precondition(lambda self: self.is_healthy)
    @rule()
    def restart(self) -> None:
        self.runner.run(self.store.close())
        self.written = dict(self.used)
        self.open()

    @precondition(lambda self: self.is_healthy)
    @rule()
    def crash(self) -> None:
        self.disk.is_read_only = True  # whatever was not written yet is never written
        self.runner.run(self.store.close())
        self.disk.is_read_only = False
        self.used = dict(self.written)
        self.open()

    @precondition(lambda self: self.is_healthy)
    @rule(garbage=st.sampled_from((b"", b"garbage" * 1000)))
    def damage(self, garbage: bytes) -> None:
        store_path(self.home).write_bytes(garbage)
        self.sweep()
        for id in sorted(self.kept):
            with pytest.raises(PruneIdNotFound):
                self.runner.run(self.store.originals.get(LOCAL, id))
            self.forget(id)

    @invariant()
    def nobody_knows_another_scope(self) -> None:
        if self.is_healthy and self.kept:
            with pytest.raises(PruneIdNotFound, match="unknown id"):
                self.runner.run(self.store.originals.get(Caller("other"), next(iter(self.kept))))

    def teardown(self) -> None:
        if not self.is_healthy:
            self.recover_health()
        for id in sorted(self.kept):
            self.check(id)
        self.runner.run(self.store.close())
        with closing(self.world):
            assert integrity(store_path(self.home)) == [("ok",)]


TestStoreMachine = pytest.mark.timeout(7200 if DEEP else 600)(StoreMachine.TestCase)
TestStoreMachine.settings = settings(
    max_examples=2000 if DEEP else 10,
    stateful_step_count=50 if DEEP else 30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

import os
import sys
import time
from collections.abc import Callable

import pytest
from tests.processes import children_of

from kimi_proxy.proxy.fork import in_fork

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")


def _endless() -> bytes:
    while True:
        pass


def done(work: Callable[[], bytes], cpu_s: float = 10) -> bytes | None:
    with in_fork(work, cpu_s) as answered:
        return answered()


def test_a_fork_returns_what_the_work_returns() -> None:
    assert done(lambda: b"x" * 3_000_000) == b"x" * 3_000_000


def test_work_runs_in_another_process() -> None:
    assert done(lambda: str(os.getpid()).encode()) != str(os.getpid()).encode()


def test_work_that_uses_up_its_time_ends() -> None:
    began = time.process_time()
    assert done(_endless, 0.05) is None
    assert time.process_time() - began < 1


def test_waiting_uses_no_time_up() -> None:
    def work() -> bytes:
        time.sleep(0.2)
        return b"done"

    assert done(work, 0.1) == b"done"


def test_work_that_fails_returns_nothing() -> None:
    assert done(lambda: str(1 // 0).encode()) is None


def test_work_that_is_not_waited_for_ends_with_the_block() -> None:
    before = set(children_of(os.getpid()))
    with pytest.raises(TimeoutError), in_fork(_endless, 60):
        raise TimeoutError

    assert set(children_of(os.getpid())) <= before  # not even one that has ended


def test_a_block_that_fails_after_it_waited_leaves_nothing_behind() -> None:
    before = set(children_of(os.getpid()))
    with pytest.raises(TimeoutError), in_fork(lambda: b"done", 10) as answered:
        answered()
        raise TimeoutError

    assert set(children_of(os.getpid())) <= before

import os
import sys
import time

import pytest

from kimi_proxy.proxy.fork import in_fork

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")


def _endless() -> bytes:
    while True:
        pass


def test_a_fork_returns_what_the_work_returns() -> None:
    assert in_fork(lambda: b"x" * 3_000_000, 10) == b"x" * 3_000_000


def test_work_runs_in_another_process() -> None:
    assert in_fork(lambda: str(os.getpid()).encode(), 10) != str(os.getpid()).encode()


def test_work_that_uses_up_its_time_ends() -> None:
    began = time.process_time()
    assert in_fork(_endless, 0.05) is None
    assert time.process_time() - began < 1


def test_waiting_uses_no_time_up() -> None:
    def work() -> bytes:
        time.sleep(0.2)
        return b"done"

    assert in_fork(work, 0.1) == b"done"


def test_work_that_fails_returns_nothing() -> None:
    assert in_fork(lambda: str(1 // 0).encode(), 10) is None

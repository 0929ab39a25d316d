import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from tests.support.processes import children_of, runs, within

from kimi_proxy.proxy.fork import StandingFork, in_fork

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


def _worked(job: bytes) -> bytes:
    """What a job asks for."""
    match job:
        case b"endless":
            return _endless()
        case b"fail":
            raise ValueError
        case b"pid":
            return str(os.getpid()).encode()
        case _:
            return job[::-1]


@pytest.fixture
def standing() -> Iterator[StandingFork]:
    fork = StandingFork(_worked)
    yield fork
    fork.close()


def asked(fork: StandingFork, job: bytes, cpu_s: float = 10) -> bytes | None:
    with fork.doing(job, cpu_s) as answered:
        return answered()


def test_a_standing_fork_does_one_job_after_another_in_the_same_process(standing: StandingFork) -> None:
    first = asked(standing, b"pid")
    assert asked(standing, b"x" * 3_000_000 + b"y") == b"y" + b"x" * 3_000_000
    assert asked(standing, b"pid") == first != str(os.getpid()).encode()
    assert asked(standing, b"") == b""


@pytest.mark.parametrize("job", [b"endless", b"fail"])
def test_after_a_job_that_uses_up_its_time_or_fails_another_one_is_done(standing: StandingFork, job: bytes) -> None:
    before = set(children_of(os.getpid()))
    assert asked(standing, job, 0.05) is None
    assert set(children_of(os.getpid())) <= before
    assert asked(standing, b"ab") == b"ba"


def test_a_job_beside_another_one_is_done_too(standing: StandingFork) -> None:
    before = set(children_of(os.getpid()))
    with standing.doing(b"ab", 10) as answered:
        assert asked(standing, b"cd") == b"dc"
        assert answered() == b"ba"

    assert len(set(children_of(os.getpid())) - before) == 1


def test_each_job_has_its_own_time(standing: StandingFork) -> None:
    def spent() -> bytes | None:
        return asked(standing, b"x" * 3_000_000, 0.25)

    assert all(spent() for _ in range(50))


def test_a_job_that_is_not_waited_for_ends_with_the_block(standing: StandingFork) -> None:
    before = set(children_of(os.getpid()))
    with pytest.raises(TimeoutError), standing.doing(b"endless", 60):
        raise TimeoutError

    assert set(children_of(os.getpid())) <= before
    assert asked(standing, b"ab") == b"ba"


def test_a_standing_fork_that_was_killed_while_it_waited_is_made_anew(standing: StandingFork) -> None:
    killed = int(asked(standing, b"pid") or b"")
    os.kill(killed, signal.SIGKILL)
    os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)  # its pipes are closed then

    assert asked(standing, b"ab") == b"ba"


def test_an_answer_of_which_a_part_is_missing_is_none(standing: StandingFork) -> None:
    child = int(asked(standing, b"pid") or b"")
    with standing.doing(b"x" * 3_000_000, 10) as answered:
        time.sleep(0.1)  # by now it has begun to write more than a pipe holds
        os.kill(child, signal.SIGKILL)
        assert answered() is None

    assert asked(standing, b"ab") == b"ba"


def test_a_standing_fork_ends_with_the_process_that_made_it(standing: StandingFork) -> None:
    source, sink = os.pipe()
    maker = os.fork()
    if maker == 0:
        os.write(sink, asked(StandingFork(_worked), b"pid") or b"")
        os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as pipe:
        made = int(pipe.read())  # at its end: the fork does not hold what its maker had open
    os.waitpid(maker, 0)

    assert within(30, lambda: not runs(made))

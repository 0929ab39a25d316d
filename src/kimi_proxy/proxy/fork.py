"""Work that cannot be interrupted, in a forked child that the system ends when it has used up its CPU time."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def in_fork(work: Callable[[], bytes], cpu_s: float) -> Iterator[Callable[[], bytes | None]]:
    """Do `work` beside the block, which gets a function that waits for what it returns; once, and in the same thread.

    That is None if `work` fails, or needs more CPU time than `cpu_s`: CPU time, because the same work then ends in the
    same way on a busy machine. `work` finds only its own thread in the child: it must not wait for another one. What
    was not waited for is ended with the block. Where there is no fork, the work is done when it is waited for, and has
    no limit.
    """
    if sys.platform == "win32":
        yield work
        return
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        _work_and_exit(work, sink, cpu_s)
    os.close(sink)
    is_waited_for = False

    def answered() -> bytes | None:
        nonlocal is_waited_for
        with os.fdopen(source, "rb", closefd=False) as answer:
            found = answer.read()
        is_waited_for = True
        return found if os.waitpid(child, 0)[1] == 0 else None

    try:
        yield answered
    finally:
        os.close(source)
        if not is_waited_for:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _work_and_exit(work: Callable[[], bytes], sink: int, cpu_s: float) -> NoReturn:
    """Whatever happens, end here: what the parent would do next is not for a child."""
    try:
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_PROF, max(cpu_s, 0.001))  # SIGPROF ends a process, by default
        with os.fdopen(sink, "wb") as answer:
            answer.write(work())
        os._exit(0)
    finally:
        os._exit(1)

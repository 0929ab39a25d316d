"""Work that cannot be interrupted, in a forked child that the system ends when it has used up its CPU time."""

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn


def in_fork(work: Callable[[], bytes], cpu_s: float) -> bytes | None:
    """Return what `work` returns; None if it fails, or needs more CPU time than `cpu_s`.

    CPU time, because the same work then ends in the same way on a busy machine. `work` finds only its own thread in
    the child: it must not wait for another one. Where there is no fork it is done here, without a limit.
    """
    if sys.platform == "win32":
        return work()
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        _work_and_exit(work, sink, cpu_s)
    os.close(sink)
    try:
        with os.fdopen(source, "rb") as answer:
            found = answer.read()
    finally:
        _, status = os.waitpid(child, 0)
    return found if status == 0 else None


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

"""Work that cannot be interrupted, in a forked child that the system ends when it has used up its CPU time."""

import gc
import os
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO, NoReturn


@contextmanager
def in_fork(work: Callable[[], bytes], cpu_s: float) -> Iterator[Callable[[], bytes | None]]:
    """Run `work` in parallel with the block, which gets a function that waits for the result (once, same thread).

    The result is None if `work` fails or needs more than `cpu_s` of CPU time (CPU time, so that the outcome is the same
    on a busy machine). Only its own thread exists in the child, so `work` must not wait for another. Unfinished work is
    ended with the block. Without fork, the work is done in the waiting function, without a limit.
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

    def read_answer() -> bytes | None:
        nonlocal is_waited_for
        with os.fdopen(source, "rb", closefd=False) as answer:
            found = answer.read()
        is_waited_for = True
        return found if os.waitpid(child, 0)[1] == 0 else None

    try:
        yield read_answer
    finally:
        os.close(source)
        if not is_waited_for:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _work_and_exit(work: Callable[[], bytes], sink: int, cpu_s: float) -> NoReturn:
    """Always exit here: the rest of the parent's code must not run in a child."""
    try:
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_PROF, max(cpu_s, 0.001))  # SIGPROF ends a process, by default
        with os.fdopen(sink, "wb") as answer:
            answer.write(work())
        os._exit(0)
    finally:
        os._exit(1)


# The CPU time of a job and its size; the size of an answer.
_JOB = struct.Struct(">dI")
_ANSWER = struct.Struct(">I")
_PIPE_BYTES = 1024**2
_MOST_FILES = 4096


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    jobs: int
    answers: BinaryIO

    def give(self, message: bytes) -> None:
        left = memoryview(message)
        while left:
            left = left[os.write(self.jobs, left) :]

    def answer(self) -> bytes | None:
        """Return its result; None if it exits before writing all of it."""
        header = self.answers.read(_ANSWER.size)
        if len(header) < _ANSWER.size:
            return None
        (size,) = _ANSWER.unpack(header)
        found = self.answers.read(size)
        return found if len(found) == size else None

    def end(self) -> None:
        os.close(self.jobs)
        self.answers.close()
        if sys.platform != "win32":  # where none is made
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


class StandingFork:
    """A forked child that does one job after another, each with its own CPU time limit.

    A fork for each job would cost as much as the work: a large process takes milliseconds to copy, and more as it
    writes to copied pages. The child starts on first use, restarts after it was ended, and ends with us.
    """

    def __init__(self, work: Callable[[bytes], bytes]) -> None:
        self._work = work
        self._child: _Child | None = None

    @contextmanager
    def doing(self, job: bytes, cpu_s: float) -> Iterator[Callable[[], bytes | None]]:
        """Run a job in parallel with the block, which gets a function like that of `in_fork`."""
        if sys.platform == "win32":
            yield lambda: self._work(job)
            return
        child = self._give_job(job, cpu_s)
        self._child = None
        found: bytes | None = None

        def read_answer() -> bytes | None:
            nonlocal found
            found = child.answer()
            return found

        try:
            yield read_answer
        finally:
            if found is None or self._child:
                child.end()
            else:
                self._child = child

    def close(self) -> None:
        child, self._child = self._child, None
        if child:
            child.end()

    def _give_job(self, job: bytes, cpu_s: float) -> _Child:
        """Return the child, which has got the job."""
        message = _JOB.pack(cpu_s, len(job)) + job
        if self._child:
            try:
                self._child.give(message)
            except BrokenPipeError:  # it was killed while it waited
                self.close()
            else:
                return self._child
        child = self._fork_child()
        child.give(message)
        return child

    def _fork_child(self) -> _Child:
        if sys.platform == "win32":
            raise OSError("there is no fork")
        job_source, job_sink = os.pipe()
        answer_source, answer_sink = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._serve(job_source, answer_sink)
        os.close(job_source)
        os.close(answer_sink)
        _enlarge(job_sink)
        return _Child(pid, job_sink, os.fdopen(answer_source, "rb"))

    def _serve(self, source: int, sink: int) -> NoReturn:
        """Do jobs until there are no more; whatever happens, end here."""
        try:
            gc.freeze()  # exclude inherited objects from collections, which would copy their pages
            _close_all_but(source, sink)
            with os.fdopen(source, "rb") as jobs, os.fdopen(sink, "wb") as answers:
                while header := jobs.read(_JOB.size):
                    cpu_s, size = _JOB.unpack(header)
                    answer = self._within(cpu_s, jobs.read(size))
                    answers.write(_ANSWER.pack(len(answer)) + answer)
                    answers.flush()
            os._exit(0)
        finally:
            os._exit(1)

    def _within(self, cpu_s: float, job: bytes) -> bytes:
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_PROF, max(cpu_s, 0.001))
        done = self._work(job)
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_PROF, 0)
        return done


def _close_all_but(*kept: int) -> None:
    """Close inherited descriptors: as long as we hold a pipe's other end open, the pipe never ends."""
    first = 3
    for file in sorted(kept):
        os.closerange(first, file)
        first = file + 1
    os.closerange(first, _MOST_FILES)


def _enlarge(pipe: int) -> None:
    """Let a whole job into the pipe at once where the system can: else we would wait for the child to read it."""
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

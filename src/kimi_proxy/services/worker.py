"""A worker process: reads jobs on its standard input, answers on its standard output, dies with its parent."""

import os
import signal
import threading
from queue import SimpleQueue
from typing import BinaryIO

from kimi_proxy.core import tokens
from kimi_proxy.core.fault import place
from kimi_proxy.services import jobs

NICENESS = 5  # the event loop is served first when every core is busy


def main() -> None:
    # Ctrl-C reaches the whole terminal; the parent finishes its requests and then closes our input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    asked, answers = _private_pipes()
    tokens.count("")  # loads the vocabulary before the first job, not during it
    _say(answers, jobs.DONE, b"ready")
    queue: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(asked, queue), daemon=True).start()
    while True:
        _serve(queue.get(), answers)


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Keep the pipes for ourselves: what a library prints must not become part of an answer."""
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return asked, answers


def _listen(asked: BinaryIO, queue: "SimpleQueue[bytes]") -> None:
    """Pass jobs on until the input ends: then nobody waits for us any more, not even for the job at hand."""
    try:
        while header := asked.read(jobs.HEADER.size):
            _, size = jobs.HEADER.unpack(header)
            queue.put(asked.read(size))
    finally:
        os._exit(0)


def _serve(message: bytes, answers: BinaryIO) -> None:
    """Answer one job; whatever goes wrong with it is the parent's to judge."""
    try:
        job = jobs.decode(message)
        _dies_after(job.within_s + 1.0)
        answer = jobs.perform(job)
    except Exception as fault:  # noqa: BLE001 - told to the parent, which fails open and counts it
        _say(answers, jobs.FAILED, place(fault).encode())
    else:
        _say(answers, jobs.DONE, answer)
    finally:
        _dies_after(0)


def _dies_after(seconds: float) -> None:
    """The parent kills us at the deadline; this is for a parent that was itself killed in the meantime."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _say(answers: BinaryIO, status: bytes, message: bytes) -> None:
    answers.write(jobs.HEADER.pack(status, len(message)) + message)
    answers.flush()


if __name__ == "__main__":
    main()

"""A worker process: reads jobs on its standard input, answers on its standard output, dies with its parent."""

import gc
import math
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from typing import BinaryIO, TypeAlias, TypeVar

import msgspec

from kimi_proxy.core import tokens
from kimi_proxy.core.errors import location
from kimi_proxy.core.prune import Cut, Pruned, Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.explain import LineWhy
from kimi_proxy.features.pruning.structure import syntax
from kimi_proxy.features.pruning.structure.syntax import parsing_by
from kimi_proxy.features.sanitizer.shorten import ShortenedText, Task, shorten
from kimi_proxy.features.tool_words import ToolTexts, ToolWords, weigh_words
from kimi_proxy.proxy.fork import StandingFork

HEADER = struct.Struct(">cI")
DONE, FAILED = b"+", b"-"
OUT_OF_TIME = b""  # an answer
OWN_SHARE = 0.7  # of a tool result's time by the clock: the rest suffices to cut it without scores
GIVE_UP_SHARE = 0.9  # of a job's time: a worker that gives up in time goes on with the next job
PARSE_SHARE = 0.4  # of a job's time: the rest suffices to continue without a parse

_parser = StandingFork(syntax.perform)

Check: TypeAlias = Callable[[], None]
Texts = TypeVar("Texts", Question, Task)


# Jobs and answers are length-prefixed MessagePack, never pickle. Their texts are packed, because lone surrogates are
# not valid UTF-8 and must arrive as they left.


class PruneJob(msgspec.Struct, frozen=True, tag="prune"):
    question: Question
    prune_id: str
    scores: list[float] | None
    within_s: float
    cpu_s: float | None = None  # it may take this much CPU time; None: the clock alone counts


class ScoreJob(msgspec.Struct, frozen=True, tag="score"):
    question: Question
    within_s: float


class ExplainJob(msgspec.Struct, frozen=True, tag="explain"):
    question: Question
    cuts: list[Cut]
    part_starts: tuple[int, ...]
    within_s: float


class ShortenJob(msgspec.Struct, frozen=True, tag="shorten"):
    task: Task
    within_s: float
    cpu_s: float


class ToolsJob(msgspec.Struct, frozen=True, tag="tools"):
    texts: list[ToolTexts]
    within_s: float


Job: TypeAlias = "PruneJob | ScoreJob | ExplainJob | ShortenJob | ToolsJob"

_jobs: msgspec.msgpack.Decoder[Job] = msgspec.msgpack.Decoder(PruneJob | ScoreJob | ExplainJob | ShortenJob | ToolsJob)
_pruned = msgspec.msgpack.Decoder(Pruned)
_shortened = msgspec.msgpack.Decoder(ShortenedText)


def _pack(text: str) -> str:
    """Return a text that is valid UTF-8, one character for each byte of `text`."""
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _unpack(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "surrogatepass")


def pack_texts(value: Texts) -> Texts:
    return replace(value, text=_pack(value.text), goal=_pack(value.goal))


def _unpack_texts(value: Texts) -> Texts:
    return replace(value, text=_unpack(value.text), goal=_unpack(value.goal))


def encode(job: Job) -> bytes:
    return msgspec.msgpack.encode(job)


def perform(job: Job) -> bytes:
    """Do a job and return its answer, encoded."""
    answer: Pruned | ShortenedText | list[float] | list[LineWhy] | list[ToolWords]
    match job:
        case PruneJob():
            check = cpu_check(job.cpu_s, time.process_time, _give_up_after(GIVE_UP_SHARE * job.within_s))
            pruned = engine.prune(_unpack_texts(job.question), job.prune_id, job.scores, check)
            answer = replace(pruned, text=_pack(pruned.text))
        case ScoreJob():
            check = _give_up_after(GIVE_UP_SHARE * job.within_s)
            answer = engine.local_scores(_unpack_texts(job.question), check)
        case ExplainJob():
            check = _give_up_after(GIVE_UP_SHARE * job.within_s)
            answer = engine.explain(_unpack_texts(job.question), job.cuts, job.part_starts, check)
        case ToolsJob():
            answer = [weigh_words(texts) for texts in job.texts]
        case ShortenJob():
            task = _unpack_texts(job.task)
            done = shorten_within(task, job.cpu_s, time.process_time, _give_up_after(OWN_SHARE * job.within_s))
            # A hidden text that is the task's own does not travel back.
            hidden = (replace(one, text="" if one.text == task.text else _pack(one.text)) for one in done.hidden)
            answer = replace(done, shown=_pack(done.shown), hidden=tuple(hidden))
    return msgspec.msgpack.encode(answer)


def cpu_check(cpu_s: float | None, cpu_time: Callable[[], float], also: Check | None = None) -> Check:
    """Return a check that raises once so much CPU time has passed from now on, or if `also` does."""
    end = math.inf if cpu_s is None else cpu_time() + cpu_s

    def check() -> None:
        if also:
            also()
        if cpu_time() >= end:
            raise _OutOfTime

    return check


def shorten_within(task: Task, cpu_s: float, cpu_time: Callable[[], float], also: Check | None = None) -> ShortenedText:
    """Shorten a text; if that takes more CPU time, by what needs no scores. `also` may raise to abort."""
    try:
        return shorten(task, cpu_check(cpu_s, cpu_time, also))
    except _OutOfTime:
        return shorten(task, is_hurried=True)


def _give_up_after(seconds: float) -> Check:
    """Return a check of the deadline: a worker that stops on its own need not be killed and replaced."""
    end = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() >= end:
            raise _OutOfTime

    return check


class _OutOfTime(TimeoutError):
    pass


def decode_pruned(message: bytes) -> Pruned:
    answer = _pruned.decode(message)
    return replace(answer, text=_unpack(answer.text))


def decode_shortened(message: bytes, task: Task) -> ShortenedText:
    answer = _shortened.decode(message)
    hidden = tuple(replace(one, text=_unpack(one.text) or task.text) for one in answer.hidden)
    return replace(answer, shown=_unpack(answer.shown), hidden=hidden)


def main() -> None:
    # Ctrl-C reaches the whole terminal; the parent finishes its requests and then closes our input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jobs, answers = _private_pipes()
    tokens.count("")  # loads the vocabulary before the first job, not during it
    _write(answers, DONE, b"ready")
    queue: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(jobs, queue), daemon=True).start()
    for prepare in engine.preparations():
        if queue.empty():
            prepare()
    gc.freeze()  # what stays is not looked through again: that took up to 30 ms of a job
    while True:
        _serve(queue.get(), answers)


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Keep the pipes private: output that a library prints must not become part of a response."""
    jobs = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return jobs, answers


def _listen(jobs: BinaryIO, queue: "SimpleQueue[bytes]") -> None:
    """Queue jobs until the input ends: the parent has then exited, and does not wait for the current job either."""
    try:
        while header := jobs.read(HEADER.size):
            _, size = HEADER.unpack(header)
            queue.put(jobs.read(size))
    finally:
        os._exit(0)


def _serve(message: bytes, answers: BinaryIO) -> None:
    """Answer one job; a failure is reported to the parent, which fails open and counts it."""
    try:
        job = _jobs.decode(message)
        _dies_after(job.within_s + 1.0)
        cpu_s = job.cpu_s if isinstance(job, PruneJob | ShortenJob) else None
        limit_s = PARSE_SHARE * min(job.within_s, math.inf if cpu_s is None else cpu_s)
        with parsing_by(lambda text, cpu_s: _parser.doing(text, min(cpu_s, limit_s))):
            answer = perform(job)
    except _OutOfTime:
        _write(answers, DONE, OUT_OF_TIME)
    except Exception as fault:  # noqa: BLE001 - reported to the parent
        _write(answers, FAILED, location(fault).encode())
    else:
        _write(answers, DONE, answer)
    finally:
        _dies_after(0)


def _dies_after(seconds: float) -> None:
    """The parent kills us at the deadline; this is for a parent that was itself killed in the meantime."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _write(answers: BinaryIO, status: bytes, message: bytes) -> None:
    answers.write(HEADER.pack(status, len(message)) + message)
    answers.flush()


if __name__ == "__main__":
    main()

"""A worker process: reads jobs on its standard input, answers on its standard output, dies with its parent."""

import os
import signal
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import BinaryIO, TypeAlias

import msgspec

from kimi_proxy.core import tokens
from kimi_proxy.core.errors import location
from kimi_proxy.core.prune import Cut, Pruned, Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.explain import LineWhy
from kimi_proxy.features.sanitizer.shorten import ShortenedText, Task, shorten

# What a worker process is asked and what it answers: length-prefixed MessagePack, never pickle.
#
# Texts travel as bytes, because lone surrogates are not valid UTF-8 and must arrive as they left.

Check: TypeAlias = Callable[[], None]

HEADER = struct.Struct(">cI")
DONE, FAILED = b"+", b"-"


class PruneJob(msgspec.Struct, frozen=True, tag="prune"):
    text: bytes
    goal: bytes
    question: Question
    prune_id: str
    scores: list[float] | None
    within_s: float


class ScoreJob(msgspec.Struct, frozen=True, tag="score"):
    text: bytes
    goal: bytes
    question: Question
    within_s: float


class ExplainJob(msgspec.Struct, frozen=True, tag="explain"):
    text: bytes
    goal: bytes
    question: Question
    cuts: list[Cut]
    within_s: float


class ShortenJob(msgspec.Struct, frozen=True, tag="shorten"):
    text: bytes
    goal: bytes
    task: Task
    within_s: float


Job: TypeAlias = "PruneJob | ScoreJob | ExplainJob | ShortenJob"


class PrunedAnswer(msgspec.Struct, frozen=True):
    text: bytes
    pruned: Pruned


class ShortenedAnswer(msgspec.Struct, frozen=True):
    """Of the hidden texts, those that are not the one that was asked about."""

    shown: bytes
    hidden: list[bytes | None]
    shortened: ShortenedText


_jobs: msgspec.msgpack.Decoder[Job] = msgspec.msgpack.Decoder(PruneJob | ScoreJob | ExplainJob | ShortenJob)
_pruned = msgspec.msgpack.Decoder(PrunedAnswer)
_scores = msgspec.msgpack.Decoder(list[float])
_shortened = msgspec.msgpack.Decoder(ShortenedAnswer)
_whys = msgspec.msgpack.Decoder(list[LineWhy])


def prune_job(question: Question, prune_id: str, scores: Sequence[float] | None, within_s: float) -> PruneJob:
    as_list = None if scores is None else list(scores)
    return PruneJob(*_packed(question), prune_id, as_list, within_s)


def score_job(question: Question, within_s: float) -> ScoreJob:
    return ScoreJob(*_packed(question), within_s)


def explain_job(question: Question, cuts: Sequence[Cut], within_s: float) -> ExplainJob:
    return ExplainJob(*_packed(question), list(cuts), within_s)


def shorten_job(task: Task, within_s: float) -> ShortenJob:
    return ShortenJob(_bytes(task.text), _bytes(task.goal), replace(task, text="", goal=""), within_s)


def encode(job: Job) -> bytes:
    return msgspec.msgpack.encode(job)


def decode(message: bytes) -> Job:
    return _jobs.decode(message)


def perform(job: Job) -> bytes:
    """Do what `job` asks and encode the answer."""
    if isinstance(job, ShortenJob):
        return _shorten(replace(job.task, text=_text(job.text), goal=_text(job.goal)))
    question = replace(job.question, text=_text(job.text), goal=_text(job.goal))
    match job:
        case PruneJob():
            pruned = engine.prune(question, job.prune_id, job.scores)
            answer = PrunedAnswer(_bytes(pruned.text), replace(pruned, text=""))
            return msgspec.msgpack.encode(answer)
        case ScoreJob():
            return msgspec.msgpack.encode(engine.local_scores(question))
        case ExplainJob():
            return msgspec.msgpack.encode(engine.explain(question, job.cuts))


def pruned(message: bytes) -> Pruned:
    answer = _pruned.decode(message)
    return replace(answer.pruned, text=_text(answer.text))


def _shorten(task: Task) -> bytes:
    done = shorten(task)
    hidden = [None if one.text == task.text else _bytes(one.text) for one in done.hidden]
    bare = replace(done, shown="", hidden=tuple(replace(one, text="") for one in done.hidden))
    return msgspec.msgpack.encode(ShortenedAnswer(_bytes(done.shown), hidden, bare))


def shortened(message: bytes, task: Task) -> ShortenedText:
    answer = _shortened.decode(message)
    texts = (task.text if raw is None else _text(raw) for raw in answer.hidden)
    hidden = (replace(one, text=text) for one, text in zip(answer.shortened.hidden, texts, strict=True))
    return replace(answer.shortened, shown=_text(answer.shown), hidden=tuple(hidden))


def scores(message: bytes) -> list[float]:
    return _scores.decode(message)


def whys(message: bytes) -> list[LineWhy]:
    return _whys.decode(message)


def _packed(question: Question) -> tuple[bytes, bytes, Question]:
    return _bytes(question.text), _bytes(question.goal), replace(question, text="", goal="")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


NICENESS = 5  # the event loop is served first when every core is busy


def main() -> None:
    # Ctrl-C reaches the whole terminal; the parent finishes its requests and then closes our input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    asked, answers = _private_pipes()
    tokens.count("")  # loads the vocabulary before the first job, not during it
    _say(answers, DONE, b"ready")
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
        while header := asked.read(HEADER.size):
            _, size = HEADER.unpack(header)
            queue.put(asked.read(size))
    finally:
        os._exit(0)


def _serve(message: bytes, answers: BinaryIO) -> None:
    """Answer one job; whatever goes wrong with it is the parent's to judge."""
    try:
        job = decode(message)
        _dies_after(job.within_s + 1.0)
        answer = perform(job)
    except Exception as fault:  # noqa: BLE001 - told to the parent, which fails open and counts it
        _say(answers, FAILED, location(fault).encode())
    else:
        _say(answers, DONE, answer)
    finally:
        _dies_after(0)


def _dies_after(seconds: float) -> None:
    """The parent kills us at the deadline; this is for a parent that was itself killed in the meantime."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _say(answers: BinaryIO, status: bytes, message: bytes) -> None:
    answers.write(HEADER.pack(status, len(message)) + message)
    answers.flush()


if __name__ == "__main__":
    main()

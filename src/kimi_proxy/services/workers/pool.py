"""Worker processes for the CPU work of pruning, so that the event loop never waits for it.

It runs in child processes, which can be killed at the deadline. If no child is free in time, a chat request is served
by a thread, which checks the time as it goes and does not parse. A command that exits after one text uses a thread for
small texts too, which parses in a fork: a child would take longer to start."""

import asyncio
import logging
import os
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, AsyncExitStack
from typing import Self, TypeAlias, TypeVar, cast

import msgspec

from kimi_proxy.core import tokens
from kimi_proxy.core.errors import location
from kimi_proxy.core.prune import Cut, Pruned, Question
from kimi_proxy.core.timing import measure_time
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.explain import LineWhy
from kimi_proxy.features.pruning.structure import syntax
from kimi_proxy.features.pruning.structure.syntax import Guard, parsing_by
from kimi_proxy.features.sanitizer.shorten import ShortenedText, Task, shorten
from kimi_proxy.features.tool_words import ToolTexts, ToolWords, weigh_words
from kimi_proxy.proxy.fork import in_fork
from kimi_proxy.proxy.process import STDIN, Command, Process
from kimi_proxy.services.workers import worker

# -P: the current directory is the user's, and a numpy.py in it is not ours.
COMMAND = (sys.executable, "-P", "-m", "kimi_proxy.services.workers.worker")

SMALL_CHARS = 32 * 1024
# Up to this size a thread may work beside the event loop, which then gets fewer turns than beside a child.
HURRIED_MAX_CHARS = 512 * 1024
FEW_TOOLS = 20
WAIT_SHARE = 0.5  # of a chat request's time: so long it waits for a child that is busy or starts
START_WITHIN_S = 30.0
RESTART_S = 1.0
HURRIED_S = 1.0  # for what needs no scores, a few milliseconds of work for 100 KB, on the busiest machine

_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")

Value = TypeVar("Value")
WorkerAnswer: TypeAlias = tuple[bool, bytes]  # whether the job went well; its result, or what went wrong

log = logging.getLogger(__name__)


class WorkerProcess(Process):
    def __init__(self) -> None:
        super().__init__()
        self._received = bytearray()
        self._answer: asyncio.Future[WorkerAnswer | None] = asyncio.get_running_loop().create_future()
        self._retirement: asyncio.TimerHandle | None = None

    async def ready(self) -> None:
        """Wait for its first message, which means that it is ready for jobs."""
        await self._read_answer()

    async def ask(self, message: bytes) -> WorkerAnswer:
        self._answer = asyncio.get_running_loop().create_future()
        self._pipe(STDIN).write(worker.HEADER.pack(worker.DONE, len(message)) + message)
        return await self._read_answer()

    def retire_after(self, idle_s: float, retire: Callable[[Self], object]) -> None:
        self._retirement = asyncio.get_running_loop().call_later(idle_s, retire, self)

    def cancel_retirement(self) -> None:
        if self._retirement:
            self._retirement.cancel()

    async def _read_answer(self) -> WorkerAnswer:
        answer = await self._answer
        self._answer = asyncio.get_running_loop().create_future()
        self._answer.set_result(None)  # an idle worker holds no text
        if answer is None:
            raise ChildProcessError("a worker exited in the middle of a job")
        return answer

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._received += data
        if len(self._received) < worker.HEADER.size:
            return
        status, size = worker.HEADER.unpack_from(self._received)
        if len(self._received) < worker.HEADER.size + size or self._answer.done():
            return
        message = bytes(self._received[worker.HEADER.size :])
        self._received.clear()
        self._answer.set_result((status == worker.DONE, message))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self.is_alive = False
        if not self._answer.done():
            self._answer.set_result(None)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.upper().endswith(_SECRETS)}


def parsing_in_fork(job: bytes, cpu_s: float) -> AbstractContextManager[Callable[[], bytes | None]]:
    return in_fork(lambda: syntax.perform(job), cpu_s)


class NoWorkerFree(TimeoutError):
    """Every child is busy, or still starts."""


class Workers:
    """Children start when they are needed, end when they have been idle, and are replaced when they die.

    Long texts have at most `limit` of them; one more is there for small texts, which so never wait for long ones. Once
    warm, the last one stays. Texts of up to `thread_max_chars` need none.
    """

    def __init__(
        self,
        limit: int = min(os.cpu_count() or 1, 4),
        *,
        idle_s: float = 60.0,
        thread_max_chars: int = 0,
        hurried_s: float = HURRIED_S,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._limit = limit
        self._long = asyncio.Semaphore(limit)
        self._stays_warm = False
        self._idle_s = idle_s
        self._thread_max_chars = thread_max_chars
        self._hurried_s = hurried_s
        self._command = command
        self._threads = ThreadPoolExecutor(limit, thread_name_prefix="prune")
        self._children: set[WorkerProcess] = set()
        # The child used last comes first, so that the others can retire. None means that none could start.
        self._idle: asyncio.LifoQueue[WorkerProcess | None] = asyncio.LifoQueue()
        self._waiting = 0
        self._spawning = 0  # not among the children yet
        self._starting = 0  # not ready yet
        self._tasks: set[asyncio.Task[object]] = set()
        self._closed = False

    async def prune(
        self,
        question: Question,
        prune_id: str,
        scores: Sequence[float] | None,
        within_s: float,
        cpu_s: float | None = None,
    ) -> Pruned:
        """Prune a text. Raise TimeoutError if that takes more time, or more CPU time if `cpu_s` limits it."""

        def work(check: worker.Check) -> Pruned:
            return engine.prune(question, prune_id, scores, worker.cpu_check(cpu_s, time.thread_time, check))

        if self._is_in_thread(question.text):
            return await self._in_thread(work, within_s)
        as_list = None if scores is None else list(scores)
        job = worker.PruneJob(worker.pack_texts(question), prune_id, as_list, within_s, cpu_s)
        return worker.decode_pruned(await self._in_child(job, len(question.text)))

    async def local_scores(self, question: Question, within_s: float) -> list[float]:
        if self._is_in_thread(question.text):
            return await self._in_thread(lambda check: engine.local_scores(question, check), within_s)
        job = worker.ScoreJob(worker.pack_texts(question), within_s)
        return msgspec.msgpack.decode(await self._in_child(job, len(question.text)), type=list[float])

    async def explain(
        self, question: Question, cuts: Sequence[Cut], part_starts: Sequence[int], within_s: float
    ) -> list[LineWhy]:
        if self._is_in_thread(question.text):
            return await self._in_thread(lambda check: engine.explain(question, cuts, part_starts, check), within_s)
        job = worker.ExplainJob(worker.pack_texts(question), list(cuts), tuple(part_starts), within_s)
        return msgspec.msgpack.decode(await self._in_child(job, len(question.text)), type=list[LineWhy])

    async def tool_words(self, texts: Sequence[ToolTexts], within_s: float) -> list[ToolWords]:
        """Return the words by which tools are found; a few are read in a thread."""
        if len(texts) <= FEW_TOOLS:
            return await self._in_thread(lambda check: [weigh_words(each) for each in texts], within_s)
        # A lone surrogate, which a listing may hold, is no word.
        plain = [tuple(text.encode("utf-8", "replace").decode() for text in each) for each in texts]
        job = worker.ToolsJob(cast("list[ToolTexts]", plain), within_s)
        chars = sum(len(text) for each in texts for text in each)
        return msgspec.msgpack.decode(await self._in_child(job, chars), type=list[ToolWords])

    async def shorten(self, task: Task, within_s: float, cpu_s: float) -> ShortenedText:
        """Shorten a tool result; results not scored within either time limit are cut without scores.

        A chat request waits for this: if it would wait long for a child, a thread does it by line rules.
        """
        with measure_time("scoring"):
            try:
                return await self._score(task, within_s, cpu_s)
            except TimeoutError:
                return await self.shorten_unscored(task)

    async def shorten_unscored(self, task: Task) -> ShortenedText:
        """Shorten a tool result by what needs no scores, in linear time."""
        return await self._in_thread(
            lambda check: _faults_named(lambda: shorten(task, is_hurried=True)), self._hurried_s, parse=None
        )

    async def _score(self, task: Task, within_s: float, cpu_s: float) -> ShortenedText:
        def work(check: worker.Check) -> ShortenedText:
            return _faults_named(lambda: worker.shorten_within(task, cpu_s, time.thread_time, check))

        if within_s <= 0:
            raise TimeoutError
        if self._is_in_thread(task.text):
            return await self._in_thread(work, within_s)
        deadline = time.monotonic() + within_s
        free_within_s = WAIT_SHARE * within_s if len(task.text) <= HURRIED_MAX_CHARS else None
        job = worker.ShortenJob(worker.pack_texts(task), within_s, cpu_s)
        try:
            return worker.decode_shortened(await self._in_child(job, len(task.text), free_within_s), task)
        except NoWorkerFree:
            return await self._in_thread(work, deadline - time.monotonic(), parse=None)

    async def warm(self) -> None:
        """Load what the first question would wait for: the vocabulary here, and one child, which then stays."""
        self._stays_warm = True
        self._start_one()
        await asyncio.get_running_loop().run_in_executor(self._threads, tokens.count, "")

    def keep_spare(self) -> None:
        """Keep a second child until it has been idle: a text that is stuck in the first holds up no other."""
        if len(self._children) + self._spawning < min(2, self._limit + 1) and not self._closed:
            self._start()

    async def close(self) -> None:
        """End every child, also one that is working: its job fails, and so do those that wait for one."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for child in tuple(self._children):
            self._discard(child)
        self._release_waiting()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start_one(self) -> None:
        if not self._children and not self._spawning and not self._closed:
            self._start()

    def _is_in_thread(self, text: str) -> bool:
        return len(text) <= self._thread_max_chars

    async def _in_thread(
        self, work: Callable[[worker.Check], Value], within_s: float, parse: Guard | None = parsing_in_fork
    ) -> Value:
        deadline = time.monotonic() + within_s
        abandoned = False

        def check() -> None:
            if abandoned or time.monotonic() >= deadline:
                raise TimeoutError

        def run_guarded() -> Value:
            with parsing_by(parse):
                return work(check)

        try:
            async with asyncio.timeout(within_s):
                return await asyncio.get_running_loop().run_in_executor(self._threads, run_guarded)
        finally:
            abandoned = True

    async def _in_child(self, job: worker.Job, chars: int, free_within_s: float | None = None) -> bytes:
        """Return a worker's answer. Raise NoWorkerFree if none was free in time, TimeoutError if it took too long."""
        deadline = time.monotonic() + job.within_s
        async with asyncio.timeout(job.within_s), AsyncExitStack() as lane:
            try:
                async with asyncio.timeout(free_within_s):
                    if chars > SMALL_CHARS:
                        await lane.enter_async_context(self._long)
                    child = await self._lease()
            except TimeoutError:
                raise NoWorkerFree from None
            try:
                left_s = max(0.0, deadline - time.monotonic())
                is_well, answer = await child.ask(worker.encode(msgspec.structs.replace(job, within_s=left_s)))
            except BaseException:
                # A child that still owes an answer would give it to the next job.
                self._replace(child)
                raise
        self._release(child)
        if not is_well:
            raise ChildProcessError(f"a worker failed: {answer.decode()}")
        if answer == worker.OUT_OF_TIME:
            raise TimeoutError
        return answer

    async def _lease(self) -> WorkerProcess:
        while True:
            if self._needs_another():
                self._start()
            child = await self._next_idle()
            if child is None:
                raise ChildProcessError("no worker could be started")
            child.cancel_retirement()
            if child in self._children and child.is_alive:
                return child
            self._discard(child)

    def _needs_another(self) -> bool:
        """Return whether no child is idle, all that are starting are waited for, and there is room for one more."""
        has_room = len(self._children) + self._spawning < self._limit + 1
        return has_room and self._idle.empty() and self._starting <= self._waiting

    async def _next_idle(self) -> WorkerProcess | None:
        self._waiting += 1
        try:
            return await self._idle.get()
        finally:
            self._waiting -= 1

    def _release(self, child: WorkerProcess) -> None:
        child.retire_after(self._idle_s, self._retire)
        self._idle.put_nowait(child)

    def _retire(self, child: WorkerProcess) -> None:
        if self._stays_warm and len(self._children) == 1:
            child.retire_after(self._idle_s, self._retire)
        else:
            self._discard(child)

    def _replace(self, child: WorkerProcess) -> None:
        log.warning("worker replaced")
        self._discard(child)
        if not self._closed:
            self._start()
            self.keep_spare()

    def _discard(self, child: WorkerProcess) -> None:
        if child in self._children:
            self._children.remove(child)
            child.cancel_retirement()
            self._run_in_background(child.end(grace_s=0))

    def _start(self) -> None:
        self._spawning += 1
        self._starting += 1
        self._run_in_background(self._start_workers())

    async def _start_workers(self) -> None:
        try:
            await self._make_ready(await self._spawn())
        except OSError as e:  # TimeoutError and ChildProcessError are among them
            if not self._closed:
                log.error("worker did not start", extra={"problem": f"{type(e).__name__}: {e}"})
            self._release_waiting()
        finally:
            self._starting -= 1

    async def _spawn(self) -> WorkerProcess:
        try:
            child = WorkerProcess()
            await child.launch(Command(self._command, without_secrets(os.environ)), stderr=DEVNULL)
            self._children.add(child)
            self._run_in_background(self._watch(child))
            return child
        finally:
            self._spawning -= 1

    async def _watch(self, child: WorkerProcess) -> None:
        """Start another worker if `child` exited on its own and none is left."""
        await child.wait_closed()
        if child in self._children:
            self._discard(child)
            if self._stays_warm:
                asyncio.get_running_loop().call_later(RESTART_S, self._start_one)

    async def _make_ready(self, child: WorkerProcess) -> None:
        try:
            async with asyncio.timeout(0 if self._closed else START_WITHIN_S):
                await child.ready()
        except OSError:
            self._discard(child)
            raise
        self._release(child)

    def _release_waiting(self) -> None:
        if not self._children:
            for _ in range(self._waiting):
                self._idle.put_nowait(None)

    def _run_in_background(self, work: Coroutine[object, object, object]) -> None:
        """Run `work` in the background; `close` waits for its end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _faults_named(work: Callable[[], ShortenedText]) -> ShortenedText:
    """Fail as a child does: a caller that waits for several outputs loses only this one."""
    try:
        return work()
    except TimeoutError:
        raise
    except Exception as fault:  # the caller fails open and counts it
        raise ChildProcessError(f"a worker failed: {location(fault)}") from fault

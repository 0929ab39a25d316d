"""Where the CPU work of pruning runs, so that the event loop never waits for it.

Small texts run in a thread, which looks at the clock as it goes. Larger ones run in child processes, which can
be killed at the deadline whatever they are doing."""

import asyncio
import logging
import os
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeAlias, TypeVar

import msgspec

from kimi_proxy.core import tokens
from kimi_proxy.core.errors import location
from kimi_proxy.core.prune import Cut, Pruned, Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.explain import LineWhy
from kimi_proxy.features.sanitizer.shorten import ShortenedText, Task, shorten
from kimi_proxy.proxy.process import STDIN, Command, Process
from kimi_proxy.services import worker

# -P: the current directory is the user's, and a numpy.py in it is not ours.
COMMAND = (sys.executable, "-P", "-m", "kimi_proxy.services.worker")

THREAD_MAX_CHARS = 32 * 1024  # up to here, talking to a child costs about as much as the work
# Up to here the event loop gets its turns beside a thread that works; it gets fewer of them than beside a child.
HURRIED_MAX_CHARS = 512 * 1024
START_WITHIN_S = 30.0
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
        """Wait for its first message, which says that it is ready for jobs."""
        await self._answered()

    async def ask(self, message: bytes) -> WorkerAnswer:
        self._answer = asyncio.get_running_loop().create_future()
        self._pipe(STDIN).write(worker.HEADER.pack(worker.DONE, len(message)) + message)
        return await self._answered()

    def retire_after(self, idle_s: float, retire: Callable[[Self], object]) -> None:
        self._retirement = asyncio.get_running_loop().call_later(idle_s, retire, self)

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a job, or else for its retirement."""
        return self.is_alive and self._retirement is not None and not self._retirement.cancelled()

    def cancel_retirement(self) -> None:
        if self._retirement:
            self._retirement.cancel()

    async def _answered(self) -> WorkerAnswer:
        answer = await self._answer
        if answer is None:
            raise ChildProcessError("a worker ended in the middle of a job")
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


class Workers:
    """Children start when they are needed, end when they have been idle, and are replaced when they die."""

    def __init__(
        self,
        limit: int = min(os.cpu_count() or 1, 4),
        *,
        idle_s: float = 60.0,
        thread_max_chars: int = THREAD_MAX_CHARS,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._limit = limit
        self._idle_s = idle_s
        self._thread_max_chars = thread_max_chars
        self._command = command
        self._threads = ThreadPoolExecutor(limit, thread_name_prefix="prune")
        self._children: set[WorkerProcess] = set()
        # The child used last is taken first, so that the others can retire. None says that none could start.
        self._idle: asyncio.LifoQueue[WorkerProcess | None] = asyncio.LifoQueue()
        self._waiting = 0
        self._spawning = 0  # not among the children yet
        self._starting = 0  # not ready yet
        self._tasks: set[asyncio.Task[object]] = set()
        self._closed = False

    async def prune(self, question: Question, prune_id: str, scores: Sequence[float] | None, within_s: float) -> Pruned:
        if self._is_small(question):
            return await self._in_thread(lambda check: engine.prune(question, prune_id, scores, check), within_s)
        as_list = None if scores is None else list(scores)
        job = worker.PruneJob(worker.packed(question), prune_id, as_list, within_s)
        return worker.decode_pruned(await self._in_child(job))

    async def local_scores(self, question: Question, within_s: float) -> list[float]:
        if self._is_small(question):
            return await self._in_thread(lambda check: engine.local_scores(question, check), within_s)
        answer = await self._in_child(worker.ScoreJob(worker.packed(question), within_s))
        return msgspec.msgpack.decode(answer, type=list[float])

    async def explain(self, question: Question, cuts: Sequence[Cut], within_s: float) -> list[LineWhy]:
        if self._is_small(question):
            return await self._in_thread(lambda check: engine.explain(question, cuts, check), within_s)
        job = worker.ExplainJob(worker.packed(question), list(cuts), within_s)
        return msgspec.msgpack.decode(await self._in_child(job), type=list[LineWhy])

    async def shorten(self, task: Task, within_s: float, cpu_s: float) -> ShortenedText:
        """Shorten a tool result; what is not scored within either time is cut by what needs no scores.

        A chat request waits for this: it cannot also wait for a child to start.
        """
        try:
            return await self._scored(task, within_s, cpu_s)
        except TimeoutError:
            return await self.shorten_unscored(task)

    async def shorten_unscored(self, task: Task) -> ShortenedText:
        """Shorten a tool result by what needs no scores, in linear time."""
        return await self._in_thread(lambda check: _faults_named(lambda: shorten(task, is_hurried=True)), HURRIED_S)

    async def _scored(self, task: Task, within_s: float, cpu_s: float) -> ShortenedText:
        size = len(task.text)
        if size <= self._thread_max_chars or (not self._has_idle() and size <= HURRIED_MAX_CHARS):
            if size > self._thread_max_chars:
                self._start_one()
            return await self._in_thread(
                lambda check: _faults_named(lambda: worker.shorten_within(task, cpu_s, time.thread_time, check)),
                within_s,
            )
        job = worker.ShortenJob(worker.packed(task), within_s, cpu_s)
        return worker.decode_shortened(await self._in_child(job), task)

    async def warm(self) -> None:
        """Load what the first question would wait for: the vocabulary here, and one child."""
        self._start_one()
        await asyncio.get_running_loop().run_in_executor(self._threads, tokens.count, "")

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

    def _has_idle(self) -> bool:
        """Return whether a child waits for a job. The queue does not know: retired children still stand in it."""
        return any(child.is_idle for child in self._children)

    def _is_small(self, question: Question) -> bool:
        return len(question.text) <= self._thread_max_chars

    async def _in_thread(self, work: Callable[[worker.Check], Value], within_s: float) -> Value:
        deadline = time.monotonic() + within_s
        abandoned = False

        def check() -> None:
            if abandoned or time.monotonic() >= deadline:
                raise TimeoutError

        try:
            async with asyncio.timeout(within_s):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work, check)
        finally:
            abandoned = True

    async def _in_child(self, job: worker.Job) -> bytes:
        async with asyncio.timeout(job.within_s):
            child = await self._lease()
            try:
                is_well, answer = await child.ask(worker.encode(job))
            except BaseException:
                # A child that still owes an answer would give it to the next job.
                self._replace(child)
                raise
        self._release(child)
        if not is_well:
            raise ChildProcessError(f"a worker failed: {answer.decode()}")
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
        has_room = len(self._children) + self._spawning < self._limit
        return has_room and self._idle.empty() and self._starting <= self._waiting

    async def _next_idle(self) -> WorkerProcess | None:
        self._waiting += 1
        try:
            return await self._idle.get()
        finally:
            self._waiting -= 1

    def _release(self, child: WorkerProcess) -> None:
        child.retire_after(self._idle_s, self._discard)
        self._idle.put_nowait(child)

    def _replace(self, child: WorkerProcess) -> None:
        log.warning("worker replaced")
        self._discard(child)
        if not self._closed:
            self._start()

    def _discard(self, child: WorkerProcess) -> None:
        if child in self._children:
            self._children.remove(child)
            child.cancel_retirement()
            self._beside(child.end(grace_s=0))

    def _start(self) -> None:
        self._spawning += 1
        self._starting += 1
        self._beside(self._started())

    async def _started(self) -> None:
        try:
            await self._make_ready(await self._spawned())
        except OSError as e:  # TimeoutError and ChildProcessError are among them
            if not self._closed:
                log.error("worker did not start", extra={"problem": f"{type(e).__name__}: {e}"})
            self._release_waiting()
        finally:
            self._starting -= 1

    async def _spawned(self) -> WorkerProcess:
        try:
            child = WorkerProcess()
            await child.launch(Command(self._command, without_secrets(os.environ)), stderr=DEVNULL)
            self._children.add(child)
            return child
        finally:
            self._spawning -= 1

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

    def _beside(self, work: Coroutine[object, object, object]) -> None:
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

"""The life of a prune, from question to answer, and the way back."""

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeAlias, TypeVar

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.config import PrunerSettings
from kimi_proxy.core.errors import (
    InvalidParams,
    KimiProxyError,
    PruneIdNotFound,
    RerankFailed,
    StoreUnavailable,
    WarningCode,
    location,
)
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.markers import is_id, new_id
from kimi_proxy.core.prune import Annotation, Cut, Pruned, Question, untouched
from kimi_proxy.features import recovery
from kimi_proxy.features.pruning import score
from kimi_proxy.features.pruning.explain import LineWhy
from kimi_proxy.features.recovery import LineRange
from kimi_proxy.services import originals
from kimi_proxy.services.events import Publish, no_op
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.originals import decoded, encoded, fingerprint
from kimi_proxy.services.store import Original, Originals
from kimi_proxy.services.workers import Workers

log = logging.getLogger(__name__)

MIN_RESERVE_S = 0.3  # enough for a first prune, which loads the vocabulary


class Reranked(Protocol):
    @property
    def scores(self) -> list[float]: ...
    @property
    def latency_ms(self) -> int: ...
    @property
    def status(self) -> int: ...


Rerank: TypeAlias = Callable[[str, Sequence[str], float], Awaitable[Reranked]]
LocalScores: TypeAlias = Callable[[Question, float], Awaitable[list[float]]]


@dataclass(frozen=True, slots=True)
class Budget:
    max_docs: int
    patience_s: float  # for the reranker
    left_s: float  # for everything, pruning included


@dataclass(frozen=True, slots=True)
class Reranking:
    """What an answer tells about the reranker."""

    docs_total: int = 0  # lines that are not blank
    docs_scored: int = 0
    latency_ms: int = 0
    http_status: int | None = None
    cached: bool = False
    warnings: tuple[WarningCode, ...] = ()

    @property
    def has_failed(self) -> bool:
        return "deepinfra_error" in self.warnings


async def rerank(
    question: Question, ask: Rerank, local_scores: LocalScores, budget: Budget
) -> tuple[Reranking, list[float] | None]:
    """One score per line, or None where the reranker has nothing to say and the local scorer has to do."""
    began = time.monotonic()
    local = await local_scores(question, budget.left_s)
    spent = time.monotonic() - began
    lines = text_lines.split(question.text)
    asked = score.choose(lines, local, budget.max_docs)
    found = Reranking(docs_total=len(score.candidates_of(lines)))
    if not asked:
        return found, None
    try:
        heard = await ask(question.goal, [lines[i] for i in asked], _patience(budget, spent))
    except RerankFailed as e:
        log.warning("reranker failed", extra={"code": e.warning, "status": e.status, "what": str(e)})
        latency_ms = round((time.monotonic() - began - spent) * 1000)
        failed = replace(found, latency_ms=latency_ms, warnings=("deepinfra_error", e.warning))
        return replace(failed, http_status=e.status), None
    found = replace(found, docs_scored=len(asked), latency_ms=heard.latency_ms, http_status=heard.status)
    if found.docs_total > found.docs_scored:
        found = replace(found, warnings=("deepinfra_docs_truncated",))
    return found, score.merge(local, asked, heard.scores)


def _patience(budget: Budget, spent: float) -> float:
    """Whatever the reranker does, there must be time left to prune without it."""
    left = budget.left_s - spent
    reserve = min(max(MIN_RESERVE_S, 3 * spent), left / 2)
    return min(budget.patience_s, left - reserve)


USD_PER_TOKEN_SAVED = 0.01 / 1_000_000


@dataclass(frozen=True, slots=True)
class PruneAnswer:
    """`prune_id` is None when the original could not be committed; the text is then whole."""

    prune_id: str | None
    pruned: Pruned
    reranking: Reranking | None = None  # None: the local backend
    elapsed_ms: int = 0

    @property
    def backend(self) -> str:
        return "heuristic" if self.reranking is None else "deepinfra"

    @property
    def tokens_saved(self) -> int:
        return self.pruned.tokens_before - self.pruned.tokens_after

    @property
    def outcome(self) -> str:
        if self.pruned.used_fallback:
            return "fallback"
        return "pruned" if self.pruned.annotations else "untouched"

    def from_cache(self) -> "PruneAnswer":
        """The same answer, given again."""
        again = self.reranking and replace(self.reranking, latency_ms=0, cached=True)
        return replace(self, pruned=self.pruned.warned("cache_hit"), reranking=again)

    def stats(self) -> JsonObject:
        pruned = self.pruned
        ratio = pruned.pruned_lines / pruned.original_lines if pruned.original_lines else 0.0
        return {
            "original_lines": pruned.original_lines,
            "kept_lines": pruned.original_lines - pruned.pruned_lines,
            "pruned_lines": pruned.pruned_lines,
            "pruned_ratio": round(ratio, 4),
            "tokens_est_before": pruned.tokens_before,
            "tokens_est_after": pruned.tokens_after,
            "elapsed_ms": self.elapsed_ms,
            "used_fallback": pruned.used_fallback,
            "backend": self.backend,
            "tokens_saved_est": self.tokens_saved,
            **self._reranking_stats(),
        }

    def json(self) -> JsonObject:
        return {
            "prune_id": self.prune_id,
            "pruned_text": self.pruned.text,
            "annotations": [_annotation(a) for a in self.pruned.annotations],
            "stats": self.stats(),
            "warnings": list(self.pruned.warnings),
        }

    def _reranking_stats(self) -> JsonObject:
        found = self.reranking
        if found is None:
            return {}
        status: JsonObject = {} if found.http_status is None else {"deepinfra_http_status": found.http_status}
        return {
            "deepinfra_latency_ms": found.latency_ms,
            "deepinfra_docs_scored": found.docs_scored,
            "deepinfra_docs_total": found.docs_total,
            **status,
            "deepinfra_cached": found.cached,
            "cost_estimated_usd": self.tokens_saved * USD_PER_TOKEN_SAVED,
        }


def _annotation(annotation: Annotation) -> JsonObject:
    cut = annotation.cut
    return {
        "kind": "pruned_block",
        "original_start_line": cut.start,
        "original_end_line": cut.end,
        "pruned_line_count": cut.count,
        "reason": cut.reason,
        "marker": annotation.marker,
    }


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class InFlight(Generic[Key, Value]):
    def __init__(self) -> None:
        self._tasks: dict[Key, asyncio.Task[Value]] = {}
        self._callers: dict[asyncio.Task[Value], int] = {}

    async def share(self, key: Key, start: Callable[[], Coroutine[object, object, Value]]) -> Value:
        """The answer to `key`, by the work under way if there is one, else by `start`.

        A caller who gives up leaves the work to the others; the last one to give up ends it.
        """
        task = self._tasks.get(key) or self._begin(key, start)
        self._callers[task] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._callers[task] -= 1
            if self._callers[task] == 0:
                await self._end(key, task)

    def _begin(self, key: Key, start: Callable[[], Coroutine[object, object, Value]]) -> asyncio.Task[Value]:
        task = self._tasks[key] = asyncio.create_task(start())
        self._callers[task] = 0
        return task

    async def _end(self, key: Key, task: asyncio.Task[Value]) -> None:
        # Whoever asks from here on begins anew instead of joining work that is being cancelled.
        del self._tasks[key], self._callers[task]
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


__all__ = ["Explanation", "PruneAnswer", "Pruner"]

COMMIT_GRACE_S = 0.2  # a text that timed out is still committed; the answer may be 0.25 s late
FIND_GRACE_S = 0.1
MAX_TIMEOUT_S = 600.0
EXPLAIN_WITHIN_S = 60.0
RECENT_MAX_BYTES = 64 * 1024**2
NO_ID = "prn_" + "0" * 16  # in the place of one, where nothing is kept
IN_LOOP_MAX_CHARS = 256 * 1024  # up to here hashing and splitting take less than a millisecond or two


@dataclass(frozen=True, slots=True)
class Ask:
    """A question on its way, with what identifies it and when its time is over."""

    question: Question
    scope: str
    text: bytes
    key: bytes
    deadline: float

    @property
    def place(self) -> tuple[str, bytes]:
        return self.scope, self.key

    @property
    def left_s(self) -> float:
        return self.deadline - time.monotonic()


@dataclass(frozen=True, slots=True)
class Draft:
    """An answer that is not committed yet; a lasting one would be given to the same question again."""

    prune_id: str
    pruned: Pruned
    reranking: Reranking | None
    is_lasting: bool

    @property
    def is_whole_by_fault(self) -> bool:
        return not self.is_lasting and not self.pruned.annotations


@dataclass(frozen=True, slots=True)
class Explanation:
    """A question that was answered, the cuts that answered it, and why each of its lines stayed or went."""

    prune_id: str
    question: Question
    cuts: Sequence[Cut]
    lines: Sequence[LineWhy]


class Pruner:
    def __init__(
        self,
        config: PrunerSettings,
        originals: Originals,
        workers: Workers,
        rerank: Rerank | None = None,
        metrics: Metrics | None = None,
        now: Callable[[], float] = time.monotonic,
        publish: Publish = no_op,
    ) -> None:
        self._config = config
        self._originals = originals
        self._workers = workers
        self._rerank = rerank
        self._metrics = metrics or Metrics()
        self._publish = publish
        self._in_flight: InFlight[tuple[str, bytes, int], PruneAnswer] = InFlight()
        self._recent: LruCache[tuple[str, bytes], PruneAnswer] = LruCache(
            ttl_s=config.cache_ttl_s,
            max_entries=config.cache_max_entries,
            max_bytes=RECENT_MAX_BYTES,
            now=now,
        )

    async def warm(self) -> None:
        """For servers: load what the first question would otherwise wait for."""
        await self._workers.warm()

    async def prune(self, question: Question, scope: str = "local") -> PruneAnswer:
        """The lines that matter for the goal, or the whole text: a fault of ours never reaches the caller."""
        began = time.monotonic()
        deadline = began + min(question.options.timeout_ms / 1000, MAX_TIMEOUT_S)
        answer = await self._fail_open(
            "prune", self._shared(question, scope, deadline), lambda code: self._unrecoverable(question, code)
        )
        answer = replace(answer, elapsed_ms=round((time.monotonic() - began) * 1000))
        self._count(question, answer)
        self._publish("prune_event", {"prune_id": answer.prune_id, "outcome": answer.outcome, **answer.stats()})
        return answer

    async def recover(
        self, prune_id: str, ranges: Sequence[LineRange], with_numbers: bool, scope: str = "local"
    ) -> str:
        """The original lines of each range, byte for byte, in the order asked."""
        try:
            recovery.check(ranges)
            text = (await self._original(prune_id, scope)).text
            raw = await _aside(len(text), lambda: recovery.recover(decoded(text), ranges, with_numbers))
        except KimiProxyError as e:
            self._metrics.recoveries.labels(e.code).inc()
            raise
        self._metrics.recoveries.labels("ok").inc()
        return raw

    async def explain(self, prune_id: str, scope: str = "local") -> Explanation:
        original = await self._original(prune_id, scope)
        note = originals.decode(original.about, prune_id)
        if len(original.text) > 4 * self._config.max_input_chars:
            raise InvalidParams("prune_id", f"{prune_id} is too large to judge its lines: it was never pruned")
        question = replace(note.question, text=decoded(original.text))
        lines = await self._workers.explain(question, note.cuts, EXPLAIN_WITHIN_S)
        return Explanation(prune_id, question, note.cuts, lines)

    async def preview(self, question: Question, with_why: bool) -> tuple[Pruned, Sequence[LineWhy]]:
        """What would be cut, and why each line would stay or go; nothing is kept, and no id is given."""
        if len(question.text) > self._config.max_input_chars:
            return _whole(question, "input_too_large"), ()
        within_s = min(question.options.timeout_ms / 1000, MAX_TIMEOUT_S)
        work = self._workers.prune(question, NO_ID, None, within_s)
        pruned = await self._fail_open("preview", work, lambda code: _whole(question, code))
        cuts = [annotation.cut for annotation in pruned.annotations]
        why = self._workers.explain(question, cuts, within_s) if with_why else _nothing()
        return pruned, await self._fail_open("preview", why, lambda code: [])

    async def line_scores(self, question: Question) -> list[float]:
        """What the engine thinks of each line, between 0 and 1; nothing if it has no time for it."""
        within_s = min(question.options.timeout_ms / 1000, MAX_TIMEOUT_S)
        return await self._fail_open("scores", self._workers.local_scores(question, within_s), lambda code: [])

    async def _shared(self, question: Question, scope: str, deadline: float) -> PruneAnswer:
        """Equal questions that are asked at the same time are answered once."""
        text, key = await _aside(len(question.text), lambda: self._identified(question))
        ask = Ask(question, scope, text, key, deadline)
        return await self._in_flight.share((scope, key, question.options.timeout_ms), lambda: self._answer(ask))

    async def _answer(self, ask: Ask) -> PruneAnswer:
        live_id = await self._live_id(ask)
        recent = self._recent.get(ask.place)
        if recent and recent.prune_id == live_id:
            return recent.from_cache()
        draft = await self._draft(ask, live_id or new_id("prn"))
        # No text is replaced by a marker before its original is on disk.
        answer = await self._committed(ask, draft, is_known=live_id is not None)
        if answer.prune_id and draft.is_lasting:
            self._recent.put(ask.place, answer, _weight(answer))
        return answer

    async def _live_id(self, ask: Ask) -> str | None:
        """The id that this question was given before, if it is still honoured."""
        found = _within(ask.left_s + FIND_GRACE_S, self._originals.find(ask.scope, ask.key))
        return await self._fail_open("find", found, lambda code: None)

    async def _draft(self, ask: Ask, prune_id: str) -> Draft:
        def whole(code: WarningCode) -> Draft:
            return Draft(prune_id, _whole(ask.question, code), self._no_reranking(), is_lasting=False)

        if len(ask.question.text) > self._config.max_input_chars:
            return whole("input_too_large")
        return await self._fail_open("engine", _within(ask.left_s, self._pruned(ask, prune_id)), whole)

    async def _pruned(self, ask: Ask, prune_id: str) -> Draft:
        reranking, scores = await self._scores(ask)
        pruned = await self._workers.prune(ask.question, prune_id, scores, ask.left_s)
        failed = reranking is not None and reranking.has_failed
        warnings = reranking.warnings if reranking else ()
        return Draft(prune_id, pruned.warned(*warnings, fallback=failed), reranking, is_lasting=not failed)

    async def _scores(self, ask: Ask) -> tuple[Reranking | None, list[float] | None]:
        """What the reranker thinks of each line, for those who opted in."""
        if self._rerank is None:
            return None, None
        config = self._config
        budget = Budget(config.deepinfra_max_docs, config.deepinfra_timeout_ms / 1000, ask.left_s)
        return await rerank(ask.question, self._rerank, self._workers.local_scores, budget)

    async def _committed(self, ask: Ask, draft: Draft, is_known: bool) -> PruneAnswer:
        answer = PruneAnswer(draft.prune_id, draft.pruned, draft.reranking)
        if is_known and draft.is_whole_by_fault:
            return answer  # it is on disk with the note of a better day, which still explains the markers given then
        note = originals.encode(ask.question, draft.pruned, answer.backend)
        original = Original(draft.prune_id, ask.scope, ask.key, ask.text, note)

        async def keep() -> PruneAnswer:
            await _within(ask.left_s + COMMIT_GRACE_S, self._originals.keep(original))
            return answer

        return await self._fail_open("commit", keep(), lambda code: _without_id(ask.question, answer))

    async def _original(self, prune_id: str, scope: str) -> Original:
        if not is_id(prune_id):
            raise PruneIdNotFound(prune_id, "unknown")
        return await self._originals.get(scope, prune_id)

    async def _fail_open(self, step: str, work: Awaitable[Value], instead: Callable[[WarningCode], Value]) -> Value:
        """The one place where a fault of ours becomes an answer: with a code, a counter and a line in the log."""
        code: WarningCode
        try:
            return await work
        except TimeoutError:
            code, what = "timeout", "out of time"
        except StoreUnavailable as e:
            code, what = "recovery_unavailable", str(e)
        except ChildProcessError as e:
            code, what = "internal_error", str(e)
        except Exception as e:  # noqa: BLE001
            code, what = "internal_error", location(e)
        self._metrics.faults.labels(step, code).inc()
        log.warning("prune fell back", extra={"step": step, "code": code, "what": what})
        return instead(code)

    def _identified(self, question: Question) -> tuple[bytes, bytes]:
        text = encoded(question.text)
        return text, fingerprint(question, text, self._config)

    def _unrecoverable(self, question: Question, code: WarningCode) -> PruneAnswer:
        return _without_id(question, PruneAnswer(None, _whole(question, code), self._no_reranking()))

    def _no_reranking(self) -> Reranking | None:
        return None if self._rerank is None else Reranking()

    def _count(self, question: Question, answer: PruneAnswer) -> None:
        counted = self._metrics
        counted.prunes.labels(question.source_type, answer.backend, answer.outcome).inc()
        counted.tokens_before.inc(answer.pruned.tokens_before)
        counted.tokens_after.inc(answer.pruned.tokens_after)
        counted.prune_seconds.observe(answer.elapsed_ms / 1000)
        for code in answer.pruned.warnings:
            counted.warnings.labels(code).inc()


async def _nothing() -> list[LineWhy]:
    return []


def _whole(question: Question, code: WarningCode) -> Pruned:
    """The text as it came. Its tokens are estimated: counting them takes time, which may be what we lack."""
    lines = question.text.count("\n") + 1 if question.text else 0
    return untouched(question.text, lines, tokens.estimate(question.text), code)


def _without_id(question: Question, answer: PruneAnswer) -> PruneAnswer:
    """The text as it came, because nothing could bring it back."""
    pruned = answer.pruned
    codes = (*pruned.warnings, "recovery_unavailable")
    return replace(
        answer,
        prune_id=None,
        pruned=untouched(question.text, pruned.original_lines, pruned.tokens_before, *codes),
    )


async def _within(seconds: float, work: Awaitable[Value]) -> Value:
    async with asyncio.timeout(seconds):
        return await work


async def _aside(chars: int, work: Callable[[], Value]) -> Value:
    """Do `work` here if it is short, in a thread if the event loop would notice."""
    return work() if chars <= IN_LOOP_MAX_CHARS else await asyncio.to_thread(work)


def _weight(answer: PruneAnswer) -> int:
    return sys.getsizeof(answer.pruned.text) + 512 * (1 + len(answer.pruned.annotations))

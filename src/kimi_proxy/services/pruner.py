"""The path of a prune: find the live id of the question, score and select in a worker, commit the original, answer.

An internal error (store, worker, reranker, deadline) never reaches the caller: `fail_open` returns the uncut text.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Literal, NotRequired, TypeAlias, TypedDict, TypeVar

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.aside import SPLIT_CHARS, aside
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config import Config, PrunerSettings
from kimi_proxy.core.errors import (
    InvalidParams,
    PruneIdNotFound,
    RerankFailed,
    WarningCode,
)
from kimi_proxy.core.lines import decode_text, encode_text, join, split
from kimi_proxy.core.markers import is_id, new_id
from kimi_proxy.core.prune import Annotation, Cut, Numbering, Pruned, Question, no_op_result, rows_of
from kimi_proxy.features.pruning import score
from kimi_proxy.features.pruning.explain import LineWhy
from kimi_proxy.features.sanitizer.shorten import strip_row_numbers
from kimi_proxy.features.tool_words import ListedTool, ToolWords, texts_of, weigh_words
from kimi_proxy.services.events import Publish, no_op
from kimi_proxy.services.fail_open import FailOpen
from kimi_proxy.services.originals import (
    NO_ORIGIN,
    Keeper,
    PrunedLines,
    ToolOrigin,
    decode_note,
    fingerprint,
    part_starts_of,
    read_source,
)
from kimi_proxy.services.store.protocols import Original, Originals
from kimi_proxy.services.workers.pool import Workers

if TYPE_CHECKING:
    from kimi_proxy.proxy.pruners import Reranked, Reranker
    from kimi_proxy.services.metrics import Metrics

USD_PER_TOKEN_SAVED = 0.01 / 1_000_000
COMMIT_GRACE_S = 0.2  # a text that timed out is still committed; the answer may be 0.25 s late
FIND_GRACE_S = 0.1
LATE_S = 0.25  # an answer is not later than that, whatever it waited for
MAX_TIMEOUT_S = 600.0
EXPLAIN_TIMEOUT_S = 60.0
MIN_RESERVE_S = 0.3  # enough for a first prune, which loads the vocabulary
CACHE_MAX_BYTES = 64 * 1024**2
TOOL_WORDS_S = 30.0  # for the words of a server's tools
NO_ID = "prn_" + "0" * 16  # placeholder for an id if nothing is stored

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
# Goal, lines and a timeout in seconds to one score per line.
Rerank: TypeAlias = Callable[[str, Sequence[str], float], Awaitable["Reranked"]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reranking:
    """The part of an answer that describes the reranker."""

    docs_total: int = 0  # lines that are not blank
    docs_scored: int = 0
    latency_ms: int = 0
    http_status: int | None = None
    cached: bool = False
    warnings: tuple[WarningCode, ...] = ()

    @property
    def has_failed(self) -> bool:
        return "deepinfra_error" in self.warnings


EVENT = "prune_event"
PruneOutcome: TypeAlias = Literal["pruned", "untouched", "fallback", "observed", "recall_refused"]


class DeepInfraFields(TypedDict, total=False):
    """The outcome of a call to DeepInfra's scorer."""

    deepinfra_latency_ms: int
    deepinfra_docs_scored: int
    deepinfra_docs_total: int
    deepinfra_http_status: int
    deepinfra_cached: bool
    cost_estimated_usd: float


class PruneFields(DeepInfraFields):
    """The fields of a `prune_event`; those of hooks are fewer."""

    prune_id: str | None
    outcome: PruneOutcome
    original_lines: int
    pruned_lines: int
    tokens_est_before: int
    tokens_est_after: int
    numbering: NotRequired[Numbering]
    via: NotRequired[Literal["hooks"]]
    kept_lines: NotRequired[int]
    pruned_ratio: NotRequired[float]
    elapsed_ms: NotRequired[int]
    used_fallback: NotRequired[bool]
    backend: NotRequired[str]
    tokens_saved_est: NotRequired[int]


class PruneStatsBody(DeepInfraFields):
    original_lines: int
    kept_lines: int
    pruned_lines: int
    pruned_ratio: float
    tokens_est_before: int
    tokens_est_after: int
    elapsed_ms: int
    used_fallback: bool
    backend: str
    tokens_saved_est: int
    numbering: Numbering


class AnnotationBody(TypedDict):
    kind: Literal["pruned_block"]
    original_start_line: int
    original_end_line: int
    pruned_line_count: int
    reason: str
    marker: str


class PruneBody(TypedDict):
    prune_id: str | None
    pruned_text: str
    annotations: list[AnnotationBody]
    stats: PruneStatsBody
    warnings: Sequence[str]


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
    def outcome(self) -> PruneOutcome:
        if self.pruned.used_fallback:
            return "fallback"
        return "pruned" if self.pruned.annotations else "untouched"

    def from_cache(self) -> PruneAnswer:
        """Return the same answer, marked as given again."""
        again = self.reranking and replace(self.reranking, latency_ms=0, cached=True)
        return replace(self, pruned=self.pruned.with_warnings("cache_hit"), reranking=again)

    def without_id(self, text: str) -> PruneAnswer:
        """Return `text` uncut, because a cut could not be restored."""
        codes = (*self.pruned.warnings, "recovery_unavailable")
        uncut = no_op_result(text, len(split(text)), self.pruned.tokens_before, *codes)
        return replace(self, prune_id=None, pruned=uncut)

    def stats(self) -> PruneStatsBody:
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
            "numbering": pruned.numbering,
        }

    def json(self) -> PruneBody:
        return {
            "prune_id": self.prune_id,
            "pruned_text": self.pruned.text,
            "annotations": [_annotation_to_json(annotation) for annotation in self.pruned.annotations],
            "stats": self.stats(),
            "warnings": list(self.pruned.warnings),
        }

    def _reranking_stats(self) -> DeepInfraFields:
        found = self.reranking
        if found is None:
            return {}
        status: DeepInfraFields = {} if found.http_status is None else {"deepinfra_http_status": found.http_status}
        return {
            "deepinfra_latency_ms": found.latency_ms,
            "deepinfra_docs_scored": found.docs_scored,
            "deepinfra_docs_total": found.docs_total,
            **status,
            "deepinfra_cached": found.cached,
            "cost_estimated_usd": self.tokens_saved * USD_PER_TOKEN_SAVED,
        }


def _annotation_to_json(annotation: Annotation) -> AnnotationBody:
    cut = annotation.cut
    return {
        "kind": "pruned_block",
        "original_start_line": cut.start,
        "original_end_line": cut.end,
        "pruned_line_count": cut.count,
        "reason": cut.reason,
        "marker": annotation.marker,
    }


@dataclass(frozen=True, slots=True)
class PruneRequest:
    """A question on its way, with what identifies it and its deadline."""

    question: Question
    who: Caller
    text: bytes
    key: bytes
    deadline: float
    cpu_s: float | None = None  # of the engine
    origin: ToolOrigin = NO_ORIGIN

    @property
    def left_s(self) -> float:
        return self.deadline - time.monotonic()


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """An answer whose original is not committed yet; a lasting one would be given to the same question again."""

    prune_id: str
    answer: PruneAnswer
    is_lasting: bool

    @property
    def is_uncut_by_fault(self) -> bool:
        return not self.is_lasting and not self.answer.pruned.annotations


@dataclass(frozen=True, slots=True)
class Explanation:
    """A question that was answered, the cuts that answered it, and why each of its lines stayed or went."""

    prune_id: str
    question: Question
    cuts: Sequence[Cut]
    lines: Sequence[LineWhy]
    texts: Sequence[str]  # of the lines, or of the parts that are counted


def reranker(config: Config) -> Reranker | None:
    """Return the cloud backend, for those who opted in; its HTTP client takes a quarter of a second to load."""
    if config.mcp_pruner.backend != "deepinfra":
        return None
    from kimi_proxy.proxy.pruners import Reranker

    return Reranker(config.mcp_pruner.deepinfra_endpoint_url.get_secret_value(), config.deepinfra_api_key)


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
        self._keeper = Keeper(originals)
        self._workers = workers
        self._ask_reranker = rerank
        self._metrics = metrics
        self._publish = publish
        self.fail_open = FailOpen("prune fell back", self._count_fault)  # also for texts that it is not asked to prune
        self._in_flight: InFlight[tuple[str, bytes, int], PruneAnswer] = InFlight()
        self._cache: LruCache[tuple[str, bytes], PruneAnswer] = LruCache(
            ttl_s=config.cache_ttl_s,
            max_entries=config.cache_max_entries,
            max_bytes=CACHE_MAX_BYTES,
            now=now,
        )

    async def warm(self) -> None:
        """Load in advance everything that the first question would otherwise wait for."""
        await self._workers.warm()

    def keep_spare(self) -> None:
        """Start a second worker, which ends when it has been idle for a minute."""
        self._workers.keep_spare()

    async def tool_words(self, tools: Sequence[ListedTool]) -> list[ToolWords]:
        """Return the words by which tools are found, read in a worker; if none can be had, in a thread."""
        texts = [texts_of(tool) for tool in tools]
        try:
            return await self._workers.tool_words(texts, TOOL_WORDS_S)
        except (TimeoutError, ChildProcessError):
            return await asyncio.to_thread(lambda: [weigh_words(each) for each in texts])

    def forget(self, who: Caller, session: str | None) -> None:
        """Forget a person's newest answers, which belong to no session."""
        self._cache.forget_matching(lambda key: key[0] == who.scope)

    async def prune(
        self, who: Caller, question: Question, cpu_s: float | None = None, origin: ToolOrigin = NO_ORIGIN
    ) -> PruneAnswer:
        """Return the lines that matter for the goal, or the uncut text: an internal error never reaches the caller.

        `cpu_s` limits the CPU time of the engine; the question's timeout is then a ceiling for a busy machine.
        """
        began = time.monotonic()

        def unrecoverable(code: WarningCode) -> PruneAnswer:
            return PruneAnswer(None, _leave_uncut(question, code), self._no_reranking()).without_id(question.text)

        timeout_s = _timeout_s(question)
        work = _within(timeout_s + LATE_S, self._answer_once(who, question, began + timeout_s, cpu_s, origin))
        answer = await self.fail_open.run("prune", work, unrecoverable)
        answer = replace(answer, elapsed_ms=round((time.monotonic() - began) * 1000))
        self._count(question, answer)
        fields: PruneFields = {"prune_id": answer.prune_id, "outcome": answer.outcome, **answer.stats()}
        self._publish(who, EVENT, fields)
        return answer

    async def _answer_once(
        self, who: Caller, question: Question, deadline: float, cpu_s: float | None, origin: ToolOrigin
    ) -> PruneAnswer:
        """Answer equal questions that arrive at the same time once."""

        def identify() -> PruneRequest:
            text = encode_text(question.text)
            key = fingerprint(question, text, self._config)
            return PruneRequest(question, who, text, key, deadline, cpu_s=cpu_s, origin=origin)

        request = await aside(len(question.text) <= SPLIT_CHARS, identify)
        key = (who.scope, request.key, question.options.timeout_ms)
        return await self._in_flight.share(key, lambda: self._answer(request))

    async def _answer(self, request: PruneRequest) -> PruneAnswer:
        live_id = await self._live_id(request)
        cache_key = (request.who.scope, request.key)
        cached = self._cache.get(cache_key)
        if cached and cached.prune_id == live_id:
            return cached.from_cache()
        pending = await self._select(request, live_id or new_id("prn"))
        # No text is replaced by a marker before its original is on disk.
        answer = await self._commit(request, pending, is_known=live_id is not None)
        if answer.prune_id and pending.is_lasting:
            self._cache.put(cache_key, answer, _weight(answer))
        return answer

    async def _live_id(self, request: PruneRequest) -> str | None:
        """Return the id that this question was given before, if it is still honoured."""
        found = _within(request.left_s + FIND_GRACE_S, self._originals.find(request.who, request.key))
        return await self.fail_open.run("find", found, lambda code: None)

    async def _select(self, request: PruneRequest, prune_id: str) -> PendingAnswer:
        """Score the lines and select among them within the deadline; return the whole text if that fails."""

        def fall_back(code: WarningCode) -> PendingAnswer:
            answer = PruneAnswer(prune_id, _leave_uncut(request.question, code), self._no_reranking())
            return PendingAnswer(prune_id, answer, is_lasting=False)

        async def select_lines() -> PendingAnswer:
            reranking, scores = await self._rerank(request)
            pruned = await self._workers.prune(request.question, prune_id, scores, request.left_s, request.cpu_s)
            if not pruned.annotations and not pruned.warnings:
                pruned = pruned.with_warnings("nothing_worth_cutting")
            failed = reranking is not None and reranking.has_failed
            warnings = reranking.warnings if reranking else ()
            answer = PruneAnswer(prune_id, pruned.with_warnings(*warnings, fallback=failed), reranking)
            return PendingAnswer(prune_id, answer, is_lasting=not failed)

        if len(request.question.text) > self._config.max_input_chars:
            return fall_back("input_too_large")
        return await self.fail_open.run("engine", _within(request.left_s, select_lines()), fall_back)

    async def _rerank(self, request: PruneRequest) -> tuple[Reranking | None, list[float] | None]:
        """Return the reranker's report and one score per line; None if the engine should score the lines itself."""
        if self._ask_reranker is None:
            return None, None
        question = request.question
        began = time.monotonic()
        left_s = request.left_s
        local = await self._workers.local_scores(question, left_s)
        spent = time.monotonic() - began
        lines = text_lines.split(question.text)
        chosen = score.choose(lines, local, self._config.deepinfra_max_docs)
        found = Reranking(docs_total=len(score.candidates_of(lines)))
        if not chosen:
            return found, None
        try:
            timeout_s = self._reranker_timeout_s(left_s - spent, spent)
            reranked = await self._ask_reranker(question.goal, [lines[i] for i in chosen], timeout_s)
        except RerankFailed as e:
            log.warning("reranker failed", extra={"code": e.warning, "status": e.status, "what": str(e)})
            latency_ms = round((time.monotonic() - began - spent) * 1000)
            codes: tuple[WarningCode, ...] = ("deepinfra_error", e.warning)
            return replace(found, latency_ms=latency_ms, http_status=e.status, warnings=codes), None
        found = replace(found, docs_scored=len(chosen), latency_ms=reranked.latency_ms, http_status=reranked.status)
        if found.docs_total > found.docs_scored:
            found = replace(found, warnings=("deepinfra_docs_truncated",))
        return found, score.merge(local, chosen, reranked.scores)

    def _reranker_timeout_s(self, left_s: float, spent_s: float) -> float:
        """Return the reranker's timeout, which leaves enough time to prune without it."""
        reserve_s = min(max(MIN_RESERVE_S, 3 * spent_s), left_s / 2)
        return min(self._config.deepinfra_timeout_ms / 1000, left_s - reserve_s)

    async def _commit(self, request: PruneRequest, pending: PendingAnswer, is_known: bool) -> PruneAnswer:
        """Return the answer once its original is on disk; otherwise the uncut text without an id."""
        answer = pending.answer
        if is_known and pending.is_uncut_by_fault:
            return answer  # it is on disk with an earlier note, which still explains the markers given then

        async def keep() -> PruneAnswer:
            source = PrunedLines.of(request.question, answer.pruned, answer.backend, request.origin)
            kept = self._keeper.keep(request.who, pending.prune_id, request.key, request.text, source)
            await _within(request.left_s + COMMIT_GRACE_S, kept)
            return answer

        return await self.fail_open.run("commit", keep(), lambda code: answer.without_id(request.question.text))

    async def explain(self, who: Caller, prune_id: str) -> Explanation:
        """Return why each line stayed or went; raise PruneIdNotFound, or InvalidParams if it was not pruned."""
        original = await self._original(who, prune_id)
        note = decode_note(original.about, prune_id)
        if len(original.text) > 4 * self._config.max_input_chars:
            raise InvalidParams("prune_id", f"{prune_id} is too large to explain: it was never pruned")
        question = replace(note.question, text=decode_text(original.text))
        part_starts = part_starts_of(read_source(original.about), question.text)
        # A tool's row numbers carry no information about a line: they are removed before scoring.
        judged = replace(question, text=join(strip_row_numbers(split(question.text)))) if question.context else question
        lines = await self._workers.explain(judged, note.cuts, part_starts, EXPLAIN_TIMEOUT_S)
        return Explanation(prune_id, question, note.cuts, lines, rows_of(question.text, part_starts))

    async def preview(self, question: Question, with_why: bool) -> tuple[Pruned, Sequence[LineWhy]]:
        """Return what would be cut, with the reason for each line; store nothing and issue no id."""
        if len(question.text) > self._config.max_input_chars:
            return _leave_uncut(question, "input_too_large"), ()
        timeout_s = _timeout_s(question)
        work = self._workers.prune(question, NO_ID, None, timeout_s)
        pruned = await self.fail_open.run("preview", work, lambda code: _leave_uncut(question, code))
        if not with_why:
            return pruned, []
        cuts = [annotation.cut for annotation in pruned.annotations]
        why = self._workers.explain(question, cuts, pruned.part_starts, timeout_s)
        return pruned, await self.fail_open.run("preview", why, lambda code: [])

    async def line_scores(self, question: Question) -> list[float]:
        """Return the engine's score of each line, between 0 and 1; nothing if it has no time for it."""
        work = self._workers.local_scores(question, _timeout_s(question))
        return await self.fail_open.run("scores", work, lambda code: [])

    async def _original(self, who: Caller, prune_id: str) -> Original:
        if not is_id(prune_id):
            raise PruneIdNotFound(prune_id, "unknown")
        return await self._originals.get(who, prune_id)

    def _count_fault(self, step: str, code: WarningCode) -> None:
        if self._metrics is not None:
            self._metrics.faults.labels(step, code).inc()

    def _no_reranking(self) -> Reranking | None:
        return None if self._ask_reranker is None else Reranking()

    def _count(self, question: Question, answer: PruneAnswer) -> None:
        counted = self._metrics
        if counted is None:
            return
        counted.prunes.labels(question.source_type, answer.backend, answer.outcome).inc()
        counted.tokens_before.inc(answer.pruned.tokens_before)
        counted.tokens_after.inc(answer.pruned.tokens_after)
        counted.prune_seconds.observe(answer.elapsed_ms / 1000)
        for code in answer.pruned.warnings:
            counted.warnings.labels(code).inc()


def _timeout_s(question: Question) -> float:
    return min(question.options.timeout_ms / 1000, MAX_TIMEOUT_S)


def _leave_uncut(question: Question, code: WarningCode) -> Pruned:
    """Return the text uncut. Its tokens are estimated, because there may be no time left to count them."""
    lines = question.text.count("\n") + 1 if question.text else 0
    return no_op_result(question.text, lines, tokens.estimate(question.text), code)


async def _within(seconds: float, work: Awaitable[Value]) -> Value:
    async with asyncio.timeout(seconds):
        return await work


def _weight(answer: PruneAnswer) -> int:
    return sys.getsizeof(answer.pruned.text) + 512 * (1 + len(answer.pruned.annotations))


class InFlight(Generic[Key, Value]):
    """Work that is under way, shared by all who want its result."""

    def __init__(self) -> None:
        self._tasks: dict[Key, asyncio.Task[Value]] = {}
        self._callers: dict[asyncio.Task[Value], int] = {}

    async def share(self, key: Key, start: Callable[[], Coroutine[object, object, Value]]) -> Value:
        """Return the result for `key`, by the work under way if there is one, else by `start`.

        A caller that stops waiting does not affect the others; the work is cancelled when the last one stops waiting.
        """
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(start())
            self._callers[task] = 0
        self._callers[task] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._callers[task] -= 1
            if self._callers[task] == 0:
                # The work is being cancelled: callers that arrive from now on start their own.
                del self._tasks[key], self._callers[task]
                if not task.done():
                    task.cancel()
                    await asyncio.wait({task})

"""The life of a prune, from question to answer, and the way back."""

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kimi_proxy.core import tokens
from kimi_proxy.core.config import McpPruner
from kimi_proxy.core.errors import InvalidParams, KimiProxyError, PruneIdNotFound, StoreUnavailable
from kimi_proxy.core.fault import place
from kimi_proxy.core.ids import is_id, new_id
from kimi_proxy.core.prune import Cut, Pruned, Question, untouched
from kimi_proxy.core.warnings import Warned
from kimi_proxy.features import recovery
from kimi_proxy.features.pruning.explain import LineWhy
from kimi_proxy.features.recovery import LineRange
from kimi_proxy.services import about
from kimi_proxy.services.fingerprint import decoded, encoded, fingerprint
from kimi_proxy.services.hub import Publish, unheard
from kimi_proxy.services.inflight import InFlight
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.prune_answer import PruneAnswer
from kimi_proxy.services.recent import Recent
from kimi_proxy.services.reranking import Budget, Rerank, Reranking, rerank
from kimi_proxy.services.store import Original, Store
from kimi_proxy.services.workers import Workers

__all__ = ["Explanation", "PruneAnswer", "Pruner"]

COMMIT_GRACE_S = 0.2  # a text that timed out is still committed; the answer may be 0.25 s late
FIND_GRACE_S = 0.1
MAX_TIMEOUT_S = 600.0
EXPLAIN_WITHIN_S = 60.0
RECENT_MAX_BYTES = 64 * 1024**2
NO_ID = "prn_" + "0" * 16  # in the place of one, where nothing is kept
IN_LOOP_MAX_CHARS = 256 * 1024  # up to here hashing and splitting take less than a millisecond or two

Value = TypeVar("Value")

log = logging.getLogger(__name__)


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
        config: McpPruner,
        store: Store,
        workers: Workers,
        rerank: Rerank | None = None,
        metrics: Metrics | None = None,
        now: Callable[[], float] = time.monotonic,
        publish: Publish = unheard,
    ) -> None:
        self._config = config
        self._store = store
        self._workers = workers
        self._rerank = rerank
        self._metrics = metrics or Metrics()
        self._publish = publish
        self._in_flight: InFlight[tuple[str, bytes, int], PruneAnswer] = InFlight()
        self._recent: Recent[tuple[str, bytes], PruneAnswer] = Recent(
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
        note = about.decode(original.about, prune_id)
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
        found = _within(ask.left_s + FIND_GRACE_S, self._store.find(ask.scope, ask.key))
        return await self._fail_open("find", found, lambda code: None)

    async def _draft(self, ask: Ask, prune_id: str) -> Draft:
        def whole(code: Warned) -> Draft:
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
        note = about.encode(ask.question, draft.pruned, answer.backend)
        original = Original(draft.prune_id, ask.scope, ask.key, ask.text, note)

        async def keep() -> PruneAnswer:
            await _within(ask.left_s + COMMIT_GRACE_S, self._store.keep(original))
            return answer

        return await self._fail_open("commit", keep(), lambda code: _without_id(ask.question, answer))

    async def _original(self, prune_id: str, scope: str) -> Original:
        if not is_id(prune_id):
            raise PruneIdNotFound(prune_id, "unknown")
        return await self._store.original(scope, prune_id)

    async def _fail_open(self, step: str, work: Awaitable[Value], instead: Callable[[Warned], Value]) -> Value:
        """The one place where a fault of ours becomes an answer: with a code, a counter and a line in the log."""
        code: Warned
        try:
            return await work
        except TimeoutError:
            code, what = "timeout", "out of time"
        except StoreUnavailable as e:
            code, what = "recovery_unavailable", str(e)
        except ChildProcessError as e:
            code, what = "internal_error", str(e)
        except Exception as e:  # noqa: BLE001
            code, what = "internal_error", place(e)
        self._metrics.faults.labels(step, code).inc()
        log.warning("prune fell back", extra={"step": step, "code": code, "what": what})
        return instead(code)

    def _identified(self, question: Question) -> tuple[bytes, bytes]:
        text = encoded(question.text)
        return text, fingerprint(question, text, self._config)

    def _unrecoverable(self, question: Question, code: Warned) -> PruneAnswer:
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


def _whole(question: Question, code: Warned) -> Pruned:
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

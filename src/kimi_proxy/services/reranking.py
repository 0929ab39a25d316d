"""Scores from a reranker, asked within what is left of the time, or the reason why there are none."""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core.errors import RerankFailed
from kimi_proxy.core.prune import Question
from kimi_proxy.core.warnings import Warned
from kimi_proxy.features.pruning import reranking

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
    warnings: tuple[Warned, ...] = ()

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
    asked = reranking.choose(lines, local, budget.max_docs)
    found = Reranking(docs_total=len(reranking.candidates_of(lines)))
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
    return found, reranking.merge(local, asked, heard.scores)


def _patience(budget: Budget, spent: float) -> float:
    """Whatever the reranker does, there must be time left to prune without it."""
    left = budget.left_s - spent
    reserve = min(max(MIN_RESERVE_S, 3 * spent), left / 2)
    return min(budget.patience_s, left - reserve)

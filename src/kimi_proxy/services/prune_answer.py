"""An answer of the pruner, and how it reads as JSON."""

from dataclasses import dataclass, replace

from kimi_proxy.core.prune import Annotation, Pruned
from kimi_proxy.core.types import JsonObject
from kimi_proxy.services.reranking import Reranking

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

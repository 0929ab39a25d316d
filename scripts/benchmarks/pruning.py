"""How long the engine takes, beside a plain BM25 pass over the same text in the same run."""

import corpus
from baseline import bm25_per_line
from timing import median, p95, table, timed

from kimi_proxy.core.prune import SOURCE_TYPES, Options, Question
from kimi_proxy.features.pruning import engine

SIZES = (200, 2_000, 10_000)
OPTIONS = Options(max_prune_ratio=0.7, min_keep_lines=10, timeout_ms=10_000, annotate_lines=False, include_markers=True)


def main() -> None:
    rows = []
    for source_type in SOURCE_TYPES:
        for size in SIZES:
            text, goal = corpus.text(source_type, size), corpus.GOALS[source_type]
            question = Question(text, goal, source_type, OPTIONS)
            times = 15 if size < 10_000 else 7
            ours = timed(lambda q=question: engine.prune(q, "prn_0123456789abcdef"), times)
            plain = timed(lambda t=text, g=goal: bm25_per_line(t, g), times)
            pruned = engine.prune(question, "prn_0123456789abcdef")
            rows.append(
                (
                    source_type,
                    f"{size:,}",
                    f"{len(text) // 1024:,} KB",
                    f"{median(ours):.0f}",
                    f"{p95(ours):.0f}",
                    f"{median(ours) / median(plain):.1f}",
                    f"{pruned.tokens_after / pruned.tokens_before:.0%}",
                    len(pruned.annotations),
                )
            )
    head = ("text", "lines", "size", "median ms", "p95 ms", "× BM25 per line", "tokens left", "cuts")
    table("Pruning, one core, warm", head, rows)
